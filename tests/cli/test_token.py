"""`memoree token`: making, listing and revoking the tokens of a service."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memoree.client.endpoint import find_token

from .conftest import PROGRAM, Run, Shell
from .screen import on_terminal

Inside = Callable[..., Run]

FULL_DIGEST = re.compile(r"[0-9a-f]{40,}")


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def create(inside: Inside, tokens: Path, *options: str, tenant: str = "A", scope: str = "recall") -> Run:
    return inside("token", "create", "--tenant", tenant, "--scope", scope, "--tokens", str(tokens), *options)


@pytest.mark.proves("tokens-9")
def test_a_token_is_told_once_and_kept_as_its_digest(inside: Inside, tokens: Path) -> None:
    context = ("--workspace", "w", "--project", "p", "--task", "t")
    made = create(
        inside,
        tokens,
        "--scope",
        "ingest",
        "--expires",
        "2999-01-01T00:00:00Z",
        "--agent",
        "ci",
        "--name",
        "CI",
        *context,
    ).result
    digest = hashlib.sha256(made.get("token", "").encode()).hexdigest()

    entry = {
        "tenant": "A",
        "scopes": ["recall", "ingest"],
        "context": {"workspace_id": "w", "project_id": "p", "task_id": "t"},
        "agent": "ci",
        "name": "CI",
        "expires_at": "2999-01-01T00:00:00Z",
    }
    assert json.loads(tokens.read_text()) == {f"sha256:{digest}": entry}
    assert tokens.stat().st_mode & 0o777 == 0o600
    assert made == {"token": made.get("token"), "id": digest[:12], **entry}
    listed = inside("token", "list", "--tokens", str(tokens))
    assert listed.result == {"tokens": [{"id": digest[:12], **entry}], "ignored": 0}
    assert FULL_DIGEST.search(listed.stdout.decode() + listed.stderr) is None


@pytest.mark.proves("tokens-9", "tokens-14")
def test_a_list_tells_ids_also_of_tokens_that_stand_in_the_file_themselves(inside: Inside, tokens: Path) -> None:
    entries = {"s3cret": {"tenant": "A", "scopes": []}, "oops": {"tenant": "a:b"}, "b": {"tenant": "B", "scopes": []}}
    tokens.write_text(json.dumps(entries))
    listed = inside("token", "list", "--tokens", str(tokens))
    assert listed.result["ignored"] == 1
    assert [each["id"] for each in listed.result["tokens"]] == [
        hashlib.sha256(token).hexdigest()[:12] for token in (b"s3cret", b"b")
    ]
    assert b"s3cret" not in listed.stdout
    of_b = inside("token", "list", "--tenant", "B", "--tokens", str(tokens)).result
    assert [each["tenant"] for each in of_b["tokens"]] == ["B"]


@pytest.mark.parametrize(("span", "seconds"), [("90d", 90 * 86400), ("12h", 12 * 3600), ("30m", 1800)])
def test_an_expiry_may_be_a_span_from_now(inside: Inside, tokens: Path, span: str, seconds: int) -> None:
    made = create(inside, tokens, "--expires", span).result
    until = datetime.fromisoformat(made.get("expires_at", "2001-01-01T00:00:00Z"))
    assert abs(until - datetime.now(UTC) - timedelta(seconds=seconds)) < timedelta(seconds=60)


def test_tokens_and_ids_are_in_one_piece_on_the_narrowest_terminal(shell: Shell, tokens: Path) -> None:
    def screen(*line: str) -> list[str]:
        status, shown = on_terminal(
            [PROGRAM, "token", *line, "--tokens", tokens], cwd=shell.cwd, environment=shell.environment, columns=40
        )
        assert status == 0, shown
        return [text for text in shown.splitlines() if text]

    made = screen("create", "--tenant", "A", "--scope", "recall")
    id_ = hashlib.sha256(made[0].encode()).hexdigest()[:12]
    assert made[1].split() == ["id", id_], made
    assert id_ in [line.split()[0] for line in screen("list")]


@pytest.mark.proves("tokens-11")
def test_a_token_is_revoked_by_the_beginning_of_its_id(inside: Inside, tokens: Path) -> None:
    first, second = (create(inside, tokens, "--name", name).result for name in ("one", "other"))
    revoked = inside("token", "revoke", first["id"][:8].upper(), "--tokens", str(tokens)).result
    assert revoked == {name: value for name, value in first.items() if name != "token"}
    left = inside("token", "list", "--tokens", str(tokens)).result["tokens"]
    assert [each["id"] for each in left] == [second["id"]]
    inside("token", "revoke", first["id"], "--tokens", str(tokens)).refused("NOT_FOUND", 3)


@pytest.mark.proves("tokens-11")
def test_an_id_that_begins_two_tokens_revokes_neither(inside: Inside, tokens: Path) -> None:
    entry = {"tenant": "A", "scopes": ["recall"]}
    tokens.write_text(json.dumps({f"sha256:abcdef{number:058x}": entry for number in range(2)}))
    before = tokens.read_bytes()
    error = inside("token", "revoke", "abcdef", "--tokens", str(tokens)).refused("INVALID_REQUEST", 2)
    assert "2 tokens" in error["message"]
    assert tokens.read_bytes() == before


@pytest.mark.proves("tokens-7")
def test_a_token_of_all_tenants_may_only_administer(inside: Inside, tokens: Path) -> None:
    create(inside, tokens, tenant="*", scope="recall").refused("INVALID_REQUEST", 2)
    assert create(inside, tokens, tenant="*", scope="admin").result["tenant"] == "*"


@pytest.mark.parametrize(
    "options",
    [
        ("--expires", "tomorrow"),
        ("--expires", "2001-01-01T00:00:00Z"),
        ("--workspace", "w"),
        ("--name", " "),
        ("--agent", ""),
    ],
    ids=" ".join,
)
def test_a_token_that_makes_no_sense_is_not_made(inside: Inside, tokens: Path, options: tuple[str, str]) -> None:
    create(inside, tokens, *options).refused("INVALID_REQUEST", 2)
    assert not tokens.exists()


@pytest.mark.proves("tokens-10")
def test_a_file_that_is_none_is_refused_and_stays(inside: Inside, tokens: Path) -> None:
    tokens.write_text("{")
    create(inside, tokens).refused("CONFIG_ERROR", 2)
    inside("token", "list", "--tokens", str(tokens)).refused("CONFIG_ERROR", 2)
    assert tokens.read_text() == "{"


@pytest.mark.proves("tokens-13")
def test_tokens_of_the_environment_are_listed_and_not_changed(shell: Shell) -> None:
    entries = json.dumps({"tok": {"tenant": "A", "scopes": ["recall"]}})
    told = shell.having(MEMOREE_TOKENS=entries)
    assert len(told.run("token", "list").result["tokens"]) == 1
    for line in (("create", "--tenant", "A", "--scope", "recall"), ("revoke", "0123abcd")):
        error = told.run("token", *line).refused("CONFIG_ERROR", 2)
        assert "MEMOREE_TOKENS" in error["message"]


@pytest.mark.proves("tokens-1")
def test_without_a_tokens_file_there_is_nothing_to_administer(shell: Shell, tokens: Path) -> None:
    error = shell.run("token", "list").refused("CONFIG_ERROR", 2)
    assert "--tokens FILE" in error["message"]
    two = shell.having(MEMOREE_TOKENS="{}", MEMOREE_TOKENS_FILE=str(tokens))
    two.run("token", "list").refused("CONFIG_ERROR", 2)


def test_a_stacks_directory_names_its_tokens_file(shell: Shell, tmp_path: Path, tokens: Path) -> None:
    stack = tmp_path / "stack"
    stack.mkdir()
    (stack / "deployment.env").write_text(f"MEMOREE_TOKENS_FILE={tokens}\n")
    elsewhere = shell.having(MEMOREE_TOKENS_FILE="/nowhere")
    made = elsewhere.run("token", "create", "--tenant", "A", "--scope", "recall", "--data", str(stack)).result
    assert [each["id"] for each in elsewhere.run("token", "list", "--data", str(stack)).result["tokens"]] == [
        made["id"]
    ]
    own = shell.having(MEMOREE_DATA_DIR=str(tmp_path))
    assert len(own.run("token", "list").result["tokens"]) == 1


def test_a_file_with_one_token_and_digests_still_serves_as_a_token_file(inside: Inside, tokens: Path) -> None:
    tokens.write_text(json.dumps({"s3cret": {"tenant": "local", "scopes": ["recall"]}}))
    create(inside, tokens)
    assert find_token(tokens) == "s3cret"

"""A stack whose tokens are a file of its own, an object of its store, or the environment's; changed while it runs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx
import pytest

from e2e.deployment import Deployment, deployment, memoree, processes_of, refusal, until

pytestmark = pytest.mark.stack

KNOWN_SECONDS_MAX = 4.0
"""One look at a file, or two at an object, and what a loaded host adds."""


def status_of(stack: Deployment, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{stack.url}/v1/admin/tokens", headers=headers, trust_env=False).status_code


def token(stack: Deployment, *line: str) -> dict[str, str]:
    done = memoree("token", *line, "--data", stack.data_dir)
    assert done.returncode == 0, done.stdout
    result: dict[str, str] = json.loads(done.stdout)["result"]
    return result


@pytest.mark.proves("tokens-2", "tokens-11")
@pytest.mark.parametrize("place", ["file", "object"])
def test_tokens_made_and_revoked_by_the_shell_count_while_the_stack_runs(tmp_path: Path, place: str) -> None:
    options = ("--tokens", "s3://memoree/keys/tokens.json") if place == "object" else ()
    with deployment(tmp_path / "stack") as stack:
        stack.tokens = {"nobody": "unused"}
        stack.start(*options)
        assert stack.state["tokens_file"] == (options[1] if options else str(stack.data_dir / "tokens.json"))
        made = token(stack, "create", "--tenant", "local", "--scope", "admin", "--scope", "recall")
        secret = made.get("token", "")
        until(lambda: status_of(stack, secret) == 200, "the new token", KNOWN_SECONDS_MAX)

        over_http = httpx.post(
            f"{stack.url}/v1/admin/tokens",
            headers={"Authorization": f"Bearer {secret}"},
            json={"scopes": ["admin"]},
            trust_env=False,
        )
        assert over_http.status_code == 201, over_http.text
        listed = token(stack, "list")["tokens"]
        assert [each["tenant"] for each in listed] == ["local"] * 3  # type: ignore[index]

        token(stack, "revoke", made["id"])
        began = time.monotonic()
        until(lambda: status_of(stack, secret) == 401, "the revocation", KNOWN_SECONDS_MAX)
        assert time.monotonic() - began < KNOWN_SECONDS_MAX
        logs = "".join(path.read_text() for path in stack.data_dir.glob("*.log"))
        assert secret not in logs and over_http.json()["token"] not in logs


@pytest.mark.proves("tokens-1", "tokens-13")
def test_tokens_of_the_environment_open_a_stack_and_are_kept_nowhere(tmp_path: Path) -> None:
    entries = {"tok-of-the-environment": {"tenant": "local", "scopes": ["admin"]}}
    with deployment(tmp_path / "stack") as stack:
        stack.tokens = {"local": "tok-of-the-environment"}
        stack.start(settings={"MEMOREE_TOKENS": json.dumps(entries)})
        assert status_of(stack, "tok-of-the-environment") == 200
        assert not (stack.data_dir / "tokens.json").exists()
        assert stack.state["tokens_file"] == "MEMOREE_TOKENS"
        refused = memoree("token", "create", "--tenant", "A", "--scope", "recall", "--data", stack.data_dir)
        assert "MEMOREE_TOKENS" in refusal(refused)


@pytest.mark.proves("tokens-1")
def test_a_stack_with_two_places_of_tokens_does_not_start(tmp_path: Path) -> None:
    with deployment(tmp_path / "stack") as stack:
        process = stack.launch("--tokens", str(tmp_path / "t.json"), settings={"MEMOREE_TOKENS": "{}"})
        assert process.wait(60) == 2
        assert process.stdout is not None
        message = json.loads(process.stdout.read())["error"]["message"]
        assert "MEMOREE_TOKENS_FILE and MEMOREE_TOKENS are set" in message
        assert processes_of(stack.data_dir) == []

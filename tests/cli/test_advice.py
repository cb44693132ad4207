"""What somebody is told who has just gone wrong: what it was, and what to do, for the door it came through."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from memoree.assembly import embedded_service
from memoree.cli import tables
from memoree.cli.output import explain_failure
from memoree.cli.serving import known_settings, read_deployment
from memoree.client import operations
from memoree.client.framed import FramedEndpoint
from memoree.client.http import HttpEndpoint
from memoree.client.request import Outgoing
from memoree.errors import Code, MemoreeError

from .conftest import Json, Run

Inside = Callable[..., Run]
Screen = Callable[[], str]
DOCTOR = Outgoing("req_1", "doctor", b"{}")


@pytest.fixture
def screen(capsysbinary: pytest.CaptureFixture[bytes]) -> Screen:
    """What was printed since the last look."""
    return lambda: capsysbinary.readouterr().out.decode()


@pytest.mark.parametrize("line", [["verify"], ["backup", "create", "copy"]])
def test_a_store_that_does_not_exist_is_neither_sound_nor_copied(
    inside: Inside, tmp_path: Path, line: list[str]
) -> None:
    missing = tmp_path / "home" / "data"
    for made in (False, True):
        if made:
            missing.mkdir(parents=True)
        error = inside(*line).refused("CONFIG_ERROR", 2)
        assert str(missing) in error["message"] and "MEMOREE_DATA_DIR" in error["message"]
        assert missing.exists() is made and not (tmp_path / "copy").exists()
    assert inside("claim", "assert", "fact", "x").result
    assert inside(*line).result


def test_only_operations_of_the_catalogue_ask_for_a_store() -> None:
    assert operations.OF_A_STORE <= operations.WITHOUT_CONTEXT | operations.SIDE_EFFECTING


def test_nobody_runs_where_a_command_opened_the_store_itself(inside: Inside) -> None:
    assert inside("doctor").result["running"] is False


def test_a_shell_is_told_of_commands_and_a_server_of_members(inside: Inside, tmp_path: Path) -> None:
    service = embedded_service(tmp_path / "served")
    request = {"request_id": "r", "op": "search", "input": {"query": "x"}}
    try:
        served = json.loads(service.call_bytes(json.dumps(request).encode()))["error"]
    finally:
        service.close_sync()
    assert served["code"] == "NO_AMBIENT_CONTEXT"
    assert "workspace_id" in served["hint"] and "memoree" not in served["hint"]


def test_a_shell_without_a_project_is_told_how_to_get_one(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMOREE_CONTEXT")
    assert "`memoree init`" in inside("search", "x").refused("NO_AMBIENT_CONTEXT", 5)["hint"]
    assert inside("init").result["created"]
    assert "`memoree context show`" in inside("init").refused("CONFIG_ERROR", 2)["message"]


def test_a_server_that_is_not_there_is_named_with_its_port(tmp_path: Path) -> None:
    with pytest.raises(MemoreeError, match=r"nothing listens at 127\.0\.0\.1:9; `memoree status`"):
        HttpEndpoint("127.0.0.1", 9, tls=False).exchange(DOCTOR)
    with pytest.raises(MemoreeError, match="`memoree serve --socket"):
        FramedEndpoint(str(tmp_path / "none.sock")).exchange(DOCTOR)


@pytest.mark.parametrize(
    ("error", "op", "told"),
    [
        ({"code": "UNAUTHENTICATED"}, "search", "MEMOREE_TOKEN"),
        ({"code": "CONTENT_TOO_LARGE"}, "artifact.get", "--output PATH"),
        ({"code": "CITATION_ERROR", "details": {"next_action": "add #START-END"}}, "citation.get", "add #START-END"),
        ({"code": "SCOPE_VIOLATION", "hint": "elsewhere"}, "source.get", "elsewhere"),
    ],
    ids=lambda value: value["code"] if isinstance(value, dict) else "",
)
def test_a_person_is_told_what_to_do_about_a_refusal(
    error: Json, op: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explain_failure({"message": "no", "retryable": False, **error}, op)
    (hint,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("hint: "))
    assert told in hint


def test_a_claim_is_found_under_what_it_says(inside: Inside, screen: Screen) -> None:
    assert inside("claim", "assert", "fact", "It reached cone 6.").result
    tables.show("search", inside("search", "cone").result)
    assert screen().startswith("It reached cone 6.  fact claim, active\n  memoree://claim/")


def test_a_backup_says_how_to_check_it(inside: Inside, screen: Screen) -> None:
    assert inside("claim", "assert", "fact", "x").result
    made = inside("backup", "create", "a copy").result
    tables.show("backup.create", made)
    assert f"MEMOREE_DATA_DIR='{made['destination']}' memoree verify" in screen()


def test_instructions_are_written_to_a_file_as_text(inside: Inside, tmp_path: Path) -> None:
    text = inside("instructions", "--format", "agents-md").result["content"]
    path = tmp_path / "AGENTS.md"
    made = inside("instructions", "--format", "agents-md", "--output", str(path)).result
    assert made == {"format": "agents-md", "materialized_path": str(path)}
    assert path.read_text() == text
    inside("instructions", "--output", str(path)).refused("INVALID_REQUEST", 2)
    assert inside("instructions", "--format", "json", "--output", str(path), "--force").result
    assert json.loads(path.read_text())["product"] == "memoree"
    assert inside("instructions", "--force").status == 2


def test_a_setting_that_no_part_reads_is_refused() -> None:
    known = {"MEMOREE_LEASE_TTL_SECONDS": "3", "MEMOREE_ACCESS_LOG": "1"}
    assert known_settings(known) == known
    with pytest.raises(MemoreeError, match="MEMOREE_FOO") as caught:
        known_settings(known | {"MEMOREE_FOO": "1"})
    assert caught.value.code is Code.CONFIG_ERROR


def test_a_directory_without_a_stack_is_told_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(MemoreeError, match=r"nope is no stack's directory.*deployment\.env.*memoree up") as caught:
        read_deployment(tmp_path / "nope")
    assert "Errno" not in caught.value.message
    (tmp_path / "deployment.env").write_text("MEMOREE_BUCKET=lab\n")
    assert read_deployment(tmp_path) == {"MEMOREE_BUCKET": "lab"}

"""Curation of a bundle that is a directory, and its commands."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

from memoree.cli.commands import run
from memoree.cli.invocation import Invocation
from memoree.errors import MemoreeError
from memoree.okf import bundle_edits, curation, dates, ledger
from memoree.okf.bundle_edits import FileChange
from memoree.okf.node import parse

from .bundle_support import node, write

AT_MS = 1_780_272_000_000
Cli = Callable[..., int]
FILES = {
    "concepts/rye.md": node("Rye [wheat](/concepts/wheat.md).", title="Rye"),
    "concepts/wheat.md": node("Wheat.", title="Wheat").replace("\n", "\r\n"),
    "concepts/pay.md": node("Pay.", title="Pay", visibility="secret"),
    "projects/rye.md": node("Project.", node_type="Project"),
    "index.md": "[rye](/concepts/rye.md) [pay](concepts/pay.md) [rye](/projects/rye.md)\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "bundle", FILES)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, root: Path) -> Cli:
    monkeypatch.setenv("OKF_ROOT", str(root))
    return lambda *line: run([*line], Invocation())


def contents(root: Path) -> dict[str, bytes]:
    """Every file, whatever its name."""
    return {str(at.relative_to(root)): at.read_bytes() for at in sorted(root.rglob("*")) if at.is_file()}


def refusal(act: Callable[[], Any]) -> MemoreeError:
    with pytest.raises(MemoreeError) as error:
        act()
    return error.value


# --- forget -----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("okf-92")
def test_forgetting_a_node_changes_two_lines_of_its_file_and_no_other_file(root: Path) -> None:
    before = contents(root)
    assert curation.forget(root, "wheat", at_ms=AT_MS) == "/concepts/wheat.md"
    expected = FILES["concepts/wheat.md"].replace(
        "title: Wheat\r\n", "title: Wheat\r\ndeprecated: true\r\ndeprecated_on: 2026-06-01T00:00:00.000Z\r\n"
    )
    assert contents(root) == before | {"concepts/wheat.md": expected.encode()}
    curation.forget(root, "/concepts/wheat.md", at_ms=AT_MS + dates.DAY_MS)
    assert contents(root)["concepts/wheat.md"] == expected.replace("06-01T", "06-02T").encode()


@pytest.mark.proves("okf-92")
@pytest.mark.fault_class(21)
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("rye", "INVALID_REQUEST"),
        ("none", "NOT_FOUND"),
        ("index", "NOT_FOUND"),
        ("pay", "NOT_FOUND"),
        ("../bundle/concepts/wheat", "INVALID_REQUEST"),
        ("C:\\Windows\\win.ini", "INVALID_REQUEST"),
        ("a\0b", "INVALID_REQUEST"),
        ("", "INVALID_REQUEST"),
    ],
)
def test_what_means_no_node_or_several_is_refused_and_changes_nothing(root: Path, given: str, code: str) -> None:
    before = contents(root)
    assert refusal(lambda: curation.forget(root, given, at_ms=AT_MS)).code == code
    assert contents(root) == before


def test_a_file_without_fields_cannot_be_forgotten(root: Path) -> None:
    write(root, {"concepts/plain.md": "# Plain\n"})
    assert "no front matter" in refusal(lambda: curation.forget(root, "plain", at_ms=AT_MS)).message


def test_a_secret_is_forgotten_only_when_secrets_are_asked_for(root: Path) -> None:
    assert curation.forget(root, "pay", at_ms=AT_MS, secret=True) == "/concepts/pay.md"
    assert parse("concepts/pay", (root / "concepts/pay.md").read_bytes()).is_deprecated


def test_a_file_keeps_its_permissions(root: Path) -> None:
    (root / "concepts/wheat.md").chmod(0o640)
    curation.forget(root, "wheat", at_ms=AT_MS)
    assert stat.S_IMODE((root / "concepts/wheat.md").stat().st_mode) == 0o640


# --- review -----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("okf-93")
def test_a_review_changes_no_byte(root: Path) -> None:
    before = contents(root)
    found = curation.candidates(root, at_ms=AT_MS, stale_days=0)
    assert contents(root) == before
    os.utime(root / "concepts/rye.md", (0, 0))
    found = curation.candidates(root, at_ms=AT_MS, stale_days=60)
    assert [(each.id, each.reasons) for each in found] == [("concepts/rye", ["stale"])]


@pytest.mark.proves("okf-93", "okf-94")
def test_a_plan_is_done_once_and_the_second_time_only_says_so(root: Path) -> None:
    plan = "wheat archive\nconcepts/rye merge projects/rye\nconcepts/pay forget"
    steps = curation.apply_plan(root, plan, at_ms=AT_MS)
    assert [step.to_json()["result"] for step in steps] == ["applied"] * 3
    done = contents(root)
    assert "concepts/wheat.md" not in done
    assert done["archive/concepts/wheat.md"] == FILES["concepts/wheat.md"].encode()
    assert done["concepts/rye.md"].decode() == FILES["concepts/rye.md"].replace(
        "title: Rye\n", "title: Rye\nsuperseded_by: /projects/rye.md\n"
    )
    again = curation.apply_plan(root, plan, at_ms=AT_MS + 1)
    assert [step.skipped for step in again] == ["already archived", "already merged", "already deprecated"]
    assert contents(root) == done


@pytest.mark.proves("okf-93")
@pytest.mark.parametrize("bad", ["none forget", "wheat frob", "plain forget", "plain merge concepts/rye"])
def test_one_bad_line_and_nothing_is_done(root: Path, bad: str) -> None:
    write(root, {"concepts/plain.md": "# Plain\n"})
    before = contents(root)
    refusal(lambda: curation.apply_plan(root, f"concepts/rye forget\npay archive\n{bad}", at_ms=AT_MS))
    assert contents(root) == before


@pytest.mark.fault_class(43)
def test_what_the_disk_refuses_halfway_is_taken_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(root)
    rename = Path.rename

    def failing(at: Path, to: Path) -> Path:
        if at.name == "pay.md":
            raise OSError(28, "No space left on device")
        return rename(at, to)

    monkeypatch.setattr(Path, "rename", failing)
    error = refusal(lambda: curation.apply_plan(root, "concepts/rye forget\nwheat archive\npay archive", at_ms=AT_MS))
    assert error.message == "nothing was changed: No space left on device"
    assert contents(root) == before


@pytest.mark.fault_class(45)
def test_a_file_that_somebody_changed_meanwhile_is_left_alone(root: Path) -> None:
    changes = [
        FileChange("concepts/wheat.md", FILES["concepts/wheat.md"].encode(), b"mine"),
        FileChange("concepts/rye.md", b"what it was once", b"mine"),
    ]
    before = contents(root)
    assert refusal(lambda: bundle_edits.apply(root, changes)).code == "REVISION_CONFLICT"
    assert contents(root) == before


@pytest.mark.fault_class(21)
def test_no_link_is_written_through(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text(FILES["concepts/rye.md"])
    (root / "concepts" / "link.md").symlink_to(root / "concepts" / "rye.md")
    (root / "concepts" / "escape.md").symlink_to(outside)
    assert "is a link" in refusal(lambda: curation.forget(root, "link", at_ms=AT_MS)).message
    assert refusal(lambda: curation.forget(root, "escape", at_ms=AT_MS)).code == "NOT_FOUND"
    (root / "archive").symlink_to(tmp_path)
    assert "outside" in refusal(lambda: curation.apply_plan(root, "wheat archive", at_ms=AT_MS)).message
    assert outside.read_text() == FILES["concepts/rye.md"]


# --- consolidation ----------------------------------------------------------------------------------------------------


@pytest.mark.proves("okf-95")
def test_consolidation_writes_nothing_unless_told_and_then_only_its_report(root: Path) -> None:
    write(root, {"mirror/cursor/rye.md": node("Raw.")})
    before = contents(root)
    assert [group.standing for group in curation.consolidated(root, at_ms=AT_MS).groups] == ["covered"]
    assert contents(root) == before
    curation.consolidated(root, at_ms=AT_MS, write=True)
    curation.consolidated(root, at_ms=AT_MS, write=True)
    after = contents(root)
    assert set(after) - set(before) == {"inbox/_consolidation-report.md"}
    assert b"`/mirror/cursor/rye.md`" in after.pop("inbox/_consolidation-report.md")
    assert after == before


# --- the ledger -------------------------------------------------------------------------------------------------------


def event(topic: str = "van", ref: str | None = None, action: str = "drove") -> ledger.Event:
    return ledger.Event(AT_MS, "cursor", topic, "step", "ok", action, ref=ref)


@pytest.mark.proves("okf-98")
def test_an_event_of_a_known_ref_is_not_appended(root: Path) -> None:
    assert curation.append(root, event(ref="r1")) == (event(ref="r1"), False)
    assert curation.append(root, event("oven", ref="r1")) == (event(ref="r1"), True)
    assert curation.append(root, event()) == (event(), False)
    assert curation.append(root, event()) == (event(), False)
    assert curation.read_ledger(root) == [event(ref="r1"), event(), event()]


@pytest.mark.proves("okf-100")
@pytest.mark.fault_class(43)
def test_a_torn_last_line_stays_and_spoils_no_other(root: Path) -> None:
    write(root, {"ledger/events.jsonl": b'{"ts": "2026-'})
    curation.append(root, event())
    assert (root / "ledger/events.jsonl").read_bytes().startswith(b'{"ts": "2026-\n{"ts":"2026-06-01')
    assert curation.read_ledger(root) == [event()]


@pytest.mark.fault_class(44)
def test_writers_take_turns(root: Path) -> None:
    write(root, {"ledger/events.jsonl": b""})
    with ThreadPoolExecutor(1) as pool, (root / "ledger/events.jsonl").open("ab") as ours:
        fcntl.flock(ours, fcntl.LOCK_EX)
        theirs = pool.submit(curation.append, root, event(ref="r1"))
        with pytest.raises(TimeoutError):
            theirs.result(timeout=0.2)
        ours.write(orjson.dumps(event("oven", ref="r1").to_json()) + b"\n")
        ours.flush()
        fcntl.flock(ours, fcntl.LOCK_UN)
        assert theirs.result(timeout=30) == (event("oven", ref="r1"), True)
    assert curation.read_ledger(root) == [event("oven", ref="r1")]


@pytest.mark.proves("okf-76")
def test_readers_are_told_nothing_of_a_node_that_is_secret_by_its_own_word(root: Path) -> None:
    for topic, action in (("concepts/pay", "MARKER"), ("pay", "MARKER"), ("van", "read concepts/pay MARKER")):
        curation.append(root, event(topic, action=action))
    curation.append(root, event("oven"))
    assert curation.visible_ledger(root) == [event("oven")]


# --- commands ---------------------------------------------------------------------------------------------------------


def test_a_printed_review_is_a_plan_that_apply_takes(
    cli: Cli, root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(root, {"concepts/lone.md": node("Alone.")})
    assert cli("okf", "review") == 0
    plan = tmp_path / "plan"
    plan.write_text(capfd.readouterr().out)
    assert plan.read_text().splitlines()[1:] == ["# orphan", "concepts/lone\tarchive"]
    assert cli("okf", "review", "apply", "--plan", str(plan), "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert set(told) == {"kind", "generatedAt", "results"}
    assert (told["kind"], told["results"][0]["result"]) == ("review-apply", "applied")
    assert (root / "archive/concepts/lone.md").is_file()


@pytest.mark.proves("okf-34")
@pytest.mark.parametrize(
    ("line", "why"),
    [
        (("review", "apply"), "--plan"),
        (("review", "--stale-days", "x"), "--stale-days"),
        (("review", "--frob"), "--frob"),
        (("review", "a", "b"), "one directory"),
        (("review", "nowhere"), "does not exist"),
        (("forget", "none"), "does not exist"),
        (("forget", "rye"), "may be /concepts/rye.md, /projects/rye.md"),
        (("forget",), "ID"),
        (("ledger", "append", "--topic", "a", "--phase", "b", "--action", "c"), "phase: one of"),
        (("ledger", "status", "--root", "index.md"), "does not exist"),
        (("handoff", "--days", "-1"), "--days"),
    ],
)
def test_a_line_that_cannot_be_carried_out_says_why(
    cli: Cli, capfd: pytest.CaptureFixture[str], line: tuple[str, ...], why: str
) -> None:
    assert cli("okf", *line) == 1
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.startswith("Error: ")
    assert why in told.err


def test_the_ledger_is_written_and_read_on_the_command_line(
    cli: Cli, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMEMIND_AGENT", "Grok CLI!! v2")
    line = ("okf", "ledger", "append", "--topic", "van", "--phase", "fail", "--status", "fail", "--action", "flat tyre")
    assert cli(*line, "--ref", "r1") == 0
    assert cli(*line, "--ref", "r1", "--json") == 0
    told = json.loads(capfd.readouterr().out.splitlines()[1])
    assert (told["contract"], told["kind"], told["data"]["actor"]) == (1, "ledger", "grok-cli-v2")
    assert told["data"]["deduped"] is True
    assert cli("okf", "ledger", "status") == 0
    rows = capfd.readouterr().out.splitlines()
    assert rows[0].split() == ["1", "fail/fail", "van"]
    assert rows[1].startswith("open: ")
    assert cli("okf", "ledger", "read") == 2
    assert cli("okf", "ledger") == 0


def test_the_handoff_is_one_line_of_json_or_text(cli: Cli, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli("okf", "handoff", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told["kind"] == "handoff"
    assert set(told["data"]) == {"markdown", "project", "days", "sections", "warnings"}
    assert cli("okf", "handoff") == 0
    assert capfd.readouterr().out.startswith("# Handoff\n")

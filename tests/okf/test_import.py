"""A directory comes into the store as it is, once, and nothing of it that is secret."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from memoree.bundles.sync import Report, Wishes, import_bundle
from memoree.errors import Code, MemoreeError

from .golden import BUNDLE, needs_golden
from .stored import Recorder, Store, node, opened, write


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "data") as found:
        yield found


def revisions(store: Store) -> int:
    return int(store.rows("SELECT count(*) FROM artifact_revisions")[0][0])


THREE: dict[str, str | bytes] = {
    "concepts/a.md": node("Alder", "wood of the alder"),
    "concepts/b.md": node("Birch", "bark of the birch"),
    "projects/plan.md": node("Plant trees", type="Plan", status="draft"),
}


# --- what is sent -----------------------------------------------------------------------------------------------------


@needs_golden
@pytest.mark.proves("okf-106")
def test_an_unchanged_bundle_is_not_sent_again(store: Store) -> None:
    first = store.imported(BUNDLE)
    assert (first.created, first.problems, first.conflicts) == (31, {}, [])
    before, made = store.commit_seq, revisions(store)
    recorder = Recorder(store)
    again = import_bundle(BUNDLE, recorder, Wishes())
    assert recorder.commands == []
    assert again.unchanged == 31
    assert (store.commit_seq, revisions(store)) == (before, made)


@pytest.mark.proves("okf-106")
def test_editing_one_file_makes_exactly_one_revision(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", THREE)
    store.imported(root)
    before, made = store.listing(), revisions(store)
    write(root, {"concepts/a.md": node("Alder", "leaves of the alder")})
    report = store.imported(root)
    assert (report.created, report.revised, report.withdrawn) == (0, 1, 0)
    assert revisions(store) == made + 1
    after = store.listing()
    assert after["concepts/a.md"]["artifact_id"] == before["concepts/a.md"]["artifact_id"]
    assert after["concepts/a.md"]["revision_id"] != before["concepts/a.md"]["revision_id"]
    assert after["concepts/b.md"] == before["concepts/b.md"]
    assert [hit["id"] for hit in store.ask("okf.search", query="leaves")["results"]] == ["concepts/a"]


def test_a_state_that_returns_is_a_revision_like_any_other(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", THREE)
    store.imported(root)
    write(root, {"concepts/a.md": node("Alder", "other words")})
    store.imported(root)
    write(root, THREE)
    assert store.imported(root).revised == 1
    assert store.files()["concepts/a.md"] == str(THREE["concepts/a.md"]).encode()


@pytest.mark.proves("okf-107")
def test_a_deleted_file_is_withdrawn_and_its_revision_stays_readable(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", THREE)
    store.imported(root)
    was = store.listing()["concepts/b.md"]
    (root / "concepts/b.md").unlink()
    assert store.imported(root).withdrawn == 1
    assert store.ask("okf.search", query="bark birch")["results"] == []
    assert store.ask("okf.get", id="concepts/b") == {"found": False, "id": "concepts/b"}
    assert store.ask("search", query="birch")["hits"] == []
    exact = store.ask(
        "artifact.get", artifact_id=was["artifact_id"], revision_id=was["revision_id"], include_content=True
    )
    assert exact["content"]["data"] == THREE["concepts/b.md"]
    assert store.imported(root).commands == 0


def test_a_node_of_another_type_is_another_artifact_under_the_same_path(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", THREE)
    store.imported(root)
    write(root, {"concepts/a.md": node("Alder", type="Entity")})
    assert store.imported(root).created == 1
    assert store.ask("okf.get", id="a")["type"] == "Entity"
    assert store.ask("verify")["ok"] is True


def test_a_rehearsal_sends_nothing_and_tells_what_would_be(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", THREE)
    before = store.commit_seq
    report = store.imported(root, dry_run=True)
    assert (report.created, store.commit_seq) == (3, before)
    assert store.ask("okf.files") == {"files": []}


# --- relations --------------------------------------------------------------------------------------------------------


@pytest.mark.proves("okf-108")
@pytest.mark.parametrize("spelling", ["supersedes: /concepts/a.md", "relations:\n  supersedes: /concepts/a.md"])
def test_supersession_is_one_edge_however_often_it_is_said(store: Store, tmp_path: Path, spelling: str) -> None:
    new = f"---\ntype: Concept\ntitle: B\n{spelling}\n---\nnew\n"
    root = write(tmp_path / "bundle", {"concepts/a.md": node("A"), "concepts/b.md": new})
    store.imported(root)
    edge = [("concepts/b", "supersedes", "concepts/a")]
    assert store.relations() == edge
    write(root, {"concepts/a.md": node("A", superseded_by="/concepts/b.md")})
    assert store.imported(root).revised == 1
    assert store.relations() == edge
    assert store.ask("verify")["ok"] is True


@pytest.mark.proves("okf-108")
def test_superseded_by_alone_is_the_same_edge_once_its_target_exists(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", {"concepts/a.md": node("A", superseded_by="/concepts/b.md")})
    store.imported(root)
    assert store.relations() == []
    write(root, {"concepts/b.md": node("B")})
    store.imported(root)
    assert store.relations() == [("concepts/b", "supersedes", "concepts/a")]


def test_what_comes_from_something_is_derived_from_it(store: Store, tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "concepts/analysis.md": "---\ntype: Analysis\nrelations:\n  informs: /concepts/idea.md\n---\n",
        "concepts/idea.md": "---\ntype: Idea\nrelations:\n  led_to: /projects/plan.md\n---\n",
        "concepts/research.md": "---\ntype: Research\nrelations:\n  spawned_by: /concepts/analysis.md\n---\n",
        "concepts/session.md": (
            "---\ntype: Session\nrelations:\n  decided: /projects/plan.md\n  about: /concepts/idea.md\n---\n"
        ),
        "projects/plan.md": "---\ntype: Plan\nstatus: draft\nrelations:\n  informs: /projects/plan.md\n---\n",
    }
    store.imported(write(tmp_path / "bundle", files))
    assert store.relations() == [
        ("concepts/idea", "derived_from", "concepts/analysis"),
        ("concepts/research", "derived_from", "concepts/analysis"),
        ("projects/plan", "derived_from", "concepts/idea"),
        ("projects/plan", "derived_from", "concepts/session"),
    ]
    told = {orjson.loads(each)["okf_key"] for (each,) in store.rows("SELECT metadata FROM relations")}
    assert told == {"informs", "led_to", "spawned_by", "decided"}


# --- what was edited in the store -------------------------------------------------------------------------------------


def set_status(store: Store, status: str) -> None:
    revision = store.listing()["projects/task.md"]["revision_id"]
    store.tell("task.set_status", id="projects/task", status=status, if_revision=revision)


@pytest.fixture
def edited(store: Store, tmp_path: Path) -> Path:
    """A bundle whose task was changed in the store, twice."""
    root = write(tmp_path / "bundle", {**THREE, "projects/task.md": node("Dig", type="Task", status="backlog")})
    store.imported(root)
    set_status(store, "in-progress")
    set_status(store, "done")
    return root


def test_a_file_is_left_alone_that_was_edited_in_the_store(store: Store, edited: Path) -> None:
    report = store.imported(edited)
    assert (report.newer_in_store, report.conflicts, report.revised) == (["projects/task.md"], [], 0)
    assert b"status: done" in store.files()["projects/task.md"]
    assert store.imported(edited).commands == 0


def test_a_file_that_was_changed_on_both_sides_is_a_conflict_until_it_is_told_who_wins(
    store: Store, edited: Path
) -> None:
    write(edited, {"projects/task.md": node("Dig deep", type="Task", status="backlog")})
    report = store.imported(edited)
    assert (report.conflicts, report.is_complete) == (["projects/task.md"], False)
    assert b"status: done" in store.files()["projects/task.md"]
    assert store.ask("okf.files")["bundle"]["health"] == "degraded"
    assert store.imported(edited, overwrite=True).revised == 1
    assert store.files()["projects/task.md"] == (edited / "projects/task.md").read_bytes()
    assert store.imported(edited).is_complete


def test_a_deleted_file_that_was_edited_in_the_store_stays_there(store: Store, edited: Path) -> None:
    (edited / "projects/task.md").unlink()
    assert store.imported(edited).withdrawn == 0
    assert b"status: done" in store.files()["projects/task.md"]


# --- what never leaves ------------------------------------------------------------------------------------------------

MARKER = "xylophone-velvet"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("secret/key.md", node("Key", MARKER)),
        ("concepts/secret/key.md", node("Key", MARKER)),
        ("concepts/key.md", node("Key", MARKER, visibility="secret")),
        ("concepts/key.md", node("Key", MARKER, visibility="Secret # for now")),
        ("concepts/key.md", node("Key", MARKER, visibility="private")),
        ("concepts/key.md", node("Key", MARKER, visibility="secret").replace("\n", "\r\n")),
        ("concepts/key.md", f"---\ntype: [Concept\nvisibility: internal\n {MARKER}\n---\n{MARKER}\n"),
        ("inbox/agent.md", node("Note", MARKER)),
        ("mirror/engine/memory.md", node("Memory", MARKER)),
    ],
)
def test_secrets_mirrors_and_the_inbox_stay_where_they_are(store: Store, tmp_path: Path, path: str, text: str) -> None:
    root = write(tmp_path / "bundle", {**THREE, path: text})
    recorder = Recorder(store)
    import_bundle(root, recorder, Wishes())
    assert MARKER.encode() not in orjson.dumps([command.input for command in recorder.commands])
    assert sorted(store.files()) == sorted(THREE)


def test_a_file_that_becomes_secret_is_withdrawn(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", THREE)
    store.imported(root)
    write(root, {"concepts/a.md": node("Alder", visibility="secret")})
    report = store.imported(root)
    assert (report.withdrawn, report.secrets) == (1, 1)
    assert sorted(store.files()) == ["concepts/b.md", "projects/plan.md"]
    assert store.imported(root).commands == 0


def test_a_secret_does_not_take_away_what_was_made_in_the_store_under_its_path(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", THREE)
    store.imported(root)
    text = node("Shed")
    entry = store.tell("inbox.put", content="the shed is locked", actor="agent")["entry_id"]
    store.tell("inbox.promote", entry_id=entry, path="concepts/shed", content=text, approved_by="owner")
    write(root, {"concepts/shed.md": node("Shed", visibility="secret")})
    report = store.imported(root)
    assert (report.conflicts, report.withdrawn, report.is_complete) == (["concepts/shed.md"], 0, False)
    assert store.files()["concepts/shed.md"] == text.encode()


def test_an_event_about_a_secret_stays_too(store: Store, tmp_path: Path) -> None:
    event = {"ts": "2026-05-01T00:00:00Z", "phase": "step", "status": "ok", "action": "looked", "actor": "me"}
    topics = ("concepts/a", "concepts/key", "secret/other", "deep/secret/third")
    lines = b"".join(orjson.dumps({**event, "topic": topic}) + b"\n" for topic in topics) + b"{corrupt\n"
    hidden = node("Key", visibility="secret")
    root = write(tmp_path / "bundle", {**THREE, "concepts/key.md": hidden, "ledger/events.jsonl": lines})
    assert store.imported(root).ledger_events == 1
    assert [topic["topic"] for topic in store.ask("ledger.status")["topics"]] == ["concepts/a"]


def test_only_new_lines_of_the_ledger_are_sent(store: Store, tmp_path: Path) -> None:
    def line(at: int) -> bytes:
        event = {"ts": f"2026-05-01T00:00:{at:02}Z", "topic": "concepts/a", "phase": "step", "action": f"step {at}"}
        return orjson.dumps(event) + b"\n"

    root = write(tmp_path / "bundle", {**THREE, "ledger/events.jsonl": line(1) + line(2)})
    assert store.imported(root).ledger_events == 2
    write(root, {"ledger/events.jsonl": line(1) + line(2) + line(3) + b'{"ts": "2026-05-01'})
    recorder = Recorder(store)
    import_bundle(root, recorder, Wishes())
    assert [c.input["action"] for c in recorder.commands if c.op == "ledger.append"] == ["step 3"]
    events = store.ask("ledger.read", topic="concepts/a")["events"]
    assert [event["ts"] for event in events] == [f"2026-05-01T00:00:0{at}.000Z" for at in (1, 2, 3)]


# --- hostile directories ----------------------------------------------------------------------------------------------


def test_a_link_out_of_the_bundle_is_not_read(store: Store, tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text(node("Outside", MARKER))
    root = write(tmp_path / "bundle", THREE)
    (root / "concepts/link.md").symlink_to(tmp_path / "outside.md")
    (root / "folder").symlink_to(tmp_path)
    report = store.imported(root)
    assert sorted(report.problems) == ["concepts/link.md", "folder"]
    assert sorted(store.files()) == sorted(THREE)


def test_odd_files_break_none_of_the_others(store: Store, tmp_path: Path) -> None:
    odd: dict[str, str | bytes] = {
        "concepts/broken.md": b"no front matter at all, \xff\xfe",
        "concepts/empty.md": b"",
        "concepts/crlf.md": node("Line ends").replace("\n", "\r\n"),
        "concepts/bom.md": b"\xef\xbb\xbf" + node("Mark").encode(),
        "concepts/nul.md": b"---\ntype: Concept\n---\na\0b\n",
        "concepts/long.md": node("Long", "word " * 100_000),
        "concepts/две.md": node("Две"),
        "concepts/line\nbreak.md": node("Break"),
        "concepts/type.md": node("Type", type="x" * 300),
        f"concepts/{'n' * 251}.md": node("Name"),
    }
    root = write(tmp_path / "bundle", {**THREE, **odd})
    (root / "concepts/large.md").write_bytes(b"x" * (2 * 1024 * 1024 + 1))
    report = store.imported(root)
    assert sorted(report.problems) == ["concepts/large.md", "concepts/line\nbreak.md"]
    expected = {**THREE, **odd}
    del expected["concepts/line\nbreak.md"]
    assert store.files() == {path: data.encode() if isinstance(data, str) else data for path, data in expected.items()}
    assert store.ask("verify")["ok"] is True
    assert store.imported(root).commands == 0


def test_what_cannot_be_read_is_not_taken_for_gone(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", THREE)
    store.imported(root)
    (root / "concepts/a.md").unlink()
    (root / "concepts/a.md").symlink_to(tmp_path / "nowhere.md")
    (root / "projects/plan.md").write_bytes(b"x" * (2 * 1024 * 1024 + 1))
    report = store.imported(root)
    assert (report.withdrawn, sorted(store.files())) == (0, sorted(THREE))
    assert sorted(report.problems) == ["concepts/a.md", "projects/plan.md"]


def test_an_empty_directory_withdraws_nothing_unless_it_is_meant(store: Store, tmp_path: Path) -> None:
    store.imported(write(tmp_path / "bundle", THREE))
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(MemoreeError, match="has none of the 3 files") as refused:
        store.imported(other)
    assert refused.value.code is Code.CONFIG_ERROR
    assert sorted(store.files()) == sorted(THREE)
    assert store.imported(other, allow_empty=True).withdrawn == 3


def test_a_project_has_one_bundle(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", THREE)
    assert store.imported(root, bundle="trees").bundle == "okf:trees"
    with pytest.raises(MemoreeError, match="the project has the bundle 'okf:trees'"):
        store.imported(root, bundle="woods")
    assert store.imported(root).unchanged == 3


def test_a_missing_directory_is_an_error(store: Store, tmp_path: Path) -> None:
    with pytest.raises(MemoreeError, match="does not exist"):
        store.imported(tmp_path / "nowhere")


# --- at once, killed, many --------------------------------------------------------------------------------------------


def many(root: Path, count: int) -> Path:
    """Nodes that each replace the one before."""
    files: dict[str, str | bytes] = {
        f"concepts/n{at:04}.md": node(f"Node {at}", f"word{at} text", supersedes=f"/concepts/n{at - 1:04}.md")
        for at in range(count)
    }
    return write(root, files)


def test_two_imports_at_once_leave_what_one_would(tmp_path: Path) -> None:
    root = many(tmp_path / "bundle", 120)
    reports: list[Report | BaseException] = []

    def run() -> None:
        try:
            with opened(tmp_path / "data") as store:
                reports.append(store.imported(root))
        except BaseException as error:
            reports.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(report) for report in reports] == [Report, Report], reports
    with opened(tmp_path / "data") as store:
        assert len(store.files()) == 120
        assert len(store.relations()) == 119
        assert revisions(store) == 120
        store.imported(root)
        assert store.imported(root).commands == 0
        assert store.ask("verify")["ok"] is True


KILLED = """
import sys
from pathlib import Path
from memoree.client import batches
from memoree.bundles import sync
sync.BATCH_REQUESTS_MAX = 10
sys.path.insert(0, {tests!r})
from tests.okf.stored import opened
with opened(Path({data!r})) as store:
    told = store.door.tell
    def tell(commands):
        print(len(commands), flush=True)
        return told(commands)
    store.door.tell = tell
    store.imported(Path({root!r}))
"""


@pytest.mark.fault_class(12)
@pytest.mark.parametrize("batches", [2, 7, 16])
def test_an_import_that_was_killed_is_completed_by_the_next(tmp_path: Path, batches: int) -> None:
    root, data = many(tmp_path / "bundle", 100), tmp_path / "data"
    script = textwrap.dedent(KILLED).format(tests=str(Path(__file__).parents[2]), data=str(data), root=str(root))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(batches):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    with opened(data) as store:
        before = len(store.listing())
        assert before < 100 or len(store.rows("SELECT 1 FROM relations")) < 99
        store.imported(root)
        assert store.files() == {f"concepts/{file.name}": file.read_bytes() for file in (root / "concepts").iterdir()}
        assert len(store.relations()) == 99
        assert revisions(store) == 100
        assert store.imported(root).commands == 0


MEASURED = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tests.okf.stored import opened
with opened(Path({data!r})) as store:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = store.imported(Path({root!r}))
    assert report.created == {count}, report
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
MEMORY_MIB_MAX = 160


def test_thousands_of_files_need_no_more_memory_than_some_batches(tmp_path: Path) -> None:
    count = 3000
    text = "some words of a node that say little and take room " * 160
    files: dict[str, str | bytes] = {f"concepts/n{at}.md": node(f"Node {at}", text) for at in range(count)}
    root = write(tmp_path / "bundle", files)
    script = textwrap.dedent(MEASURED).format(
        tests=str(Path(__file__).parents[2]), data=str(tmp_path / "data"), root=str(root), count=count
    )
    began = time.monotonic()
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < MEMORY_MIB_MAX, f"{found.stdout} MiB in {time.monotonic() - began:.0f} s"


# --- what was decided in the store ------------------------------------------------------------------------------------


def test_a_node_that_was_archived_in_the_store_stays_archived(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", {**THREE, "concepts/old.md": node("Old", deprecated="true")})
    store.imported(root)
    store.tell("review.apply", plan="concepts/old archive\n", approved_by="curator")
    report = store.imported(root)
    assert (report.newer_in_store, report.created, report.withdrawn) == (["concepts/old.md"], 0, 0)
    assert sorted(store.listing()) == ["archive/concepts/old.md", *sorted(THREE)]
    write(root, {"concepts/old.md": node("Old", "changed here")})
    assert store.imported(root).conflicts == ["concepts/old.md"]
    (root / "archive/concepts").mkdir(parents=True)
    (root / "archive/concepts/old.md").write_bytes(store.files()["archive/concepts/old.md"])
    (root / "concepts/old.md").unlink()
    assert (store.imported(root).is_complete, store.imported(root).commands) == (True, 0)


def test_a_node_that_was_forgotten_is_not_brought_back(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", THREE)
    store.imported(root)
    store.tell("artifact.forget", artifact_id=store.listing()["concepts/a.md"]["artifact_id"], reason="asked to")
    write(root, {"concepts/b.md": node("Birch", "changed")})
    report = store.imported(root)
    assert (report.revised, list(report.problems)) == (1, ["concepts/a.md"])
    assert "was forgotten" in report.problems["concepts/a.md"]
    assert sorted(store.listing()) == ["concepts/b.md", "projects/plan.md"]


def test_a_node_that_was_made_in_the_store_is_not_taken_for_a_deleted_file(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", THREE)
    store.imported(root)
    entry = store.tell("inbox.put", content="from the inbox", actor="helper")
    made = {"entry_id": entry["entry_id"], "path": "concepts/new.md", "approved_by": "curator"}
    store.tell("inbox.promote", **made, content=node("New", "from the inbox"))
    assert store.imported(root).withdrawn == 0
    assert "concepts/new.md" in store.listing()
    write(root, {"concepts/new.md": node("New", "another one")})
    assert store.imported(root).conflicts == ["concepts/new.md"]

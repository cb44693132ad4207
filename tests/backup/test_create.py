"""A backup is whole or is none: database and blobs of one commit, whatever happens while it is made."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from memoree.backup import record
from memoree.backup.record import BackupRecord
from memoree.database import meta
from memoree.database.connection import open_reader
from memoree.database.meta import Meta
from memoree.errors import Code, MemoreeError
from memoree.jobs import backup
from memoree.objects import PreconditionFailed, StoreUnavailable
from memoree.objects.audit import BlobRef
from memoree.objects.blobs import blob_digest, blob_key
from memoree.objects.filesystem import FilesystemStore
from mixed_mutations import BLOBS, LONG_TEXT

from .workshop import Workshop

MIB = 1024 * 1024
CHILD_SECONDS_MAX = 600.0
MEMORY_MIB_MAX = 256
"""Of the whole process, whatever the size of the database (field fault 54)."""

BACKED_UP_WITH_LITTLE_MEMORY = """
import sys
from pathlib import Path
from backup.workshop import Workshop

workshop = Workshop(Path(sys.argv[1]))
made = workshop.back_up()
checked = workshop.verify(made.backup_id)
[peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
print(made.checkpoint.size, int(checked.drill == "same"), peak.split()[1])
"""
"""The peak since this program began: `getrusage` counts what its parent had too."""
KILLED = """
import os, signal, sys
from pathlib import Path
from backup.workshop import Workshop

def kill(step):
    if step.startswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

Workshop(Path(sys.argv[1])).back_up(progress=kill)
"""


def fetched(workshop: Workshop, made: BackupRecord, path: Path) -> apsw.Connection:
    asyncio.run(record.fetch_checkpoint(workshop.store, made, path))
    return open_reader(path, immutable=True)


async def refs_of(workshop: Workshop, made: BackupRecord) -> list[BlobRef]:
    return [ref async for ref in record.manifest_refs(workshop.store, made)]


def refused(workshop: Workshop) -> MemoreeError:
    with pytest.raises(MemoreeError) as refusal:
        workshop.back_up()
    return refusal.value


@pytest.mark.proves("machine-216", "operations-17")
def test_a_backup_holds_one_commit_and_exactly_the_blobs_of_it(filled: Workshop, tmp_path: Path) -> None:
    made = filled.back_up()
    with closing(fetched(filled, made, tmp_path / "copy.db")) as db:
        found = meta.read(db)
    assert (found.commit_seq, found.batch, found.hlc, found.history, found.epoch, found.integrity.hex()) == (
        (made.commit_seq, made.batch, made.hlc, made.history, made.epoch, made.integrity)
    )
    digest = blob_digest(LONG_TEXT.encode())
    assert asyncio.run(refs_of(filled, made)) == [BlobRef(bytes.fromhex(digest), len(LONG_TEXT.encode()))]
    assert (made.manifest.blobs, made.manifest.bytes) == (BLOBS, len(LONG_TEXT.encode()))
    assert list(filled.scratch.iterdir()) == []


@pytest.mark.proves("operations-17")
def test_what_is_committed_after_the_copy_is_in_neither_part(filled: Workshop, tmp_path: Path) -> None:
    """The manifest is made from the copy, not from the tenant as it is by then."""
    filled.copied = lambda: filled.put(LONG_TEXT + "and one more\n") and None
    before = filled.bench.db.execute("SELECT commit_seq FROM meta").fetchall()[0][0]
    made = filled.back_up()
    assert (made.commit_seq, made.manifest.blobs, len(filled.blob_keys())) == (before, BLOBS, BLOBS + 1)
    assert filled.verify(made.backup_id).ok


def test_writers_commit_while_a_backup_copies_the_database(filled: Workshop) -> None:
    committed = []
    filled.copied = lambda: committed.append(filled.put("during the backup")["commit_seq"])
    made = filled.back_up()
    assert committed == [made.commit_seq + 1]


@pytest.mark.proves("operations-18")
def test_the_intent_comes_before_the_snapshot_and_the_record_last(
    filled: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    steps: list[str] = []
    snapshot = filled.snapshot

    async def noted(work: Callable[[apsw.Connection], Any]) -> tuple[Any, Meta]:
        seen.append({key.rpartition("/")[2] for key in filled.backup_keys()})
        return await snapshot(work)

    monkeypatch.setattr(filled, "snapshot", noted)

    def note(step: str) -> None:
        if step == "publishing it":
            seen.append({key.rpartition("/")[2] for key in filled.backup_keys()})
        steps.append(step)

    filled.back_up(progress=note)
    assert seen == [{"intent.json"}, {"intent.json", "checkpoint.db.zst", "manifest.jsonl.zst"}]
    assert steps[0] == "copying the database" and steps[-1] == "publishing it"


@pytest.mark.proves("machine-215", "operations-19")
@pytest.mark.parametrize("how", ["missing", "cut short"])
def test_a_blob_that_is_not_whole_fails_the_backup_which_leaves_nothing(filled: Workshop, how: str) -> None:
    (blob,) = filled.blob_keys()
    filled.path(blob).unlink() if how == "missing" else os.truncate(filled.path(blob), 100)
    error = refused(filled)
    assert error.code is Code.INTEGRITY_ERROR and blob.rpartition("/")[2] in error.message
    assert (filled.backup_keys(), list(filled.scratch.iterdir())) == ([], [])


@pytest.mark.proves("machine-215", "operations-19")
def test_a_blob_that_goes_while_the_backup_is_made_is_noticed_before_it_is_published(filled: Workshop) -> None:
    (blob,) = filled.blob_keys()

    def lose(step: str) -> None:
        if step.startswith("proving"):  # when everything is stored
            filled.path(blob).unlink()

    with pytest.raises(MemoreeError, match=f"{blob.rpartition('/')[2]} is missing"):
        filled.back_up(progress=lose)
    assert filled.backup_keys() == []


@pytest.mark.proves("machine-215", "operations-19")
def test_a_damaged_blob_is_found_by_reading_all_of_them(workshop: Workshop) -> None:
    texts = [f"{LONG_TEXT}{number}" for number in range(12)]  # more than a sample
    for text in texts:
        workshop.put(text)
    for text in texts:
        path = workshop.path(blob_key(workshop.tenant, blob_digest(text.encode())))
        path.write_bytes(path.read_bytes().replace(b"celadon", b"Celadon", 1))
        with pytest.raises(MemoreeError, match=path.name):
            workshop.back_up(full=True)
        path.write_bytes(text.encode())
    assert workshop.back_up(full=True).manifest.blobs == len(texts)


@pytest.mark.proves("machine-215", "operations-19")
def test_a_few_blobs_are_read_also_without_being_asked_to(filled: Workshop) -> None:
    (blob,) = filled.blob_keys()
    filled.path(blob).write_bytes(filled.path(blob).read_bytes().replace(b"celadon", b"Celadon", 1))
    assert "digest mismatch" in refused(filled).message


@pytest.mark.proves("machine-215")
def test_a_database_that_does_not_add_up_is_not_backed_up(filled: Workshop) -> None:
    """The integrity sum is made anew over the copy: a row made behind the writer's back is in no backup."""
    filled.bench.db.execute("INSERT INTO condemned_blobs VALUES (randomblob(32), '2026-03-02T20:41:07Z', 1)")
    error = refused(filled)
    assert error.code is Code.INTEGRITY_ERROR and "add up" in error.message
    assert filled.backup_keys() == []


@pytest.mark.proves("operations-17")
def test_a_copy_of_another_state_than_the_snapshot_is_not_published(
    filled: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    truthful = filled.snapshot

    async def lying(work: Callable[[apsw.Connection], Any]) -> tuple[Any, Meta]:
        found, seen = await truthful(work)
        return found, replace(seen, batch=seen.batch + 1)

    monkeypatch.setattr(filled, "snapshot", lying)
    assert "the snapshot at" in refused(filled).message
    assert filled.backup_keys() == []


@pytest.mark.proves("machine-215")
def test_a_backup_is_given_up_when_its_intent_is_gone(filled: Workshop) -> None:
    filled.copied = lambda: [filled.path(key).unlink() for key in filled.backup_keys()] and None
    error = refused(filled)
    assert error.code is Code.CONFIG_ERROR and "intent was removed" in error.message
    assert filled.backup_keys() == []


@pytest.mark.proves("machine-215")
@pytest.mark.parametrize(("hours", "made"), [(11.9, True), (12.1, False)])
def test_a_backup_that_takes_half_a_day_is_given_up(filled: Workshop, hours: float, made: bool) -> None:
    filled.copied = lambda: [filled.age(key, hours=hours) for key in filled.backup_keys()] and None
    if made:
        filled.back_up()
    else:
        assert "12 hours" in refused(filled).message
    assert len(filled.backup_keys()) == (4 if made else 0)


@pytest.mark.proves("machine-214", "operations-18")
def test_a_backup_replaces_nothing(filled: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    made = filled.back_up()
    monkeypatch.setattr(backup, "new_backup_id", lambda: made.backup_id)
    filled.put("more")
    with pytest.raises(PreconditionFailed):
        filled.back_up()
    assert filled.verify(made.backup_id).faults == []


@pytest.mark.proves("operations-18")
def test_a_record_that_is_there_already_is_left_as_it_is(filled: Workshop) -> None:
    """Whoever has written it: what was published once never changes."""
    records = []

    def publish(step: str) -> None:
        if step == "publishing it":
            (intent,) = (key for key in filled.backup_keys() if key.endswith("intent.json"))
            records.append(filled.path(intent).with_name("backup.json"))
            records[0].write_bytes(b"of another run")

    with pytest.raises(MemoreeError, match="of another run") as refusal:
        filled.back_up(progress=publish)
    assert refusal.value.code is Code.CONFIG_ERROR
    assert records[0].read_bytes() == b"of another run"


class Forgetful(FilesystemStore):
    """Writes the record and loses the answer; or loses the request, the first time."""

    def __init__(self, root: Path, *, applied: bool) -> None:
        super().__init__(root)
        self.applied = applied
        self.lost = 0

    async def put(self, key: str, body: bytes, **how: object) -> str:
        if key.endswith("backup.json") and not self.lost:
            self.lost += 1
            if self.applied:
                await super().put(key, body, **how)  # type: ignore[arg-type]
            raise StoreUnavailable("no answer")
        return await super().put(key, body, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_answer_to_the_publication_is_found_out(
    filled: Workshop, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    monkeypatch.setattr(backup, "PUBLISH_RETRY_SECONDS", 0.0)
    filled.store = Forgetful(filled.store.root, applied=applied)
    made = filled.back_up()
    assert filled.store.lost == 1
    assert filled.verify(made.backup_id).ok


@pytest.mark.proves("machine-215", "operations-18")
@pytest.mark.parametrize("step", ["looking", "proving", "publishing"])
def test_a_killed_backup_is_no_backup_and_keeps_its_intent(filled: Workshop, step: str) -> None:
    run = run_child(KILLED, filled, step)
    assert run.returncode == -signal.SIGKILL, run.stderr
    (left,) = asyncio.run(record.intents(filled.store, filled.tenant))
    assert not left.published and left.age.total_seconds() < 60
    assert asyncio.run(record.records(filled.store, filled.tenant)) == []
    (fault,) = filled.verify(left.backup_id).faults
    assert fault.object.endswith(f"{left.backup_id}/backup.json") and "never published" in fault.detail


@pytest.mark.proves("fault-54", "operations-20")
def test_a_backup_and_its_verification_need_little_memory_for_a_large_database(filled: Workshop) -> None:
    done = memory_needed(filled, database_mib=200)
    assert done < MEMORY_MIB_MAX


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.fault_class(54)
def test_a_backup_of_two_gigabytes_needs_no_more(filled: Workshop) -> None:
    assert memory_needed(filled, database_mib=2048) < MEMORY_MIB_MAX


def memory_needed(workshop: Workshop, *, database_mib: int) -> int:
    """MiB at the most, of a process that backs up a database of that size and verifies the backup."""
    db = workshop.bench.db
    db.execute("BEGIN")
    for number in range(database_mib):
        db.execute(
            "INSERT INTO attempts VALUES (?, 'refused', 'INVALID_REQUEST', CAST(? AS TEXT), NULL, 0, 1)",
            (f"att_{number:026}", os.urandom(MIB // 2).hex()),
        )
    db.execute("COMMIT")
    run = run_child(BACKED_UP_WITH_LITTLE_MEMORY, workshop)
    assert run.returncode == 0, run.stderr
    size, same, kib = map(int, run.stdout.split())
    assert size > database_mib * MIB and same
    return kib // 1024


def run_child(code: str, workshop: Workshop, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, str(workshop.database.parent), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS_MAX,
    )

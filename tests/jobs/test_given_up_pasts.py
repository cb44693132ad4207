"""Garbage collection of what was erased, where a restore gave up a past that has it for something else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from memoree import erasures, limits
from memoree.backup.record import BackupRecord
from memoree.database import events
from memoree.erasures import Erasure
from memoree.jobs import gc
from memoree.jobs.backup_check import verify

from .kiln import TENANT, Kiln

DAYS_4 = 4 * 24 * 3600.0


@pytest.fixture
def kiln(tmp_path: Path) -> Iterator[Kiln]:
    made = Kiln(tmp_path)
    yield made
    made.bench.close()


def back_up_in_another_history(kiln: Kiln) -> BackupRecord:
    """The one that a restore is going to give up; which of the two has which number is all one."""
    kiln.bench.db.execute("UPDATE meta SET history = history + 1")
    made = kiln.back_up()
    kiln.bench.db.execute("UPDATE meta SET history = history - 1")
    return made


def give_up(kiln: Kiln, artifact_id: str) -> None:
    """As a restore does: the present has not got the artifact, and another past has."""
    db = kiln.bench.db
    rest = kiln.bench.claim()["commit_seq"]
    db.execute("UPDATE meta SET erasing = 1")
    db.execute("UPDATE events SET operation = ? WHERE commit_seq = ?", (events.RESTORED, rest))
    db.execute(
        "UPDATE artifact_revisions SET body = x'' WHERE artifact_row = (SELECT row_id FROM artifacts"
        " WHERE artifact_id = ?)",
        (artifact_id,),
    )
    db.execute("UPDATE meta SET erasing = 0")


def erase(kiln: Kiln, artifact_id: str) -> int:
    """How many blobs that condemned."""
    return int(kiln.command("store.erase", {"entities": [artifact_id], "reason": "asked for"})["blobs"])


def collect_later(kiln: Kiln, **duration: float) -> gc.Collection:
    kiln.clock.advance(**duration)
    return kiln.collect()


@pytest.mark.proves("operations-36", "operations-38")
def test_a_backup_of_a_given_up_past_keeps_a_blob_that_something_else_in_it_cites(kiln: Kiln) -> None:
    """Until that is erased too. Meanwhile the blob is no longer condemned: its content may be stored again."""
    one, other = kiln.cite("shared"), kiln.cite("shared")
    (blob,) = kiln.cited()
    backup = back_up_in_another_history(kiln)
    give_up(kiln, other["artifact_id"])
    kiln.clock.advance(seconds=DAYS_4)
    assert erase(kiln, one["artifact_id"]) == 1
    assert kiln.collect().deletes.removed == 0
    report = collect_later(kiln, seconds=limits.COLLECT_RELEASE_SECONDS_MIN)
    assert (report.deletes.removed, report.released, kiln.condemned()) == (0, 1, set())
    assert collect_later(kiln, seconds=DAYS_4).deletes.removed == 0
    checked = asyncio.run(verify(kiln.store, TENANT, backup.backup_id, kiln.scratch))  # type: ignore[arg-type]
    assert checked.faults == [] and kiln.has(blob)

    last = Erasure("ers_1", backup.created_at, backup.commit_seq + 9, (other["artifact_id"],), ())
    asyncio.run(erasures.record(kiln.store, TENANT, last))  # type: ignore[arg-type]
    assert kiln.collect().deletes.removed == 1
    checked = asyncio.run(verify(kiln.store, TENANT, backup.backup_id, kiln.scratch))  # type: ignore[arg-type]
    assert checked.faults == [] and not kiln.has(blob)


@pytest.mark.proves("operations-14")
def test_a_backup_of_a_given_up_past_does_not_keep_what_it_cites_only_from_what_was_erased(kiln: Kiln) -> None:
    one = kiln.cite("secret")
    (blob,) = kiln.cited()
    back_up_in_another_history(kiln)
    give_up(kiln, kiln.cite("else")["artifact_id"])
    kiln.clock.advance(seconds=DAYS_4)
    assert erase(kiln, one["artifact_id"]) == 1
    kiln.collect()
    assert not kiln.has(blob)


@pytest.mark.proves("operations-36", "operations-38")
@pytest.mark.parametrize("at_once", [True, False])
def test_an_erased_blob_stays_as_long_as_a_given_up_past_can_be_restored(kiln: Kiln, at_once: bool) -> None:
    one, other = kiln.cite("shared"), kiln.cite("shared")
    (blob,) = kiln.cited()
    give_up(kiln, other["artifact_id"])
    assert erase(kiln, one["artifact_id"]) == 1
    report = asyncio.run(gc.collect_erased(kiln)) if at_once else collect_later(kiln, hours=3)
    assert report.waits_for is not None and "restore" in report.waits_for
    assert (report.deletes.removed, report.deletes.failed, kiln.has(blob)) == (0, 0, True)
    assert collect_later(kiln, hours=60).waits_for is not None
    assert (kiln.has(blob), kiln.condemned()) == (True, set())
    assert collect_later(kiln, seconds=DAYS_4).deletes.removed == 1


@pytest.mark.proves("operations-12")
def test_what_an_erasure_condemned_is_on_record_before_anything_of_it_is_collected(kiln: Kiln) -> None:
    """Whoever broke off before: later it is told from other garbage by that alone."""
    one = kiln.cite("secret")
    (blob,) = kiln.cited()
    erase(kiln, one["artifact_id"])
    kiln.collect()
    found = asyncio.run(erasures.recorded(kiln.store, TENANT))  # type: ignore[arg-type]
    assert [(entry.entities, entry.blobs) for entry in found] == [((one["artifact_id"],), (blob,))]

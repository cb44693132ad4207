"""Garbage collection of blobs: nothing a row cites is ever gone (W5), and nothing else stays for ever."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from memoree import clock, limits
from memoree.backup.record import INTENT_NAME, new_backup_id
from memoree.database import condemned, integrity
from memoree.database.condemned import Condemned
from memoree.errors import MemoreeError
from memoree.objects import ObjectInfo
from memoree.objects.blobs import blob_key
from memoree.replication import layout

from .kiln import LARGE, TENANT, Killed, Kiln, elsewhere

DAYS_4 = 4 * 24 * 3600.0
MANY = 200_000


@pytest.fixture
def kiln(tmp_path: Path) -> Iterator[Kiln]:
    made = Kiln(tmp_path)
    yield made
    made.bench.close()


def test_a_blob_that_nothing_holds_is_deleted_once_it_is_old(kiln: Kiln) -> None:
    kiln.cite("kept")
    garbage = kiln.orphan("left")
    kiln.clock.advance(seconds=DAYS_4)
    assert kiln.collect().deletes.removed == 1
    assert kiln.blobs() == kiln.cited() != {garbage}


@pytest.mark.proves("operations-36")
@pytest.mark.parametrize(("age_hours", "window_hours", "stays"), [(23, 0, True), (25, 0, False), (71, 72, True)])
def test_a_blob_is_kept_for_a_day_and_for_the_point_in_time_window(
    kiln: Kiln, age_hours: float, window_hours: float, stays: bool
) -> None:
    blob = kiln.orphan("young")
    kiln.clock.advance(hours=age_hours)
    kiln.collect(unused_seconds=0, point_in_time_seconds=window_hours * 3600)
    assert kiln.has(blob) is stays


@pytest.mark.proves("operations-35", "operations-38")
def test_a_condemned_blob_can_be_cited_again_once_no_delete_can_be_on_its_way(kiln: Kiln) -> None:
    kiln.orphan("once more")
    kiln.clock.advance(seconds=DAYS_4)
    assert kiln.collect().condemned == 1
    with pytest.raises(MemoreeError) as refused:
        kiln.cite("once more")
    assert refused.value.details["reason"] == "digest_condemned"
    assert refused.value.retryable
    assert refused.value.retry_after_seconds == limits.COLLECT_RELEASE_SECONDS_MIN
    kiln.clock.advance(seconds=limits.COLLECT_RELEASE_SECONDS_MIN)
    report = kiln.collect()
    assert (report.released, report.condemned) == (1, 0)
    kiln.cite("once more")
    assert kiln.cited() == kiln.blobs()


@pytest.mark.proves("operations-34", "operations-37")
def test_a_delete_that_comes_minutes_late_takes_nothing_that_is_cited(kiln: Kiln) -> None:
    blob = kiln.orphan("late")
    kiln.clock.advance(seconds=DAYS_4)
    kiln.store.deletes = ["late"]
    report = kiln.collect()
    assert (report.deletes.removed, report.deletes.failed) == (0, 1)
    assert blob in next(iter(report.deletes.failures))
    kiln.clock.advance(seconds=limits.COLLECT_RELEASE_SECONDS_MIN - 60)
    kiln.collect()
    with pytest.raises(MemoreeError):
        kiln.cite("late")
    kiln.clock.advance(seconds=60)
    kiln.collect(unused_seconds=10 * DAYS_4)
    kiln.cite("late")
    kiln.store.obey_late_deletes()
    assert kiln.cited() == {blob} <= kiln.blobs()


@pytest.mark.proves("operations-37")
def test_no_delete_is_sent_long_after_the_blob_was_condemned(kiln: Kiln) -> None:
    blob = kiln.orphan("slow")
    kiln.clock.advance(seconds=DAYS_4)

    def stall(what: str) -> None:
        if what.startswith("HEAD"):
            kiln.clock.advance(seconds=limits.COLLECT_SEND_SECONDS_MAX + 1)

    kiln.before_step = stall
    report = kiln.collect()
    assert kiln.has(blob)
    assert "too long ago" in report.deletes.failures[next(iter(report.deletes.failures))]


@pytest.mark.proves("operations-37")
def test_a_delete_that_a_stopped_process_sends_late_has_expired(kiln: Kiln) -> None:
    blob = kiln.orphan("frozen")
    kiln.clock.advance(seconds=DAYS_4)

    def freeze(what: str) -> None:
        if what.startswith("SEND"):
            kiln.clock.advance(seconds=limits.COLLECT_DELETE_EXPIRES_SECONDS + 1)

    kiln.before_step = freeze
    kiln.collect()
    assert kiln.has(blob)


@pytest.mark.proves("operations-36")
def test_a_blob_written_anew_before_it_was_deleted_is_kept_and_may_be_cited_at_once(kiln: Kiln) -> None:
    kiln.orphan("again")
    kiln.clock.advance(seconds=DAYS_4)

    def write_anew(what: str) -> None:
        if what == "before blobs.condemn":
            kiln.orphan("again")

    kiln.before_step = write_anew
    report = kiln.collect()
    kiln.before_step = lambda _: None
    assert (report.deletes.removed, report.kept, report.condemned) == (0, 1, 0)
    kiln.cite("again")
    assert kiln.cited() == kiln.blobs()


@pytest.mark.proves("operations-36")
def test_a_blob_cited_before_it_was_condemned_is_not_condemned(kiln: Kiln) -> None:
    kiln.orphan("just in time")
    kiln.clock.advance(seconds=DAYS_4)

    def cite(what: str) -> None:
        if what == "before blobs.condemn":
            kiln.before_step = lambda _: None
            kiln.cite_what_is_there("just in time")

    kiln.before_step = cite
    report = kiln.collect()
    assert (report.deletes.removed, report.condemned) == (0, 0)
    assert kiln.cited() == kiln.blobs()


@pytest.mark.proves("operations-34")
@pytest.mark.parametrize("change", ["DELETE FROM condemned_blobs", "UPDATE meta SET history = history + 1"])
def test_no_delete_is_sent_of_a_blob_that_is_no_longer_condemned_as_it_was(kiln: Kiln, change: str) -> None:
    blob = kiln.orphan("of two histories")
    kiln.clock.advance(seconds=DAYS_4)

    def restore(what: str) -> None:
        if what.startswith("HEAD"):
            kiln.before_step = lambda _: None
            kiln.bench.db.execute(change)

    kiln.before_step = restore
    report = kiln.collect()
    assert kiln.has(blob)
    assert "no longer condemned" in next(iter(report.deletes.failures.values()))


# --- backups, restores, erasures ------------------------------------------------------------------------------------


@pytest.mark.proves("operations-36")
def test_a_blob_that_only_a_backup_holds_is_kept(kiln: Kiln) -> None:
    kiln.cite("in the backup")
    kiln.back_up()
    forget_rows(kiln)
    kiln.clock.advance(seconds=DAYS_4)
    assert kiln.collect().deletes.removed == 0
    assert len(kiln.blobs()) == 1


@pytest.mark.proves("operations-36")
def test_an_unfinished_backup_holds_everything(kiln: Kiln) -> None:
    blob = kiln.orphan("who knows")
    kiln.clock.advance(seconds=DAYS_4)
    begin_backup(kiln)
    report = kiln.collect()
    assert report.waits_for is not None and "bkp_" in report.waits_for
    assert (kiln.has(blob), kiln.condemned()) == (True, set())


@pytest.mark.proves("operations-36")
@pytest.mark.parametrize("finished", [False, True])
def test_a_backup_that_began_after_the_candidates_were_chosen_holds_them(kiln: Kiln, finished: bool) -> None:
    kiln.cite("raced for")
    blob = kiln.orphan("unheld")
    kiln.clock.advance(seconds=DAYS_4)

    def race(what: str) -> None:
        if what == "after blobs.condemn":
            kiln.before_step = lambda _: None
            if finished:
                restore_rows()
                elsewhere(kiln.back_up)
                forget_rows(kiln)
            else:
                begin_backup(kiln)

    (held,) = kiln.cited()
    restore_rows = forget_rows(kiln)
    kiln.before_step = race
    kiln.collect()
    assert kiln.has(held)
    assert kiln.has(blob) is not finished
    assert held not in kiln.condemned()


def test_a_backup_that_cannot_be_read_stops_the_run(kiln: Kiln) -> None:
    kiln.orphan("unknown")
    record = kiln.back_up()
    kiln.clock.advance(seconds=DAYS_4)
    kiln.store.place(record.key_of("backup.json"), b"{}")
    with pytest.raises(MemoreeError, match="damaged"):
        kiln.collect()
    assert (len(kiln.blobs()), kiln.condemned()) == (1, set())


def test_as_long_as_the_past_before_a_restore_can_be_restored_nothing_is_garbage(kiln: Kiln) -> None:
    blob = kiln.orphan("of the replaced past")
    kiln.clock.advance(seconds=DAYS_4)
    kiln.bench.claim()
    kiln.bench.db.execute("UPDATE meta SET erasing = 1")
    kiln.bench.db.execute("UPDATE events SET operation = 'store.restored'")
    report = kiln.collect()
    assert report.waits_for is not None and "restore" in report.waits_for
    assert kiln.has(blob)
    kiln.clock.advance(seconds=DAYS_4)
    kiln.collect()
    assert not kiln.has(blob)


def test_an_erased_blob_goes_at_once_although_a_backup_holds_it(kiln: Kiln) -> None:
    kiln.cite("secret")
    (blob,) = kiln.cited()
    kiln.back_up()
    forget_rows(kiln)
    erase(kiln, blob)
    assert kiln.collect().deletes.removed == 1
    assert (kiln.blobs(), kiln.condemned()) == (set(), {blob})
    kiln.clock.advance(seconds=limits.COLLECT_RELEASE_SECONDS_MIN)
    assert kiln.collect().condemned == 0


def test_an_erased_blob_waits_for_a_backup_under_way(kiln: Kiln) -> None:
    blob = kiln.orphan("secret")
    erase(kiln, blob)
    begin_backup(kiln)
    kiln.collect()
    assert kiln.has(blob)


@pytest.mark.proves("operations-38")
def test_an_erased_blob_stays_condemned_until_it_is_gone(kiln: Kiln) -> None:
    blob = kiln.orphan("stubborn")
    erase(kiln, blob)
    for _ in range(3):
        kiln.store.deletes = ["lost"]
        kiln.clock.advance(hours=5)
        assert kiln.collect().condemned == 1
    kiln.collect()
    kiln.clock.advance(hours=5)
    assert kiln.collect().condemned == 0
    assert not kiln.has(blob)


# --- the writer's side ----------------------------------------------------------------------------------------------


@pytest.mark.proves("operations-37")
def test_the_writer_releases_nothing_early_but_what_its_own_commit_condemned(kiln: Kiln) -> None:
    one, two = kiln.orphan("one"), kiln.orphan("two")
    first = kiln.command("blobs.condemn", {"digests": [one]})
    second = kiln.command("blobs.condemn", {"digests": [one, two]})
    assert (first["blobs"], second["blobs"]) == (1, 1)
    release = {"digests": [one, two], "commit_seq": second["commit_seq"]}
    assert kiln.command("blobs.release", release)["blobs"] == 1
    assert kiln.condemned() == {one}
    assert kiln.command("blobs.release", {"digests": [one, two]}) | {"commit_seq": 0} == {
        "blobs": 0,
        "commit_seq": 0,
        "created": False,
    }


@pytest.mark.proves("operations-37")
def test_no_run_releases_early_what_an_erasure_condemned(kiln: Kiln) -> None:
    blob = kiln.orphan("erased")
    commit_seq = erase(kiln, blob)
    again = kiln.command("blobs.condemn", {"digests": [blob]})
    assert again["blobs"] == 1
    for commit in (commit_seq, again["commit_seq"]):
        assert kiln.command("blobs.release", {"digests": [blob], "commit_seq": commit})["blobs"] == 0


def test_what_is_condemned_counts_in_the_integrity_sum(kiln: Kiln) -> None:
    blob = kiln.orphan("summed")
    kiln.command("blobs.condemn", {"digests": [blob]})
    assert integrity.recompute(kiln.bench.db) == kiln.bench.meta().integrity
    kiln.bench.db.execute("DELETE FROM condemned_blobs")
    assert integrity.recompute(kiln.bench.db) != kiln.bench.meta().integrity


def test_neither_the_log_nor_an_outcome_names_a_blob(kiln: Kiln) -> None:
    blob = kiln.orphan("guessable")
    commit = kiln.command("blobs.condemn", {"digests": [blob]})["commit_seq"]
    kiln.command("blobs.release", {"digests": [blob], "commit_seq": commit})
    rows = [*kiln.bench.db.execute("SELECT * FROM events"), *kiln.bench.db.execute("SELECT * FROM idempotency")]
    assert len(rows) == 4
    assert blob not in repr(rows)


# --- crashes and failures -------------------------------------------------------------------------------------------


@pytest.mark.proves("operations-34", "operations-38")
@pytest.mark.fault_class(11)
def test_a_run_killed_at_any_step_is_made_good_by_the_next_ones(tmp_path: Path) -> None:
    killed_at = 0
    while True:
        killed_at += 1
        directory = tmp_path / str(killed_at)
        directory.mkdir()
        kiln = Kiln(directory)
        kiln.cite("cited")
        kiln.command("blobs.condemn", {"digests": [kiln.orphan("of an earlier run")]})
        erase(kiln, kiln.orphan("secret"))
        garbage = [kiln.orphan(f"garbage {number}") for number in range(3)]
        kiln.clock.advance(seconds=DAYS_4)
        kiln.store.deletes = ["late", "now", "lost"]
        try:
            kiln.collect(kill_at=killed_at)
        except Killed:
            pass
        else:
            break
        finally:
            kiln.store.deletes = []
            cite_what_may_be_cited(kiln)
            kiln.clock.advance(minutes=5)
            kiln.store.obey_late_deletes()
            assert kiln.cited() <= kiln.blobs()
        kiln.clock.advance(seconds=limits.COLLECT_RELEASE_SECONDS_MIN)
        cite_what_may_be_cited(kiln)
        kiln.collect()
        cite_what_may_be_cited(kiln)
        kiln.clock.advance(seconds=DAYS_4)
        kiln.collect()
        kiln.clock.advance(seconds=limits.COLLECT_RELEASE_SECONDS_MIN)
        kiln.collect()
        assert kiln.blobs() == kiln.cited()
        assert kiln.condemned() == set()
        assert set(garbage) - kiln.cited()
        kiln.bench.close()
    assert killed_at > 25


def cite_what_may_be_cited(kiln: Kiln) -> None:
    """A client stores one of the texts again, blob and command, unless it is refused."""
    try:
        kiln.cite("garbage 1")
    except MemoreeError as refused:
        assert refused.details["reason"] == "digest_condemned"


@pytest.mark.proves("operations-34")
@pytest.mark.parametrize("moment", ["before blobs.condemn", "after blobs.condemn", "SEND"])
def test_two_runs_at_a_time_harm_nothing(kiln: Kiln, moment: str) -> None:
    kiln.cite("cited")
    blobs = [kiln.orphan(f"shared {number}") for number in range(3)]
    kiln.clock.advance(seconds=DAYS_4)

    def run_another(what: str) -> None:
        if what.startswith(moment):
            kiln.before_step = lambda _: None
            kiln.store.deletes = ["late", "late"]
            elsewhere(kiln.collect)
            kiln.orphan("shared 0")

    kiln.before_step = run_another
    kiln.collect()
    for number in range(3):
        with suppress(MemoreeError):
            kiln.cite(f"shared {number}")
    kiln.store.obey_late_deletes()
    assert kiln.cited() <= kiln.blobs()
    assert set(blobs) & kiln.condemned()


@pytest.mark.proves("operations-41")
@pytest.mark.fault_class(49)
def test_every_delete_that_failed_is_told_with_its_reason_and_counted(kiln: Kiln) -> None:
    blobs = [kiln.orphan(f"b{number}") for number in range(3)]
    kiln.clock.advance(seconds=DAYS_4)
    key = f"{layout.tenant_prefix(TENANT)}blobs/b3/{blobs[1][:2]}/{blobs[1]}"
    kiln.store.broken.add(key)
    report = kiln.collect().to_wire()
    assert (report["deleted_blobs"], report["failed_deletes"]) == (2, 1)
    [(name, reason)] = report["failures"].items()
    assert blobs[1] in name
    assert "AccessDenied" in reason


@pytest.mark.nightly
def test_many_blobs_are_looked_through_in_bounded_memory(kiln: Kiln, monkeypatch: pytest.MonkeyPatch) -> None:
    written = kiln.clock()
    kiln.clock.advance(seconds=DAYS_4)

    async def many(prefix: str, *, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        for number in range(MANY if prefix.endswith("/b3/") else 0):
            digest = f"{number:08x}".ljust(64, "0")
            yield ObjectInfo(blob_key(TENANT, digest), '"etag"', LARGE, written)

    monkeypatch.setattr(kiln.store, "list", many)
    monkeypatch.setattr(limits, "COLLECT_RUN_BLOBS_MAX", MANY)
    monkeypatch.setattr(condemned, "cited_between", all_but_the_last)
    tracemalloc.start()
    try:
        report = kiln.collect()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.kept == 1, "the last one, which is in the list and nowhere else"
    assert peak < 10 * limits.MIB, "their names alone would take more"


# --- helpers --------------------------------------------------------------------------------------------------------


def forget_rows(kiln: Kiln) -> Callable[[], None]:
    """As if the present state needed no blob; returns what undoes it."""
    rows = list(kiln.bench.db.execute("SELECT row_id FROM artifact_revisions WHERE body IS NULL"))

    def set_bodies(body: bytes | None) -> None:
        kiln.bench.db.execute("UPDATE meta SET erasing = 1")
        kiln.bench.db.executemany(
            "UPDATE artifact_revisions SET body = ? WHERE row_id = ?", [(body, *row) for row in rows]
        )
        kiln.bench.db.execute("UPDATE meta SET erasing = 0")

    set_bodies(b"")
    return lambda: set_bodies(None)


def erase(kiln: Kiln, digest: str) -> int:
    """Condemn the blob in a commit that is no collector's, as an erasure does; the number of that."""
    commit_seq: int = kiln.bench.claim()["commit_seq"]
    condemned.insert(kiln.bench.db, Condemned(bytes.fromhex(digest), clock.stored(kiln.clock()), commit_seq))
    return commit_seq


def all_but_the_last(db: apsw.Connection, first: bytes, last: bytes) -> Iterator[bytes]:
    """What the rows would say of them."""
    for number in range(number_of(first), min(number_of(last) + 1, MANY - 1)):
        yield bytes.fromhex(f"{number:08x}".ljust(64, "0"))


def number_of(digest: bytes) -> int:
    return int.from_bytes(digest[:4])


def begin_backup(kiln: Kiln) -> None:
    kiln.store.place(layout.backup_key(TENANT, new_backup_id(), INTENT_NAME), b"{}")

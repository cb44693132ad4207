"""Backups that an erasure or the deletion of their tenant overtakes: none is published that should not be."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from memoree import clock, erasures, limits
from memoree.backup.record import INTENT_NAME, RECORD_NAME, BackupRecord, Intent, new_backup_id
from memoree.erasures import Erasure
from memoree.errors import Code, MemoreeError
from memoree.jobs.retained import backups_until
from memoree.jobs.runs import Runs, write_runs
from memoree.objects.filesystem import FilesystemStore
from memoree.replication import layout
from memoree.replication.head import HeadFile

from .workshop import Workshop

HEAD = HeadFile(FilesystemStore(Path("nowhere")), layout.tenant_prefix("local")).key
RUNS = layout.job_key("local", "backup")


def erase_something(workshop: Workshop) -> None:
    """In a commit of its own, and on record, as `memoree erase` does."""
    commit_seq = workshop.bench.claim()["commit_seq"]
    erasure = Erasure(f"ers_{commit_seq}", clock.stored(workshop.clock()), commit_seq, ("clm_1",), ())
    asyncio.run(erasures.record(workshop.store, workshop.tenant, erasure))


@pytest.mark.proves("operations-13")
@pytest.mark.parametrize("times", [1, 2])
def test_a_backup_that_holds_what_was_erased_meanwhile_is_made_once_more(filled: Workshop, times: int) -> None:
    left = times

    def overtake() -> None:
        nonlocal left
        if left:
            left -= 1
            erase_something(filled)

    filled.copied = overtake
    made, refusal = attempted(filled)
    if times == 1:
        assert made is not None, refusal
        assert made.commit_seq == filled.bench.meta().commit_seq
        assert {key.rpartition("/")[0].rpartition("/")[2] for key in filled.backup_keys()} == {made.backup_id}
    else:
        assert refusal is not None and "something was erased meanwhile" in refusal.message
        assert (refusal.code, filled.backup_keys()) == (Code.CONFIG_ERROR, [])


def attempted(workshop: Workshop) -> tuple[BackupRecord | None, MemoreeError | None]:
    try:
        return workshop.back_up(), None
    except MemoreeError as refusal:
        return None, refusal


@pytest.mark.proves("operations-13")
def test_a_receipt_counts_backups_that_may_yet_be_published_in_either_bucket(filled: Workshop, tmp_path: Path) -> None:
    second = FilesystemStore(tmp_path / "second")
    old = filled.back_up()
    erase_something(filled)
    young = filled.back_up()
    begun = {}
    for name, store in (("first", filled.store), ("second", second)):
        intent = Intent(new_backup_id(), "local", old.began_at, "a killed one")
        begun[name] = intent.backup_id
        asyncio.run(store.put(layout.backup_key("local", intent.backup_id, INTENT_NAME), intent.to_bytes()))
    now = filled.clock()
    known = asyncio.run(erasures.recorded(filled.store, "local"))
    in_first = asyncio.run(backups_until([filled.store], "local", known, now))
    in_both = asyncio.run(backups_until([filled.store, second], "local", known, now))
    assert in_first.keys() == {old.backup_id, begun["first"]}
    assert in_both.keys() == {old.backup_id, *begun.values()} and young.backup_id not in in_both
    assert in_both[begun["second"]] == now + timedelta(seconds=limits.ERASED_IN_BACKUPS_SECONDS)


@pytest.mark.proves("operations-16")
@pytest.mark.parametrize("gone", [INTENT_NAME, "head.json"])
def test_a_backup_whose_tenant_is_deleted_while_it_is_published_is_taken_back(filled: Workshop, gone: str) -> None:
    asyncio.run(filled.store.put(HEAD, b"{}"))
    published = []

    class Deleting(FilesystemStore):
        async def put(self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False) -> str:
            if key.endswith(RECORD_NAME):
                published.append(key)
                for each in [*filled.backup_keys(), HEAD]:
                    if each.endswith(gone):
                        filled.path(each).unlink()
            return await super().put(key, body, if_match=if_match, if_absent=if_absent)

    filled.store = Deleting(filled.store.root)
    with pytest.raises(MemoreeError, match="its tenant was deleted") as refused:
        filled.back_up()
    assert refused.value.code is Code.CONFIG_ERROR
    assert published and filled.backup_keys() == []


@pytest.mark.proves("operations-16")
@pytest.mark.parametrize(
    ("there", "kept"),
    [((), False), ((HEAD,), True), ((layout.epoch_ledger_key("local", 1),), True)],
    ids=["deleted", "alive", "without its head"],
)
def test_nothing_is_kept_of_the_run_of_a_job_whose_tenant_is_gone(
    tmp_path: Path, there: tuple[str, ...], kept: bool
) -> None:
    store = FilesystemStore(tmp_path)
    for key in there:
        asyncio.run(store.put(key, b"{}"))
    asyncio.run(write_runs(store, "backup", "local", Runs()))
    assert (RUNS in store.keys_sync(layout.tenant_prefix("local"))) is kept

"""Making a lost head.json again, from the ledger of epochs and the change files (design §5.3).

Readers and writers refuse a tenant whose head is missing over existing history: that is damage and never a birth. A
writer that still reigns cannot go on either, since its next swap names an ETag that is gone; so writers may run on.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from memoree.clock import stored, utc_now
from memoree.database import meta
from memoree.database.connection import open_reader
from memoree.database.meta import Meta
from memoree.errors import Code, MemoreeError
from memoree.ids import new_ulid
from memoree.objects import ObjectStore, PreconditionFailed
from memoree.replication import layout
from memoree.replication.head import Head, HeadFile
from memoree.replication.lineage import ledger_entry
from memoree.replication.ltx import parse_name, restorable_boundaries
from memoree.replication.replicator import Replicator


async def rebuild_head(store: ObjectStore, replicator: Replicator, tenant: str) -> Head:
    """Write head.json for the newest state that can be restored, and return it.

    The newest epoch whose prefix restores holds everything that was ever covered: an epoch begins by restoring the
    one before, after that one was fenced. Only a restore does not: one that no epoch continued was broken off, or can
    be made again. Commits that no head covered become covered; nobody was told of them, and their attempts are
    recorded. Raises `CONFIG_ERROR` when there is a head, `INTEGRITY_ERROR` when nothing restores.
    """
    prefix = layout.tenant_prefix(tenant)
    head_file = HeadFile(store, prefix)
    if await head_file.read() is not None:
        raise MemoreeError(Code.CONFIG_ERROR, f"{head_file.key} exists; there is nothing to rebuild")
    ledger = {
        epoch: entry
        async for epoch in _epochs(store, prefix)
        if (entry := await ledger_entry(store, tenant, epoch)) is not None
    }
    continued = {entry.parent_epoch for entry in ledger.values()}

    def doubtful_and_old(epoch: int) -> tuple[bool, int]:
        return ledger[epoch].kind == "restore" and epoch not in continued, -epoch

    for epoch in sorted(ledger, key=doubtful_and_old):
        epoch_prefix = ledger[epoch].prefix
        names = [parse_name(info.key) async for info in store.list(prefix + epoch_prefix)]
        boundaries = restorable_boundaries(name for name in names if name is not None)
        if boundaries:
            counters = await _counters_at(replicator, prefix + epoch_prefix, boundaries[-1])
            return await _publish(store, head_file, max(ledger), epoch_prefix, boundaries[-1], counters)
    raise MemoreeError(Code.INTEGRITY_ERROR, f"tenant {tenant}: no epoch in the ledger can be restored")


async def _epochs(store: ObjectStore, prefix: str) -> AsyncIterator[int]:
    async for info in store.list(f"{prefix}epochs/"):
        if (epoch := layout.ledger_epoch(info.key)) is not None:
            yield epoch


async def _counters_at(replicator: Replicator, prefix: str, txid: int) -> Meta:
    with tempfile.TemporaryDirectory(prefix="memoree-head-") as directory:
        path = Path(directory, "restored.sqlite3")
        await replicator.restore(prefix, txid, path)
        return await asyncio.to_thread(_read_counters, path)


def _read_counters(path: Path) -> Meta:
    db = open_reader(path, immutable=True)
    try:
        return meta.read(db)
    finally:
        db.close()


async def _publish(
    store: ObjectStore, head_file: HeadFile, newest_epoch: int, epoch_prefix: str, txid: int, counters: Meta
) -> Head:
    if counters.epoch != layout.epoch_of(epoch_prefix):
        raise MemoreeError(
            Code.INTEGRITY_ERROR, f"{epoch_prefix} holds epoch {counters.epoch}; restore from a backup instead"
        )
    now = stored(utc_now())
    head = Head(
        write_id=new_ulid(),
        revision=0,
        history=counters.history,
        epoch=newest_epoch,
        owner=None,
        released_at=now,
        prefix=epoch_prefix,
        txid=txid,
        batch=counters.batch,
        commit_seq=counters.commit_seq,
        hlc=counters.hlc,
        schema_version=counters.schema_version,
        integrity=counters.integrity.hex(),
        updated_at=now,
    )
    try:
        await store.put(head_file.key, head.to_bytes(), if_absent=True)
    except PreconditionFailed:
        raise MemoreeError(Code.CONFIG_ERROR, f"{head_file.key} appeared meanwhile; nothing was changed") from None
    return head

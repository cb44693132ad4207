"""Making a backup: database and blobs of one commit, in the bucket of its tenant (design §7, §8).

The intent comes first and protects whatever the backup may refer to; then the snapshot, which is no older. No writer
waits for any of it. What a crash leaves behind is an intent without a record, which counts as no backup.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import apsw

from memoree import __version__, erasures, limits
from memoree.backup import checkpoint, manifest, proving
from memoree.backup.drill import Drill, rehearse
from memoree.backup.packed import PackedFile, pack
from memoree.backup.record import (
    CHECKPOINT_NAME,
    INTENT_NAME,
    MANIFEST_NAME,
    RECORD_NAME,
    BackupRecord,
    Intent,
    Manifest,
    new_backup_id,
)
from memoree.clock import stored
from memoree.database import meta
from memoree.database.meta import Meta
from memoree.errors import Code, MemoreeError, not_found
from memoree.jobs.tenancy import Source
from memoree.objects import ObjectMissing, ObjectStore, ObjectStoreError, PreconditionFailed, StoreUnavailable
from memoree.objects.audit import BlobAudit, BlobRef
from memoree.objects.presence import PresenceAudit
from memoree.objects.remote_audit import RemoteAudit
from memoree.replication import layout
from memoree.replication.head import HeadFile

PROGRAM = f"memoree {__version__}"
PUBLISH_TRIES_MAX = 5
PUBLISH_RETRY_SECONDS = 1.0

Progress = Callable[[str], None]
Result = TypeVar("Result")


class _Overtaken(MemoreeError):
    """`CONFIG_ERROR`: the copy holds something that was erased since."""


def silently(step: str) -> None:
    """Nobody watches."""


async def create(source: Source, scratch: Path, *, full: bool = False, progress: Progress = silently) -> BackupRecord:
    """Back up the tenant as it is now, or later. `scratch` is a directory on a disk with room for the database twice;
    `full` reads and hashes every blob, otherwise a few. `progress` is told each step.

    Raises `INTEGRITY_ERROR` when the database, its copy or a blob is not whole, `CONFIG_ERROR` when the backup took
    too long, its intent was removed, its tenant deleted, or something erased twice while it was made, `INTERNAL_ERROR`
    when the disk fails, `ObjectStoreError`, and what `Tenancy.snapshot` raises. Whatever is raised, what was staged is
    removed; only where nobody can know whether the record was written, it stays.
    """
    try:
        return await _made(source, scratch, full, progress)
    except _Overtaken:
        progress("something was erased meanwhile; making it once more")
        return await _made(source, scratch, full, progress)


async def _made(source: Source, scratch: Path, full: bool, progress: Progress) -> BackupRecord:
    has_head = await _has_head(source.store, source.tenant)
    intent = Intent(new_backup_id(), source.tenant, stored(source.clock()), PROGRAM)
    await source.store.put(_key(intent, INTENT_NAME), intent.to_bytes(), if_absent=True)
    work = scratch / intent.backup_id
    try:
        work.mkdir(mode=0o700)
        record = await _staged(source, intent, work, full, progress)
        await _require_intent(source.store, intent)
        await _require_unerased(source.store, record)
    except (OSError, apsw.FullError, apsw.IOError, apsw.CantOpenError) as error:
        await _remove(source.store, intent)
        raise MemoreeError(Code.INTERNAL_ERROR, f"the backup could not be written: {error}") from error
    except BaseException:
        await asyncio.shield(_remove(source.store, intent))
        raise
    finally:
        await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)
    progress("publishing it")
    await _publish(source.store, record)
    await _require_tenant(source.store, record, has_head)
    return record


async def _staged(source: Source, intent: Intent, work: Path, full: bool, progress: Progress) -> BackupRecord:
    """Everything but the record, which is returned."""
    database, lines = work / "checkpoint.db", work / "manifest.jsonl"
    loop = asyncio.get_running_loop()
    measured: asyncio.Future[int] = loop.create_future()
    copied: asyncio.Future[Meta] = loop.create_future()

    def copy_and_ask(db: apsw.Connection) -> Drill:
        loop.call_soon_threadsafe(measured.set_result, checkpoint.size_of(db))
        checkpoint.take(db, database)
        loop.call_soon_threadsafe(copied.set_result, meta.read(db))
        return rehearse(db, intent.began_at)

    async def proved() -> None:
        await proving.prove(database, await measured, copied)

    progress("copying the database")
    asking = asyncio.create_task(source.snapshot(copy_and_ask))
    verdict = asyncio.create_task(proved())
    try:
        await asyncio.wait((asking, copied), return_when=asyncio.FIRST_COMPLETED)
        if not copied.done():
            await asking
        packed, listed, written = await _stored(source, intent, database, lines, full, progress)
        drill, seen = await asking
        progress(f"proving the copy of commit {seen.commit_seq}")
        await verdict
        if copied.result() != seen:
            raise checkpoint.unsound(f"the copy is at {copied.result()}, the snapshot at {seen}")
    finally:
        verdict.cancel()
        await asyncio.gather(asking, verdict, return_exceptions=True)  # before their file is removed
    await _require(_present(source), manifest.refs(lines))  # again: what was collected meanwhile is not in this backup
    return BackupRecord(
        backup_id=intent.backup_id,
        tenant=intent.tenant,
        commit_seq=seen.commit_seq,
        batch=seen.batch,
        epoch=seen.epoch,
        history=seen.history,
        hlc=seen.hlc,
        schema_version=seen.schema_version,
        integrity=seen.integrity.hex(),
        began_at=intent.began_at,
        created_at=stored(source.clock()),
        checkpoint=packed,
        manifest=Manifest(**asdict(listed), blobs=written.blobs, bytes=written.bytes),
        drill=drill,
        program=intent.program,
    )


async def _stored(
    source: Source, intent: Intent, database: Path, lines: Path, full: bool, progress: Progress
) -> tuple[PackedFile, PackedFile, manifest.Written]:
    """Check the blobs, store database and manifest."""
    written = await asyncio.to_thread(manifest.write, database, lines)
    progress(f"looking for {written.blobs} blobs")
    await _require(_present(source), manifest.refs(lines))
    hashed = manifest.refs(lines) if full else iter(await asyncio.to_thread(manifest.sample, database))
    await _require(RemoteAudit(source.store, source.tenant, asyncio.get_running_loop()), hashed)
    progress("storing the database, packed")
    packed = await _store(source.store, intent, database, database.with_name(CHECKPOINT_NAME))
    listed = await _store(source.store, intent, lines, lines.with_name(MANIFEST_NAME))
    return packed, listed, written


async def require_head(store: ObjectStore, tenant: str) -> None:
    """Raises `NOT_FOUND` for a tenant of a deployment that was never written to: were there a backup of it, its birth
    would be taken for the loss of its head."""
    if await HeadFile(store, layout.tenant_prefix(tenant)).read() is None:
        not_found("tenant", tenant)


async def _require_intent(store: ObjectStore, intent: Intent) -> None:
    """Raises `CONFIG_ERROR` unless everything that the backup refers to was protected all the time."""
    try:
        found = await store.get(_key(intent, INTENT_NAME))
    except ObjectMissing:
        raise _given_up("its intent was removed") from None
    assert found is not None, "a GET without a condition always has a body"
    if found.date - found.info.last_modified > timedelta(seconds=limits.BACKUP_INTENT_SECONDS_MAX):
        raise _given_up(f"it took more than {limits.BACKUP_INTENT_SECONDS_MAX // 3600} hours")


async def _require_unerased(store: ObjectStore, record: BackupRecord) -> None:
    """Raises `_Overtaken` for a copy that holds what was erased since. An erasure that is recorded after this finds the
    intent, and says in its receipt that a backup may hold what it erased."""
    if any(erasure.commit_seq > record.commit_seq for erasure in await erasures.recorded(store, record.tenant)):
        raise _Overtaken(Code.CONFIG_ERROR, "the backup was given up: something was erased meanwhile; make another")


async def _require_tenant(store: ObjectStore, record: BackupRecord, had_head: bool) -> None:
    """Raises `CONFIG_ERROR` when the tenant was deleted while its backup was published, which is removed then: nobody
    could begin a tenant of that name again, the backup would be taken for one that has lost its head."""
    has_intent = await _is_there(store, record.key_of(INTENT_NAME))
    if has_intent and (not had_head or await _has_head(store, record.tenant)):
        return
    await store.delete(record.key_of(RECORD_NAME))
    await _remove(store, record.intent)
    raise _given_up("its tenant was deleted")


async def _has_head(store: ObjectStore, tenant: str) -> bool:
    return await _is_there(store, HeadFile(store, layout.tenant_prefix(tenant)).key)


async def _is_there(store: ObjectStore, key: str) -> bool:
    try:
        await store.head(key)
    except ObjectMissing:
        return False
    return True


def _present(source: Source) -> PresenceAudit:
    return PresenceAudit(source.store, source.tenant, asyncio.get_running_loop())


async def _require(audit: BlobAudit, refs: Iterator[BlobRef]) -> None:
    """Raises `INTEGRITY_ERROR` for the first blob at fault."""
    if (fault := await asyncio.to_thread(next, audit.faults(refs), None)) is not None:
        raise MemoreeError(
            Code.INTEGRITY_ERROR,
            f"no backup was made: blob {fault.name} {fault.detail}; `memoree verify` tells everything",
            details={"digest": fault.name},
        )


async def _store(store: ObjectStore, intent: Intent, content: Path, packed_path: Path) -> PackedFile:
    packed = await asyncio.to_thread(pack, content, packed_path)
    await store.put_stream(_key(intent, packed.name), pieces_of(packed_path), size=packed.stored_size)
    return packed


async def pieces_of(path: Path) -> AsyncIterator[bytes]:
    """What a file holds, for `ObjectStore.put_stream`."""
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, limits.BACKUP_PIECE_BYTES):
            yield piece


async def _publish(store: ObjectStore, record: BackupRecord) -> None:
    """Write the record, once. An answer that is lost is found out: identical bytes are sent until one is there."""
    key, body = record.key_of(RECORD_NAME), record.to_bytes()
    for _ in range(PUBLISH_TRIES_MAX):
        with suppress(PreconditionFailed, StoreUnavailable):
            await store.put(key, body, if_absent=True)
            return
        with suppress(ObjectMissing, StoreUnavailable):
            found = await store.get(key)
            assert found is not None, "a GET without a condition always has a body"
            if found.body != body:
                raise MemoreeError(Code.CONFIG_ERROR, f"{key} is there already, of another run; it was left as it is")
            return
        await asyncio.sleep(PUBLISH_RETRY_SECONDS)
    raise StoreUnavailable(f"whether {key} was written is not known; `memoree backup list` will tell")


async def _remove(store: ObjectStore, intent: Intent) -> None:
    """What was staged; the intent last, as it says whose the rest is."""
    with suppress(ObjectStoreError):  # what stays is removed by age
        for name in (CHECKPOINT_NAME, MANIFEST_NAME, INTENT_NAME):
            await store.delete(_key(intent, name))


def _key(intent: Intent, name: str) -> str:
    return layout.backup_key(intent.tenant, intent.backup_id, name)


def _given_up(why: str) -> MemoreeError:
    return MemoreeError(Code.CONFIG_ERROR, f"the backup was given up: {why}; make another")

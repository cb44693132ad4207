"""The second bucket: every backup once more, with its blobs, where the loss of the first bucket does not reach.

It has the same keys as the first, so a backup is listed, verified and restored from it in the same way. Blobs are
copied once, whatever number of backups refers to them, and go with the last one.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TypeVar

from memoree import erasures, limits
from memoree.backup import manifest, record
from memoree.backup.erased import WithoutErased, named_blobs, only_erased_in
from memoree.backup.packed import PackedFile
from memoree.backup.record import INTENT_NAME, RECORD_NAME, BackupRecord, FaultyObject
from memoree.concurrency import for_each
from memoree.erasures import Erasure
from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectMissing, ObjectStore, PreconditionFailed
from memoree.objects.audit import BlobFault
from memoree.objects.blobs import blob_key, blob_prefix, digest_in, missing
from memoree.objects.presence import PresenceAudit
from memoree.objects.removal import Removal, remove_all
from memoree.objects.streaming import blob_windows, windows

Item = TypeVar("Item")


@dataclass(slots=True)
class Copied:
    """What a run brought to the second bucket. `failures` are backups, with the reasons why they are not there."""

    backups: list[str] = field(default_factory=list)
    blobs: int = 0
    bytes: int = 0
    failures: dict[str, str] = field(default_factory=dict)


async def copy_missing(
    first: ObjectStore, second: ObjectStore, tenant: str, scratch: Path, progress: Callable[[str], None]
) -> Copied:
    """Copy every backup of the tenant that the second bucket does not have. One that cannot be copied is told, and the
    others go on. Raises `StoreUnavailable`, `OSError`."""
    done = Copied()
    await _copy_erasures(first, second, tenant)
    recorded = await erasures.recorded(second, tenant)
    there = set(await record.published(second, tenant))
    for backup_id in await record.published(first, tenant):
        if backup_id not in there:
            progress(f"copying backup {backup_id} to the second bucket")
            try:
                await _Copy(first, second, await record.find(first, tenant, backup_id), recorded, done).run(scratch)
                done.backups.append(backup_id)
            except MemoreeError as error:
                if error.code is not Code.NOT_FOUND:  # otherwise it was pruned meanwhile
                    done.failures[backup_id] = error.message
    return done


class _Copy:
    """Of one backup."""

    def __init__(
        self, first: ObjectStore, second: ObjectStore, backup: BackupRecord, recorded: Sequence[Erasure], done: Copied
    ) -> None:
        self._first = first
        self._second = second
        self._backup = backup
        self._recorded = recorded
        self._done = done
        self._brought: list[str] = []
        """Keys of blobs."""

    async def run(self, scratch: Path) -> None:
        """In the order in which a backup is made: the intent keeps what is copied from being swept."""
        backup = self._backup
        work = scratch / f"{backup.backup_id}-copy"
        work.mkdir(mode=0o700)
        try:
            async with record.in_use(self._first, backup):
                await self._second.put(backup.key_of(INTENT_NAME), backup.intent.to_bytes())
                lines = work / "manifest.jsonl"
                await record.fetch_manifest(self._first, backup, lines)
                audit = PresenceAudit(self._second, backup.tenant, asyncio.get_running_loop())
                erased = await self._erased()
                there = WithoutErased(audit, lambda: erased)
                lost = _in_pages(there.faults(manifest.refs(lines)))
                await for_each(lost, self._copy_blob, at_once=limits.BACKUP_COPIES_AT_ONCE_MAX)
                for packed in (backup.checkpoint, backup.manifest):
                    await self._copy_packed(packed)
            again = await asyncio.to_thread(next, there.faults(manifest.refs(lines)), None)
            if again is not None:
                raise FaultyObject(blob_key(backup.tenant, again.name), f"{again.detail}, the second one")
            await _put_once(self._second, backup.key_of(RECORD_NAME), backup.to_bytes())
            await self._require_intent()
        finally:
            await asyncio.to_thread(shutil.rmtree, work)

    async def _erased(self) -> frozenset[str]:
        """What is not copied. Nothing that was erased before the backup was made is in it."""
        if all(erasure.commit_seq <= self._backup.commit_seq for erasure in self._recorded):
            return frozenset()
        return await only_erased_in(self._first, self._backup, self._recorded)

    async def _require_intent(self) -> None:
        """Raises `CONFIG_ERROR` when the tenant was deleted meanwhile, here too; then nothing of the copy is left."""
        intent = self._backup.key_of(INTENT_NAME)
        try:
            await self._second.head(intent)
        except ObjectMissing:
            tenant = self._backup.tenant
            await remove_all(self._second, [self._backup.key_of(RECORD_NAME)])
            held = await record.published(self._second, tenant)  # by a backup that came to rely on them
            await remove_all(
                self._second,
                [
                    *(self._backup.key_of(packed.name) for packed in (self._backup.checkpoint, self._backup.manifest)),
                    *([] if held else self._brought),
                ],
            )
            raise MemoreeError(
                Code.CONFIG_ERROR, f"the copy was given up: {intent} was removed, as when its tenant is deleted"
            ) from None

    async def _copy_blob(self, fault: BlobFault) -> None:
        """Proven on the way: what hashes to something else is not shown under its name."""
        tenant, digest = self._backup.tenant, fault.name
        key = blob_key(tenant, digest)
        try:
            size = (await self._first.head(key)).size
        except ObjectMissing:
            raise missing(digest) from None
        content = blob_windows(self._first, tenant, digest, size, 0, size, window_bytes=limits.DOWNLOAD_WINDOW_BYTES)
        async with aclosing(content):
            await self._second.put_stream(key, content, size=size)
        self._brought.append(key)
        self._done.blobs += 1
        self._done.bytes += size

    async def _copy_packed(self, packed: PackedFile) -> None:
        key = self._backup.key_of(packed.name)
        content = _proven(self._first, key, packed)
        async with aclosing(content):
            await self._second.put_stream(key, content, size=packed.stored_size)


async def _proven(store: ObjectStore, key: str, packed: PackedFile) -> AsyncGenerator[bytes, None]:
    hasher = hashlib.sha256()
    found = windows(store, key, 0, packed.stored_size, window_bytes=limits.DOWNLOAD_WINDOW_BYTES)
    async with aclosing(found):
        try:
            async for window in found:
                hasher.update(window.body)
                yield window.body
        except ObjectMissing:
            raise FaultyObject(key, "is missing") from None
    if hasher.hexdigest() != packed.stored_sha256:
        raise FaultyObject(key, "is damaged: it is not what was stored")


async def sweep(store: ObjectStore, tenant: str, scratch: Path, before: datetime) -> Removal:
    """Remove the blobs that no backup of this second bucket refers to, and those that were erased; only what was
    written before then. Nothing is removed while a backup is being copied there. Raises as
    `memoree.backup.record.records`, `OSError`."""
    removal = Removal()
    work = scratch / "sweep"
    work.mkdir(mode=0o700)
    try:
        backups = await record.records(store, tenant)
        for backup in backups:
            await record.fetch_manifest(store, backup, work / backup.backup_id)
        known = {backup.backup_id for backup in backups}
        recorded = await erasures.recorded(store, tenant)
        unneeded = [await _unneeded(store, backup, work / backup.backup_id, recorded) for backup in backups]
        held = heapq.merge(*(_held(work / each.backup_id, gone) for each, gone in zip(backups, unneeded, strict=True)))
        unheld = _unheld(store, tenant, held, named_blobs(recorded), before)
        async for page in _pages(unheld):
            if {intent.backup_id for intent in await record.intents(store, tenant)} - known:
                break
            removal.include(await remove_all(store, page))
    finally:
        await asyncio.to_thread(shutil.rmtree, work)
    return removal


async def _unneeded(
    store: ObjectStore, backup: BackupRecord, lines: Path, recorded: Sequence[Erasure]
) -> frozenset[str]:
    """The blobs of a backup that are there and that it cites only from what was erased. Its database is looked at only
    where that can be."""
    named = named_blobs(recorded)
    for ref in manifest.refs(lines):
        if (digest := ref.digest.hex()) in named:
            with suppress(ObjectMissing):
                await store.head(blob_key(backup.tenant, digest))
                return await only_erased_in(store, backup, recorded)
    return frozenset()


def _held(lines: Path, unneeded: frozenset[str]) -> Iterator[str]:
    """The digests that a manifest names, in ascending order, without those."""
    return (digest for ref in manifest.refs(lines) if (digest := ref.digest.hex()) not in unneeded)


async def _unheld(
    store: ObjectStore, tenant: str, held: Iterator[str], erased: frozenset[str], before: datetime
) -> AsyncIterator[str]:
    """Keys: what was erased at once, the rest by age. Both the list and what is held come in ascending order."""
    next_held = next(held, None)
    async for info in store.list(blob_prefix(tenant)):
        digest = digest_in(tenant, info.key)
        if digest is None:
            continue
        while next_held is not None and next_held < digest:
            next_held = next(held, None)
        if digest != next_held and (digest in erased or info.last_modified < before):
            yield info.key


async def _copy_erasures(first: ObjectStore, second: ObjectStore, tenant: str) -> None:
    """What a restore from the second bucket has to erase again."""
    for erasure in await erasures.recorded(first, tenant):
        await erasures.record(second, tenant, erasure)


async def _put_once(store: ObjectStore, key: str, body: bytes) -> None:
    """Create-only; the same bytes may be there already."""
    try:
        await store.put(key, body, if_absent=True)
    except PreconditionFailed:
        found = await store.get(key)
        if found is None or found.body != body:
            raise FaultyObject(key, "is there already, of another backup") from None


async def _in_pages(items: Iterator[Item]) -> AsyncIterator[Item]:
    """What an iterator that blocks has, taken from it in a thread."""
    while page := await asyncio.to_thread(lambda: list(islice(items, limits.LIST_PAGE_OBJECTS))):
        for item in page:
            yield item


async def _pages(items: AsyncIterator[Item]) -> AsyncIterator[list[Item]]:
    page: list[Item] = []
    async for item in items:
        page.append(item)
        if len(page) == limits.LIST_PAGE_OBJECTS:
            yield page
            page = []
    if page:
        yield page

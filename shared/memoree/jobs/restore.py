"""Restoring a tenant of a deployment: from a backup, or to an earlier point in time (design §8).

Everything is made ready beside the tenant, which goes on meanwhile. Then one new epoch begins with it, of a new
history; up to the moment when head moves, the tenant is what it was. Nothing that was queued for, shown of or replayed
from the old history is ever taken for the new one.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import apsw

from memoree import clock, limits
from memoree.backup.record import INTENT_NAME, BackupRecord, Intent, fetch_checkpoint, find, in_use, new_backup_id
from memoree.database.condemned import Condemned
from memoree.erasures import Erasure, record_missing, recorded, told_by
from memoree.errors import Code, MemoreeError
from memoree.ids import new_ulid
from memoree.jobs.backup import PROGRAM, Progress, silently
from memoree.jobs.backup_site import Place as BackupPlace
from memoree.jobs.backup_site import store_of
from memoree.jobs.replicated import JobSite
from memoree.jobs.restore_blobs import bring_blobs, carried_over
from memoree.objects import ObjectMissing, ObjectStoreError
from memoree.objects.copying import Place
from memoree.replication import layout
from memoree.replication.head import Head, HeadFile, HeadLost
from memoree.replication.lineage import UpToCommit, UpToTime, found_up_to, points, stretches
from memoree.replication.litestream import LitestreamError
from memoree.writer.adoption import Adopted, Adoption, adopt, condemned_now, is_alive
from memoree.writer.reign import LeaseHeld, Reign

CLAIM_TRIES_MAX = 500
"""A writer under load moves head many times a second, and each move defeats a claim that had read the one before."""
SNAPSHOT_TRIES_MAX = 5
SNAPSHOT_RETRY_SECONDS = 1.0
DATABASE_NAME = "restoring.sqlite3"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """`replace` allows to undo what a tenant holds; `allow_missing_blobs` to restore also what has lost blobs."""

    replace: bool = False
    allow_missing_blobs: bool = False
    progress: Progress = silently


@dataclass(frozen=True, slots=True)
class Restored:
    """What a tenant was restored to. `asked` is what was asked for and `got` the state that was found for it; the
    tenant stands at `commit_seq` now, of `history`, where it had come to commit `replaced_commit_seq`.

    `missing_blobs` are the first digests that are nowhere, `blobs_missing` counts all of them; `erased_again` counts
    artifacts and claims.
    """

    tenant: str
    asked: Mapping[str, Any]
    got: Mapping[str, Any]
    history: int
    commit_seq: int
    replaced_commit_seq: int
    blobs_copied: int
    blobs_missing: int
    missing_blobs: Sequence[str]
    erased_again: int


async def restore_found(
    site: JobSite, tenant: str, backup_id: str, place: BackupPlace, target: str, options: Options | None = None
) -> Restored:
    """As `restore_backup`, of a backup of `tenant` in the deployment's bucket or its second one. Raises `NOT_FOUND`."""
    store = store_of(site, place)
    return await restore_backup(site, Place(store, tenant), await find(store, tenant, backup_id), target, options)


async def restore_backup(
    site: JobSite, source: Place, record: BackupRecord, target: str, options: Options | None = None
) -> Restored:
    """Make the tenant `target` what the backup holds. `source` is where the backup and its blobs are.

    Raises `CONFIG_ERROR` for a tenant that holds something, unless it may be replaced, and for one that a newer program
    wrote; `INTEGRITY_ERROR` for a backup that is damaged or lacks blobs, naming them; `TRANSPORT_ERROR` when it must be
    tried again; `NOT_FOUND` for a backup that was pruned meanwhile; `ObjectStoreError`. Whatever is raised, the tenant
    is what it was.
    """
    options = options or Options()
    await _require_replaceable(site, target, options)
    async with in_use(source.store, record), _staging(site) as directory:
        path = directory / DATABASE_NAME
        options.progress(f"fetching backup {record.backup_id} of commit {record.commit_seq}")
        await fetch_checkpoint(source.store, record, path)
        got = {
            "commit_seq": record.commit_seq,
            "backup_id": record.backup_id,
            "created_at": clock.wire(record.created_at),
        }
        past = _Past(path, source, {"backup_id": record.backup_id}, got)
        return await _begin_with(site, past, target, options)


async def restore_point(
    site: JobSite, tenant: str, wanted: UpToCommit | UpToTime, target: str, options: Options | None = None
) -> Restored:
    """Make the tenant `target` what `tenant` was at an earlier time: the newest state that can be restored and is not
    newer than wanted. Raises as `restore_backup`, and `NOT_FOUND` when there is no such state."""
    options = options or Options()
    head = await _head(site, tenant)
    if head is None:
        raise MemoreeError(Code.NOT_FOUND, f"there is no tenant {tenant}")
    await _require_replaceable(site, target, options)
    async with _staging(site) as directory:
        options.progress("looking for the newest state that is wanted")
        try:
            found = await found_up_to(site.store, site.writer.replicator, tenant, head, wanted, directory)
        except LitestreamError as error:
            raise MemoreeError(
                Code.INTEGRITY_ERROR, f"a state of tenant {tenant} cannot be restored: {error}"
            ) from error
        if found is None:
            _nothing_that_old(tenant, wanted)
        got = {
            "commit_seq": found.counters.commit_seq,
            "time": clock.wire(found.instant) if found.instant else None,
            "epoch": found.point.epoch,
            "txid": found.point.txid,
        }
        past = _Past(found.path, Place(site.store, tenant), asked_for(wanted), got)
        return await _begin_with(site, past, target, options)


async def restorable_points(site: JobSite, tenant: str) -> dict[str, Any]:
    """What `tenant` can be restored to, newest first: its reigns, and of their states the newest. Raises `NOT_FOUND`,
    `INTEGRITY_ERROR` for a damaged ledger, `StoreUnavailable`."""
    head = await _head(site, tenant)
    if head is None:
        raise MemoreeError(Code.NOT_FOUND, f"there is no tenant {tenant}")
    reigns: list[dict[str, Any]] = []
    listed: list[dict[str, Any]] = []
    count = 0
    async for stretch in stretches(site.store, tenant, head):
        found = await points(site.store, tenant, stretch)
        if not found:
            break  # the prefix was removed, and with it those before
        entry = stretch.entry
        reigns.append(
            {
                "epoch": stretch.epoch,
                "kind": entry.kind,
                "began_at": clock.wire(entry.at),
                "first_commit_seq": entry.base_commit_seq,
                "points": len(found),
            }
        )
        count += len(found)
        room = limits.RESTORE_POINTS_LISTED_MAX - len(listed)
        listed += [
            {"epoch": point.epoch, "txid": point.txid, "stored_at": clock.wire(clock.stored(point.stored_at))}
            for point in reversed(found[-room:] if room else [])
        ]
    return {
        "tenant": tenant,
        "commit_seq": head.commit_seq,
        "history": head.history,
        "reigns": reigns,
        "points": listed,
        "points_left_out": count - len(listed),
    }


def asked_for(wanted: UpToCommit | UpToTime) -> dict[str, Any]:
    if isinstance(wanted, UpToCommit):
        return {"commit": wanted.commit_seq}
    return {"time": clock.wire(wanted.instant)}


# --- making ready -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Past:
    """A database in a file, and where the blobs are that it needs."""

    database: Path
    source: Place
    asked: Mapping[str, Any]
    got: Mapping[str, Any]


async def _begin_with(site: JobSite, past: _Past, target: str, options: Options) -> Restored:
    """The database becomes the first state of a new epoch of `target`."""
    head = await _head(site, target)
    place = Place(site.store, target)
    origin = _Origin(site, past, target, options, replaces=head is not None and is_alive(head))
    async with AsyncExitStack() as stack:
        replaced: list[Condemned] = []
        if origin.replaces:
            origin.intent = await stack.enter_async_context(_everything_held(site, target))
            replaced = await _condemned(site, target)
        erasures = await origin.read_erasures()
        origin.condemned = await asyncio.to_thread(carried_over, past.database, erasures, replaced, site.writer.clock)
        options.progress("looking for its blobs")
        blobs = await bring_blobs(past.source, place, past.database, erasures)
        if not options.allow_missing_blobs:
            blobs.require_all()
        options.progress("beginning a new epoch with it")
        adopted = await _reign_once(site, target, origin)
    return Restored(
        tenant=target,
        asked=past.asked,
        got=past.got,
        history=adopted.counters.history,
        commit_seq=adopted.counters.commit_seq,
        replaced_commit_seq=adopted.replaced_commit_seq,
        blobs_copied=blobs.copied,
        blobs_missing=len(blobs.missing),
        missing_blobs=blobs.told,
        erased_again=adopted.erased,
    )


@asynccontextmanager
async def _staging(site: JobSite) -> AsyncIterator[Path]:
    directory = site.scratch.new_subdirectory(f"restore-{new_ulid()}")
    try:
        yield directory
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


@asynccontextmanager
async def _everything_held(site: JobSite, tenant: str) -> AsyncIterator[str]:
    """No blob of the tenant is condemned from now on, as while a backup is made: whatever a collector had not yet
    condemned when it next looks for intents stays. That is so for as long as the object is there whose key this
    gives."""
    intent = Intent(new_backup_id(), tenant, clock.stored(site.writer.clock()), PROGRAM)
    key = layout.backup_key(tenant, intent.backup_id, INTENT_NAME)
    await site.store.put(key, intent.to_bytes())
    try:
        async with asyncio.timeout(limits.BACKUP_INTENT_SECONDS_MAX):
            yield key
    except TimeoutError as error:
        raise MemoreeError(Code.TRANSPORT_ERROR, "the restore took too long and was given up; try again") from error
    finally:
        with suppress(ObjectStoreError):  # it is removed by age
            await asyncio.shield(site.store.delete(key))


async def _condemned(site: JobSite, tenant: str) -> list[Condemned]:
    """What a collector may be deleting. A tenant that cannot be read is not collected either."""
    for tries_left in reversed(range(SNAPSHOT_TRIES_MAX)):
        try:
            rows, _ = await site.tenancy(tenant).snapshot(condemned_now)
        except MemoreeError as error:
            if error.code not in (Code.INDEX_NOT_READY, Code.INTEGRITY_ERROR):
                raise
            if not tries_left:
                log.warning("tenant %s cannot be read, and is replaced as it is: %s", tenant, error)
                return []
            await asyncio.sleep(SNAPSHOT_RETRY_SECONDS)
        else:
            return rows
    raise AssertionError("the last try returns")


async def _head(site: JobSite, tenant: str) -> Head | None:
    reading = await HeadFile(site.store, layout.tenant_prefix(tenant)).read()
    return reading.head if reading is not None else None


async def _require_replaceable(site: JobSite, tenant: str, options: Options) -> None:
    """Before anything large is fetched; the reign looks again."""
    head = await _head(site, tenant)
    if head is not None and is_alive(head) and not options.replace:
        raise _alive(tenant, head)


def _alive(tenant: str, head: Head) -> MemoreeError:
    return MemoreeError(
        Code.CONFIG_ERROR,
        f"tenant {tenant} stands at commit {head.commit_seq}, which a restore would undo; --replace does that, and "
        "--as NAME restores into a new tenant",
    )


def _nothing_that_old(tenant: str, wanted: UpToCommit | UpToTime) -> NoReturn:
    [(what, which)] = asked_for(wanted).items()
    raise MemoreeError(
        Code.NOT_FOUND,
        f"nothing of tenant {tenant} up to {what} {which} can be restored any more; `memoree restore --list` tells "
        "what can, `memoree backup list` which backups there are",
    )


# --- the new epoch ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Origin:
    """`memoree.writer.origin.Origin` of a past. `replaces` is whether the tenant was found alive."""

    site: JobSite
    past: _Past
    target: str
    options: Options
    replaces: bool
    kind: Literal["restore"] = "restore"
    intent: str | None = None
    """The key of what keeps the tenant's blobs from being collected, if it has any."""
    condemned: Sequence[Condemned] = ()
    erasures: Sequence[Erasure] = ()
    fetched: bool = False
    adopted: Adopted | None = None
    erased: Sequence[Erasure] = ()
    """Of which the adopted database tells."""

    async def read_erasures(self) -> Sequence[Erasure]:
        """Also those of the tenant that the past belongs to, wherever they are recorded."""
        source = self.past.source
        places = {Place(self.site.store, self.target), Place(self.site.store, source.tenant), source}
        found = [erasure for place in places for erasure in await recorded(place.store, place.tenant)]
        self.erasures = list({erasure.erasure_id: erasure for erasure in found}.values())
        return self.erasures

    async def fetch(self, path: Path) -> None:
        """What was erased until the claim fenced out the last writer is on record by now, and nobody condemns anything
        from now on."""
        await self._require_intent()
        await self.read_erasures()
        self.fetched = True
        await asyncio.to_thread(shutil.move, self.past.database, path)

    async def _require_intent(self) -> None:
        """Raises `TRANSPORT_ERROR` when blobs may have been collected that were found before."""
        if self.intent is not None:
            try:
                await self.site.store.head(self.intent)
            except ObjectMissing:
                raise MemoreeError(
                    Code.TRANSPORT_ERROR,
                    f"{self.intent} was removed, as when a restore takes a day or its tenant is deleted; nothing was "
                    "restored, try again",
                ) from None

    def adopt(self, db: apsw.Connection, head: Head) -> None:
        if is_alive(head) and not self.options.replace:
            raise _alive(self.target, head)
        if is_alive(head) and not self.replaces:
            raise MemoreeError(Code.TRANSPORT_ERROR, f"tenant {self.target} came to life meanwhile; try again")
        adoption = Adoption(
            asked=self.past.asked,
            condemned=self.condemned,
            erasures=self.erasures,
            facts=self.site.writer.facts,
            clock=self.site.writer.clock,
        )
        self.adopted = adopt(db, head, adoption)
        self.erased = told_by(db, with_blobs=True)


async def _reign_once(site: JobSite, target: str, origin: _Origin) -> Adopted:
    """Begin an epoch with the past and give it up at once: the next writer continues it."""
    reign = await _begin(site, target, origin)
    try:
        await _record_erased(site, target, origin.erased)
        with suppress(HeadLost):  # head has covered it, and somebody went on from there
            await reign.settle()
    finally:
        await reign.abandon()
    assert origin.adopted is not None, "no reign begins otherwise"
    return origin.adopted


async def _record_erased(site: JobSite, target: str, erased: Sequence[Erasure]) -> None:
    """Of erasures that never took place there is no record, so head moves first. It is no failure of a restore that is
    done: the next collection of garbage records what is not."""
    for store in (site.store, site.second):
        if store is not None:
            try:
                await record_missing(store, target, erased)
            except ObjectStoreError as error:
                log.warning("the erasures of tenant %s are not all recorded yet: %s", target, error)


async def _begin(site: JobSite, target: str, origin: _Origin) -> Reign:
    for _ in range(CLAIM_TRIES_MAX):
        try:
            return await Reign.begin(target, site.writer, unleased=origin.replaces, origin=origin)
        except HeadLost as lost:
            if origin.fetched:
                raise _rivalled(target) from lost
        except LeaseHeld as held:
            raise MemoreeError(
                Code.TRANSPORT_ERROR,
                f"a writer has just begun with tenant {target}; try again",
                retry_after_seconds=held.seconds,
            ) from held
    raise _rivalled(target)


def _rivalled(target: str) -> MemoreeError:
    return MemoreeError(Code.TRANSPORT_ERROR, f"another writer of tenant {target} was faster; nothing was restored")

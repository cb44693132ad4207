"""Garbage collection of blobs in an object store (design §8).

A DELETE that timed out is executed later all the same. So blobs are condemned first, by the tenant's writer: from when
head covers that, no command can cite them. Only then are deletes sent, each with an end of its own, and none late; and
only when the last of them must be over does the next run have the writer release them. A crash at any point leaves
blobs condemned, which the next run releases.

Rows go only when they are erased, so a blob becomes garbage when its command was refused, its writer died, or a restore
went back to before it. What an erasure condemned needs no grace, and a published backup does not keep it that cites it
from nothing but what was erased, which is erased again when it is restored. In this history that is so of every backup
and every point in time. A past that a restore gave up may cite it from something else, so it is treated as any garbage
as long as such a past may come back.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import apsw

from memoree import clock, erasures, limits
from memoree.backup import record
from memoree.backup.erased import named_blobs, only_erased_in
from memoree.backup.record import BackupRecord
from memoree.concurrency import for_each
from memoree.crashpoints import reach
from memoree.database import condemned, events
from memoree.database.condemned import Condemned
from memoree.erasures import Erasure
from memoree.ids import new_ulid
from memoree.jobs.tenancy import Tenancy
from memoree.objects import ObjectInfo, ObjectMissing, ObjectStoreError
from memoree.objects.blobs import blob_key, blob_prefix, digest_in
from memoree.objects.presigned import Send, sending
from memoree.objects.removal import Removal, remove_each


@dataclass(frozen=True, slots=True)
class Grace:
    """A blob that nothing holds is garbage once it is older than both of these, and than a day at least."""

    unused_seconds: float = limits.COLLECT_GRACE_SECONDS_MIN
    point_in_time_seconds: float = limits.POINT_IN_TIME_SECONDS

    @property
    def age(self) -> timedelta:
        seconds = max(self.unused_seconds, self.point_in_time_seconds, limits.COLLECT_GRACE_SECONDS_MIN)
        return timedelta(seconds=seconds)


@dataclass(slots=True)
class Collection:
    """What a run did. `deletes` are those it sent, `bytes` what the blobs of the confirmed ones had together. `kept` of
    what it condemned turned out to be held, fresh or gone; `condemned` blobs wait for a later run to release them.
    `waits_for` says what holds everything, if anything does."""

    tenant: str
    deletes: Removal = field(default_factory=Removal)
    bytes: int = 0
    kept: int = 0
    released: int = 0
    condemned: int = 0
    waits_for: str | None = None

    def to_wire(self) -> dict[str, Any]:
        return {
            "tenant": self.tenant,
            "deleted_blobs": self.deletes.removed,
            "deleted_bytes": self.bytes,
            "failed_deletes": self.deletes.failed,
            "failures": self.deletes.failures,
            "kept_blobs": self.kept,
            "released_blobs": self.released,
            "condemned_blobs": self.condemned,
            "waits_for": self.waits_for,
        }


async def collect(
    tenancy: Tenancy,
    grace: Grace | None = None,
    *,
    send: Send | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Collection:
    """One run. It may be repeated, killed, and run twice at a time; deletes that failed are told, not raised.

    Raises `ObjectStoreError`, and `MemoreeError` for a tenant or a backup that cannot be read and for a writer that
    does not answer; whatever was done until then is finished by the next run.
    """
    async with AsyncExitStack() as stack:
        if send is None:
            send = await stack.enter_async_context(sending())
        return await _Run(tenancy, grace or Grace(), send, monotonic).run()


async def collect_erased(tenancy: Tenancy) -> Collection:
    """Only what erasures condemned, at once. Raises as `collect`."""
    async with sending() as send:
        return await _Run(tenancy, Grace(), send, time.monotonic).run_erased()


@dataclass(frozen=True, slots=True)
class _Earlier:
    """What earlier runs and erasures left condemned, and when the store was last restored, in stored form."""

    collected: list[Condemned]
    erased: list[Condemned]
    last_restore: str | None

    @property
    def erased_digests(self) -> frozenset[str]:
        return frozenset(row.digest.hex() for row in self.erased)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The blobs that one command condemned, by digest, and when: by this host's clocks, before it was sent."""

    rows: dict[str, Condemned]
    history: int
    commit_seq: int
    monotonic: float
    instant: datetime


class _Run:
    def __init__(self, tenancy: Tenancy, grace: Grace, send: Send, monotonic: Callable[[], float]) -> None:
        self._tenancy = tenancy
        self._store = tenancy.store
        self._tenant = tenancy.tenant
        self._send = send
        self._monotonic = monotonic
        self._now = tenancy.clock()
        self._grace = grace
        self._known_backups: set[str] = set()
        """Those whose manifests were held against the candidates."""
        self._recorded: list[Erasure] = []
        self._erased: frozenset[str] = frozenset()
        self._history = 0
        self._report = Collection(tenancy.tenant)

    async def run(self) -> Collection:
        earlier = await self._begin()
        doomed = await self._settle(earlier)
        reach("gc_settled")
        if self._report.waits_for is None:
            await self._collect(doomed, old_enough=None)
        if self._report.waits_for is None:
            await self._collect(await self._garbage(), old_enough=self._now - self._grace.age)
        self._report.condemned, _ = await self._tenancy.snapshot(condemned.count)
        return self._report

    async def run_erased(self) -> Collection:
        earlier = await self._begin()
        if await self._is_free() and not self._is_restored_lately(earlier):
            present = set(await self._looked_at(earlier.erased_digests))
            await self._collect(sorted(present - await self._held_by_backups(present)), old_enough=None)
        return self._report

    async def _begin(self) -> _Earlier:
        """What was erased is on record from here on, whatever becomes of the rows that condemn it."""
        told, _ = await self._tenancy.snapshot(partial(erasures.told_by, with_blobs=True))
        await erasures.record_missing(self._store, self._tenant, told)
        self._recorded = await erasures.recorded(self._store, self._tenant)
        earlier, meta = await self._tenancy.snapshot(_earlier)
        self._history = meta.history
        self._erased = earlier.erased_digests | named_blobs(self._recorded)
        return earlier

    # --- step 1: what earlier runs left -------------------------------------------------------------------------

    async def _settle(self, earlier: _Earlier) -> list[str]:
        """Have released what no DELETE can be on its way to, and what was erased and has to stay like other garbage.
        Returns the erased blobs that are still there and may go."""
        over = clock.stored(self._now - timedelta(seconds=limits.COLLECT_RELEASE_SECONDS_MIN))
        present = set(await self._looked_at(earlier.erased_digests))
        if self._is_restored_lately(earlier):
            present = set()
        elif await self._is_free():
            present -= await self._held_by_backups(present)
        rows = [*earlier.collected, *(row for row in earlier.erased if row.digest.hex() not in present)]
        await self._release([row.digest.hex() for row in rows if row.condemned_at <= over])
        return sorted(present)

    def _is_restored_lately(self, earlier: _Earlier) -> bool:
        """The past that a restore replaced can itself be restored as long as the window lasts: rows that no snapshot
        has any more may need any blob."""
        window = timedelta(seconds=self._grace.point_in_time_seconds)
        if earlier.last_restore is None or clock.from_stored(earlier.last_restore) < self._now - window:
            return False
        self._report.waits_for = f"what was before the restore of {clock.wire(earlier.last_restore)}"
        return True

    # --- step 2: candidates -------------------------------------------------------------------------------------

    async def _garbage(self) -> list[str]:
        """Blobs past their grace that neither a row nor a published backup holds, and that are not condemned."""
        self._known_backups.clear()
        found: set[str] = set()
        async with aclosing(self._old_blobs()) as pages:
            async for page in pages:
                unheld, _ = await self._tenancy.snapshot(partial(_without_rows, page))
                found.update(unheld[: limits.COLLECT_RUN_BLOBS_MAX - len(found)])
                if len(found) == limits.COLLECT_RUN_BLOBS_MAX:
                    break
        if found:
            found -= await self._held_by_backups(found)
        return sorted(found)

    async def _old_blobs(self) -> AsyncGenerator[list[bytes], None]:
        """Digests in ascending order, a page at a time."""
        before = self._now - self._grace.age
        page: list[bytes] = []
        async for info in self._store.list(blob_prefix(self._tenant)):
            digest = digest_in(self._tenant, info.key)
            if digest is not None and info.last_modified < before:
                page.append(bytes.fromhex(digest))
            if len(page) == limits.COLLECT_PAGE_OBJECTS:
                yield page
                page = []
        if page:
            yield page

    async def _held_by_backups(self, digests: Container[str]) -> set[str]:
        """Those that backups hold which were not looked through before."""
        held: set[str] = set()
        for backup in await record.records(self._store, self._tenant):
            if backup.backup_id not in self._known_backups:
                async with aclosing(record.manifest_refs(self._store, backup)) as refs:
                    named = {ref.digest.hex() async for ref in refs if ref.digest.hex() in digests}
                held |= named - await self._unneeded(backup, named)
                self._known_backups.add(backup.backup_id)
        return held

    async def _unneeded(self, backup: BackupRecord, named: set[str]) -> frozenset[str]:
        """Of what no row cites, the blobs that the backup cites only from what was erased. Its database has to be asked
        where its rows may be others than those of this history, which go only when they are erased."""
        erased = self._erased & named
        if not erased or backup.history == self._history:
            return erased
        return erased & await only_erased_in(self._store, backup, self._recorded)

    async def _is_free(self) -> bool:
        """Whether no backup is under way, which would hold everything."""
        begun = [intent for intent in await record.intents(self._store, self._tenant) if not intent.published]
        if begun:
            self._report.waits_for = f"the backup {begun[0].backup_id}, which is not finished"
        return not begun

    # --- steps 3 to 6 -------------------------------------------------------------------------------------------

    async def _collect(self, digests: list[str], *, old_enough: datetime | None) -> None:
        """Condemn and delete, a batch at a time. Only blobs written before `old_enough` go, except erased ones."""
        for start in range(0, len(digests), limits.COLLECT_BLOBS_MAX):
            if self._report.waits_for is not None:
                return
            sentence = await self._condemn(digests[start : start + limits.COLLECT_BLOBS_MAX])
            reach("gc_condemned")
            doomed = await self._confirmed(sentence, old_enough)
            await self._delete(sentence, doomed)
            reach("gc_deleted")
            spared = [digest for digest in sentence.rows if digest not in doomed]
            self._report.kept += len(spared)
            if old_enough is not None:
                await self._release(spared, commit_seq=sentence.commit_seq)

    async def _condemn(self, digests: list[str]) -> _Sentence:
        """Step 3. When this returns head covers it: whatever is applied from now on cites none of these."""
        monotonic, instant = self._monotonic(), self._tenancy.clock()
        result = await self._tenancy.submit(condemned.CONDEMN, {"digests": digests}, key=f"gc_{new_ulid()}")
        # A command that condemned nothing names the commit before it, which may be another run's.
        rows, _ = await self._tenancy.snapshot(partial(_rows_of, digests if result["blobs"] else []))
        own = {
            digest: row
            for digest, (row, is_erased) in rows.items()
            if row.condemned_at == result["condemned_at"] and (is_erased or row.commit_seq == result["commit_seq"])
        }
        return _Sentence(own, self._history, result["commit_seq"], monotonic, instant)

    async def _confirmed(self, sentence: _Sentence, old_enough: datetime | None) -> dict[str, ObjectInfo]:
        """Steps 4 and 5, up to the delete: what is still there, held by nothing, and not written anew."""
        if not await self._is_free():
            return {}
        held = await self._held_by_backups(sentence.rows)
        present = await self._looked_at([digest for digest in sentence.rows if digest not in held])
        if old_enough is None:
            return present
        return {digest: info for digest, info in present.items() if info.last_modified < old_enough}

    async def _delete(self, sentence: _Sentence, doomed: Mapping[str, ObjectInfo]) -> None:
        """Step 5. The URLs are made before head is read again: however long this process then stands still, the store
        refuses what comes late."""
        urls = {
            digest: self._store.presigned_delete(info.key, expires_seconds=limits.COLLECT_DELETE_EXPIRES_SECONDS)
            for digest, info in doomed.items()
        }
        rows, meta = await self._tenancy.snapshot(partial(_rows_of, list(doomed)))
        reach("gc_confirmed")

        async def send(digest: str) -> None:
            row, _ = rows.get(digest, (None, False))
            if row != sentence.rows[digest] or meta.history != sentence.history:
                raise ObjectStoreError("it is no longer condemned as it was")
            if self._age_of(sentence) > limits.COLLECT_SEND_SECONDS_MAX:
                raise ObjectStoreError("it was condemned too long ago to delete it in time")
            url = urls[digest]
            await (self._store.delete(doomed[digest].key) if url is None else self._send(url))
            self._report.bytes += doomed[digest].size

        self._report.deletes.include(await remove_each(doomed, send))

    def _age_of(self, sentence: _Sentence) -> float:
        """Seconds. A host that slept counts them by its calendar only, one whose clock is set by the other."""
        by_calendar = (self._tenancy.clock() - sentence.instant).total_seconds()
        return max(self._monotonic() - sentence.monotonic, by_calendar)

    async def _release(self, digests: Sequence[str], *, commit_seq: int | None = None) -> None:
        """Step 6, or back from step 3."""
        own = {} if commit_seq is None else {"commit_seq": commit_seq}
        for start in range(0, len(digests), limits.COLLECT_BLOBS_MAX):
            batch = list(digests[start : start + limits.COLLECT_BLOBS_MAX])
            result = await self._tenancy.submit(condemned.RELEASE, {"digests": batch, **own}, key=f"gc_{new_ulid()}")
            self._report.released += result["blobs"]

    async def _looked_at(self, digests: Iterable[str]) -> dict[str, ObjectInfo]:
        """The blobs that are there now."""
        found: dict[str, ObjectInfo] = {}

        async def look(digest: str) -> None:
            with suppress(ObjectMissing):
                found[digest] = await self._store.head(blob_key(self._tenant, digest))

        await for_each(digests, look, at_once=limits.JOB_REQUESTS_AT_ONCE_MAX)
        return found


def _earlier(db: apsw.Connection) -> _Earlier:
    earlier = _Earlier([], [], events.last_restore(db))
    for row in condemned.rows(db):
        (earlier.erased if condemned.is_erased(db, row) else earlier.collected).append(row)
    return earlier


def _without_rows(page: Sequence[bytes], db: apsw.Connection) -> list[str]:
    """Those of a page, in ascending order, that no revision needs and nobody condemned."""
    cited = set(condemned.cited_between(db, page[0], page[-1]))
    return [digest.hex() for digest in page if digest not in cited and condemned.find(db, digest) is None]


def _rows_of(digests: Sequence[str], db: apsw.Connection) -> dict[str, tuple[Condemned, bool]]:
    """The rows of those that are condemned, and whether an erasure did it."""
    found = (condemned.find(db, bytes.fromhex(digest)) for digest in digests)
    return {row.digest.hex(): (row, condemned.is_erased(db, row)) for row in found if row is not None}

"""One writer's reign over one tenant: an epoch, from takeover to release or loss (design §5.2, §5.3).

A reign owns a local directory, a database connection and a Litestream child of its own. All writes of head go
through one lock, so commits, renewals, settling and release happen in order.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import apsw

from memoree.clock import stored, utc_now
from memoree.command import Command
from memoree.crashpoints import reach
from memoree.database import attempts, compaction, meta, schema
from memoree.database.connection import open_writer
from memoree.database.meta import Meta
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId, new_ulid
from memoree.objects import ObjectStoreError, PreconditionFailed
from memoree.objects.blobs import BlobStore, tenant_directory_name
from memoree.objects.loop_blobs import LoopBlobs
from memoree.operations.view import BlobPresence
from memoree.replication import layout, tombstone
from memoree.replication.head import Head, HeadFile, HeadLost, HeadReading
from memoree.replication.lineage import LedgerEntry, ledger_entry
from memoree.replication.litestream import LitestreamGone, NotRestorable, SyncAmbiguous
from memoree.replication.ltx import LtxName, parse_name, restorable_boundaries
from memoree.replication.tombstone import TenantDeleted
from memoree.writer.environment import WriterEnvironment
from memoree.writer.group_commit import Committed, GroupCommitter
from memoree.writer.origin import Origin

RESTORE_TRIES_MAX = 5
MIGRATION_PROGRESS_STEPS = 10_000
"""Of SQLite's virtual machine, between two looks at a migration: milliseconds."""
SYNC_RETRY_SECONDS_MIN = 0.05
SYNC_RETRY_SECONDS_MAX = 1.0
DATABASE_NAME = "tenant.sqlite3"

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class LeaseHeld(Exception):
    """Another writer's lease may still hold; nothing was changed."""

    def __init__(self, owner: str | None, seconds: float) -> None:
        super().__init__(f"the lease of {owner} may hold for {seconds:.1f} s")
        self.seconds = seconds


class BatchFailed(Exception):
    """Deciding a batch met a fault that is no refusal. It was rolled back whole; the reign is sound and goes on."""


@dataclass(frozen=True, slots=True)
class Parentage:
    """Where an epoch came from: the reign before it, and up to where that one's prefix belongs to the past."""

    kind: str
    epoch: int
    txid: int
    batch: int


class Reign:
    """An epoch this process holds. Made by `Reign.begin`; not for use by two tasks at a time."""

    def __init__(self, tenant: str, environment: WriterEnvironment, head: HeadReading) -> None:
        self.tenant = tenant
        self.settled = False
        self.used_at = time.monotonic()
        """When it last began or ended a piece of work: idleness counts from here."""
        self._environment = environment
        self._head_file = HeadFile(environment.store, layout.tenant_prefix(tenant))
        self._head = head
        self._head_lock = asyncio.Lock()
        self._head_moved_at = time.monotonic()
        self._lost = False
        self._progress_at: float | None = time.monotonic()
        """When the work at hand last got on; `None` while nothing has to: idle, or restoring, which has a deadline
        of its own, longer than the watchdog's."""
        self._loop = asyncio.get_running_loop()
        owner = head.head.owner
        assert owner is not None
        self.prefix = layout.epoch_prefix(head.head.epoch, owner)
        self._directory = environment.directory.new_subdirectory(
            f"{tenant_directory_name(tenant)}/{head.head.epoch:08}-{owner[-8:]}"
        )
        self._database = self._directory / DATABASE_NAME
        self._db: apsw.Connection | None = None
        self._committer: GroupCommitter | None = None
        self._litestream = environment.replicator.child(self._database, layout.tenant_prefix(tenant) + self.prefix)
        self._heartbeat: asyncio.Task[None] | None = None

    @property
    def head(self) -> Head:
        return self._head.head

    # --- beginning ----------------------------------------------------------------------------------------------

    @classmethod
    async def begin(
        cls,
        tenant: str,
        environment: WriterEnvironment,
        *,
        unleased: bool = False,
        reaped_owner: str | None = None,
        origin: Origin | None = None,
        asked_history: int = 0,
    ) -> Reign:
        """Take the tenant over as a new epoch, or give birth to it. The lease of `reaped_owner`, an ended reign of
        the caller's own, is not waited for, and with `unleased` nobody's is: for a supervisor that reaped its own
        writer. The epoch's compare-and-swap is the fence either way. With an `origin` the epoch begins with that in
        place of what is there, all at once, when this returns; should it fail, nothing has changed but the number.

        A tenant that was deleted is founded anew with an `origin`, or when `asked_history`, the newest of the commands
        that ask for it, is one after the deletion.

        Raises `LeaseHeld`, `HeadLost` (a rival was faster), `TenantDeleted`, `StoreUnavailable`, and `MemoreeError` for
        damage.
        """
        founds = None if origin is not None else asked_history
        reading = await cls._claim(tenant, environment, founds, unleased=unleased, reaped_owner=reaped_owner)
        reach("takeover_claimed")
        reign = cls(tenant, environment, reading)
        reign._heartbeat = asyncio.create_task(reign._renew_lease())
        try:
            await reign._take_over(origin)
        except BaseException:
            await reign.abandon()
            raise
        reign._rest()
        return reign

    @staticmethod
    async def _claim(
        tenant: str,
        environment: WriterEnvironment,
        asked_history: int | None,
        *,
        unleased: bool,
        reaped_owner: str | None,
    ) -> HeadReading:
        """Step 1: from its success on, the old writer can no longer commit."""
        head_file = HeadFile(environment.store, layout.tenant_prefix(tenant))
        reading = await head_file.read()
        if reading is None:
            buried = await tombstone.find(environment.store, tenant)
            if buried is not None and asked_history is not None and asked_history <= buried.history:
                raise TenantDeleted(f"it was deleted at {buried.deleted_at}")
            history = buried.next_history if buried is not None else 0
            reading = await head_file.create(schema.SCHEMA_VERSION, schema.EMPTY_INTEGRITY.hex(), history=history)
        schema.check_version(reading.head.schema_version)
        left = reading.lease_seconds_left(environment.timings.lease_ttl)
        if left > 0 and not unleased and reading.head.owner != reaped_owner:
            raise LeaseHeld(reading.head.owner, left)
        claim = replace(reading.head, epoch=reading.head.epoch + 1, owner=new_ulid(), released_at=None)
        return await head_file.swap(reading, claim)

    async def _take_over(self, origin: Origin | None) -> None:
        """Steps 2 to 4: our own copy of everything, replicated whole, before head points at it."""
        if origin is None:
            parentage = await self._continue_parent()
        else:
            parentage = await self._start_from(origin)
        await self._in_thread(self._compact, self._connection)
        counters = await self._in_thread(meta.read, self._connection)
        await self._write_ledger(parentage, counters)
        reach("takeover_ledger")
        await self._litestream.start()
        txid = await self._sync()
        reach("takeover_synced")
        await self._move_head(counters, txid)
        reach("takeover_done")
        log.info("tenant %s: epoch %d begins at commit %d", self.tenant, self.head.epoch, counters.commit_seq)

    async def _continue_parent(self) -> Parentage:
        """Step 2: everything that was ever covered, and what else the old prefix holds."""
        parent = self.head.prefix
        parent_txid = await self._restore(parent) if parent is not None else 0
        self._progress()
        reach("takeover_restored")
        counters = await self._in_thread(self._open_database)
        if parent is None:
            counters.history = self.head.history
            await self._in_thread(meta.write, self._connection, counters)
        self._check_not_behind(counters, parent)
        kind = "takeover" if parent is not None else "birth"
        return Parentage(kind, counters.epoch, parent_txid, counters.batch)

    async def _start_from(self, origin: Origin) -> Parentage:
        """Step 2 replaced. The ledger tells where the past that it replaces ended, as head covered it."""
        self._progress_at = None
        await origin.fetch(self._database)
        self._progress()
        reach("takeover_restored")
        await self._in_thread(self._open_database)
        await self._in_thread(origin.adopt, self._connection, self.head)
        reach("takeover_adopted")
        head = self.head
        parent_epoch = layout.epoch_of(head.prefix) if head.prefix is not None else 0
        return Parentage(origin.kind, parent_epoch, head.txid, head.batch)

    async def _restore(self, prefix: str) -> int:
        """Step 2: the newest state the old prefix can give, uncovered commits included; returns its TXID."""
        self._progress_at = None
        for _ in range(RESTORE_TRIES_MAX):
            boundaries = restorable_boundaries(await self._ltx_names(prefix))
            if not boundaries:
                break
            try:
                await self._environment.replicator.restore(
                    layout.tenant_prefix(self.tenant) + prefix, boundaries[-1], self._database
                )
            except NotRestorable:
                continue  # compaction or retention changed the prefix after it was listed
            return boundaries[-1]
        raise MemoreeError(Code.INTEGRITY_ERROR, f"tenant {self.tenant}: nothing in {prefix} can be restored")

    async def _ltx_names(self, prefix: str) -> list[LtxName]:
        keys = self._environment.store.list(layout.tenant_prefix(self.tenant) + prefix)
        names = [parse_name(info.key) async for info in keys]
        return [name for name in names if name is not None]

    def _open_database(self) -> Meta:
        self._db = open_writer(self._database, replicated=True)
        self._migrate(self._db)
        self._committer = GroupCommitter(
            self._db,
            LoopBlobs(BlobStore(self._environment.store, self.tenant), self._loop),
            self._environment.facts,
            self._environment.clock,
            self._environment.quota_default,
        )
        return meta.read(self._db)

    def _migrate(self, db: apsw.Connection) -> None:
        with self._getting_on(db):
            schema.create_or_migrate(db)

    def _compact(self, db: apsw.Connection) -> None:
        """What an erasure left between the rows goes before anything of this copy is replicated."""
        if not compaction.is_compact(db):
            with self._getting_on(db):
                compaction.compact(db)

    @contextmanager
    def _getting_on(self, db: apsw.Connection) -> Iterator[None]:
        """A large store takes longer than the watchdog waits, and no rival would be any faster: as long as SQLite gets
        on, the lease is kept."""

        def got_on() -> bool:
            self._progress()
            return False

        db.set_progress_handler(got_on, MIGRATION_PROGRESS_STEPS)
        try:
            yield
        finally:
            db.set_progress_handler(None)

    def _check_not_behind(self, counters: Meta, parent: str | None) -> None:
        """What was covered must be there: otherwise acknowledged writes are missing, and nobody may go on."""
        head = self.head
        expected_epoch = layout.epoch_of(parent) if parent is not None else 0
        is_lineage = (counters.epoch, counters.history) == (expected_epoch, head.history)
        if not is_lineage or counters.batch < head.batch or counters.commit_seq < head.commit_seq:
            raise MemoreeError(
                Code.INTEGRITY_ERROR,
                f"tenant {self.tenant}: {parent} restores to history {counters.history}, epoch {counters.epoch}, batch "
                f"{counters.batch}, commit {counters.commit_seq}; head covers history {head.history}, batch "
                f"{head.batch}, commit {head.commit_seq}",
            )

    async def _write_ledger(self, parentage: Parentage, counters: Meta) -> None:
        """Step 3: which prefix continues which, written once; then the database says which epoch it is."""
        store, epoch = self._environment.store, self.head.epoch
        entry = LedgerEntry(
            kind=parentage.kind,
            prefix=self.prefix,
            parent_epoch=parentage.epoch,
            parent_txid=parentage.txid,
            parent_batch=parentage.batch,
            base_commit_seq=counters.commit_seq,
            at=stored(utc_now()),
        )
        try:
            await store.put(layout.epoch_ledger_key(self.tenant, epoch), entry.to_bytes(), if_absent=True)
        except PreconditionFailed:
            present = await ledger_entry(store, self.tenant, epoch)
            if present is None or present.prefix != self.prefix:
                raise HeadLost(f"epoch {epoch} is in the ledger already") from None
        async for _ in self._environment.store.list(layout.tenant_prefix(self.tenant) + self.prefix):
            raise MemoreeError(Code.INTEGRITY_ERROR, f"tenant {self.tenant}: {self.prefix} is not empty")
        counters.epoch = self.head.epoch
        await self._in_thread(meta.write, self._connection, counters)

    # --- committing ---------------------------------------------------------------------------------------------

    async def commit(self, commands: Sequence[Command], presence: BlobPresence) -> Committed:
        """Apply a batch and cover it. When this returns, its outcomes may be acknowledged.

        Raises `BatchFailed` and `ObjectStoreError`, after which the reign goes on; after any other exception it
        must be abandoned.
        """
        return await self._commit(lambda committer: committer.commit(commands, presence))

    async def _commit(self, decide: Callable[[GroupCommitter], Committed]) -> Committed:
        self._check_held()
        self._progress()
        committed = await self._decided(decide)
        reach("applied")
        if committed.batch_to_cover > self.head.batch:
            txid = await self._sync()
            reach("synced")
            await self._move_head(committed.meta, txid)
        self._rest()
        return committed

    async def _decided(self, decide: Callable[[GroupCommitter], Committed]) -> Committed:
        """Run the transaction. A fault of the database itself (`apsw.Error`) is the end of this copy of it; a blob
        that could not be read for lack of an answer is the store's fault, not the batch's."""
        assert self._committer is not None
        try:
            return await self._in_thread(decide, self._committer)
        except apsw.Error:
            raise
        except Exception as error:
            if self._connection.in_transaction:
                raise
            self._rest()
            if isinstance(error, ObjectStoreError):
                raise
            raise BatchFailed(f"deciding a batch failed: {error!r}") from error

    async def is_compact(self) -> bool:
        """Whether the database was rewritten since the last erasure; only a new reign does that."""
        return await self._in_thread(compaction.is_compact, self._connection)

    def has_decided(self, attempt_id: AttemptId) -> bool:
        """Whether the attempt is decided already, covered or not."""
        return attempts.find(self._connection, attempt_id) is not None

    async def refuse(self, attempt_id: AttemptId, error: MemoreeError) -> Committed:
        """Decide an attempt against it without trying it, unless it is decided already, and cover that."""
        return await self._commit(lambda committer: committer.refuse(attempt_id, error))

    async def _sync(self) -> int:
        """Everything committed is in the prefix; returns its TXID. Until that is certain nothing else is done."""
        pause = SYNC_RETRY_SECONDS_MIN
        while True:
            self._check_held()
            try:
                synced = await self._litestream.sync(self._environment.timings.sync_timeout)
            except SyncAmbiguous as error:
                log.warning("tenant %s: sync is undecided, asking again: %s", self.tenant, error)
            except LitestreamGone as error:
                log.warning("tenant %s: restarting Litestream: %s", self.tenant, error)
                await self._restart_child()
            else:
                self._progress()
                return synced.replicated_txid
            self._progress()
            await asyncio.sleep(pause)
            pause = min(pause * 2, SYNC_RETRY_SECONDS_MAX)

    async def _restart_child(self) -> None:
        self._check_held()
        try:
            await self._litestream.restart()
        except LitestreamGone as error:
            log.warning("tenant %s: Litestream does not start: %s", self.tenant, error)

    async def _move_head(self, counters: Meta, txid: int, *, released_at: str | None = None) -> None:
        """The commit point."""
        await self._swap_head(
            history=counters.history,
            prefix=self.prefix,
            txid=txid,
            batch=counters.batch,
            commit_seq=counters.commit_seq,
            hlc=counters.hlc,
            schema_version=counters.schema_version,
            integrity=counters.integrity.hex(),
            released_at=released_at,
        )

    async def _swap_head(self, **changes: Any) -> None:
        async with self._head_lock:
            self._check_held()
            try:
                self._head = await self._head_file.swap(self._head, replace(self.head, **changes))
            except BaseException:  # lost, damaged, or cancelled and so undecided: nothing may follow
                await self._fall()
                raise
            self._head_moved_at = time.monotonic()

    # --- the lease ----------------------------------------------------------------------------------------------

    async def _renew_lease(self) -> None:
        """The heartbeat: keeps the lease while the writer makes progress, also during long syncs and restores."""
        timings = self._environment.timings
        while True:
            await asyncio.sleep(timings.lease_renew / 2)
            now = time.monotonic()
            hung = self._progress_at is not None and now - self._progress_at > timings.watchdog
            if hung or now - self._head_moved_at < timings.lease_renew:
                continue
            try:
                await self._swap_head()
            except Exception as error:  # whatever it was, the reign is lost, and whoever works in it will notice
                log.warning("tenant %s: the reign is over: %s", self.tenant, error)
                return

    def _progress(self) -> None:
        """The work at hand got on: the heartbeat may go on."""
        self.used_at = self._progress_at = time.monotonic()

    def _rest(self) -> None:
        """The work is done; an idle reign keeps its lease until it is settled."""
        self.used_at = time.monotonic()
        self._progress_at = None

    def _check_held(self) -> None:
        if self._lost:
            raise HeadLost(f"epoch {self.head.epoch} of tenant {self.tenant} was lost")

    async def _fall(self) -> None:
        """Another writer reigns: stop uploading before anything else. A clean stop would upload once more."""
        self._lost = True
        await self._litestream.kill()

    # --- resting and ending -------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Release the lease and stop the child; from now on the tenant costs no request. Raises `HeadLost`."""
        self._check_held()
        self._progress()
        counters = await self._in_thread(meta.read, self._connection)
        txid = await self._sync()
        async with self._head_lock:  # never in the middle of a renewal, which would leave head undecided
            await self._stop_heartbeat()
        await self._litestream.stop()
        reach("settling")
        # With all its counters: a TXID alone could name a state that head does not vouch for.
        await self._move_head(counters, txid, released_at=stored(utc_now()))
        self.settled = True

    async def resume(self) -> None:
        """Continue a settled epoch, if head is exactly as this process left it. Raises `HeadLost`."""
        await self._swap_head(released_at=None)
        self.settled = False
        self._progress()
        self._heartbeat = asyncio.create_task(self._renew_lease())
        await self._restart_child()

    async def abandon(self) -> None:
        """End the reign without a trace: kill the child, close the database, remove the directory."""
        await self._stop_heartbeat()
        try:
            await self._fall()
        finally:
            if self._db is not None:
                await self._in_thread(self._db.close)
                self._db = None
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            await asyncio.gather(self._heartbeat, return_exceptions=True)
            self._heartbeat = None

    # --- small things -------------------------------------------------------------------------------------------

    @property
    def _connection(self) -> apsw.Connection:
        assert self._db is not None
        return self._db

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Cancelled, it still waits for the thread: nobody else may touch the connection before it is done."""
        running = self._loop.run_in_executor(self._environment.executor, work, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait((running,))
            raise

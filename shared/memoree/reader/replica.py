"""A reader's local copy of one tenant, brought forward by the change files themselves (design §6.1).

Two copies: readers open the active one, changes go to the idle one while nobody has it open, then they swap. No
file is ever written while a connection reads it. A state is shown only when its epoch, batch and commit equal
those of the head that named it: change files of two lineages apply cleanly onto each other, so this comparison
is the only proof of lineage.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw

from memoree import limits
from memoree.database import schema
from memoree.database.connection import open_writer
from memoree.database.meta import Meta
from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectMissing, StoreUnavailable
from memoree.reader.changes import Changes, GapTooWide
from memoree.reader.environment import ReaderEnvironment
from memoree.reader.generation import Copy, Generation, wait_until_free
from memoree.replication import layout, tombstone
from memoree.replication.head import Head, HeadFile, HeadReading, head_missing
from memoree.replication.litestream import LitestreamError, NotRestorable
from memoree.replication.ltx import LtxError, LtxFile, apply, restorable_boundaries
from memoree.replication.tombstone import Tombstone, deleted

RESTORE_TRIES_MAX = 5
FOREIGN_STATES_MAX = 2
"""So many states in a row that head does not vouch for, and the replica backs off and raises the alarm."""

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class ForeignState(Exception):
    """A copy reached a state that head does not vouch for: another lineage, or damage."""


class NotCovered(Exception):
    """A restored copy is of the right lineage, but ahead of head or of a prefix that head left meanwhile."""


class Replica:
    """One tenant's replica in one process. Its methods run in the event loop; views are used in threads."""

    def __init__(self, tenant: str, environment: ReaderEnvironment, path: Path) -> None:
        """`path` is the start of the names of this replica's files; nobody else may use names that begin so."""
        self.tenant = tenant
        self.used_at = time.monotonic()
        self.in_use_since = self.used_at
        """Monotonic time since when it is used without a long pause; before that nobody kept it near head."""
        self.checked_at = float("-inf")
        """Monotonic time of the last look at head that was followed."""
        self.head_seen_at = float("-inf")
        """Monotonic time of the last look at head that was answered."""
        self._environment = environment
        self._path = path
        self._head_file = HeadFile(environment.store, layout.tenant_prefix(tenant))
        self._reading: HeadReading | None = None
        """The head last followed; readers may be shown what it names."""
        self._head_was_seen = False
        self.tombstone: Tombstone | None = None
        """Of a tenant that was deleted, and not founded anew."""
        self._active: Generation | None = None
        self._spare: Copy | None = None
        self._changes: Changes | None = None
        self._prefix: str | None = None
        self._files_made = 0
        self._users = 0
        self._watchers: dict[asyncio.Future[None], None] = {}
        """In the order in which they began to wait, and are told."""
        self._refreshing: asyncio.Task[None] | None = None
        self._foreign_states = 0
        self._is_damaged = False
        self._backing_off_until = 0.0

    @property
    def generation(self) -> Generation:
        """The newest state readers may see. Raises `INDEX_NOT_READY` when there is none (any more)."""
        if self._active is None:
            raise _not_ready(f"no state of tenant {self.tenant} is loaded")
        return self._active

    @property
    def is_loaded(self) -> bool:
        return self._active is not None

    async def require_not_deleted(self) -> None:
        """Before a write. Raises `FORBIDDEN`, after a fresh look: the tenant may have been founded anew."""
        if self.tombstone is not None:
            await self.refresh_anew()
        if self.tombstone is not None:
            raise deleted(self.tenant)

    @property
    def history(self) -> int:
        """That commands are for: of a deleted tenant, the one in which it may be founded anew."""
        if self.head is not None:
            return self.head.history
        return self.tombstone.next_history if self.tombstone is not None else 0

    @property
    def head(self) -> Head | None:
        """Head as last seen; `None` for a tenant that has none yet."""
        return self._reading.head if self._reading is not None else None

    @property
    def is_alarmed(self) -> bool:
        """Whether the last states fetched were foreign ones, again and again, or head is missing or damaged."""
        return self._foreign_states >= FOREIGN_STATES_MAX or self._is_damaged

    @property
    def is_busy(self) -> bool:
        """Whether a request uses the replica or a refresh is under way: it must not be evicted now."""
        return self._users > 0 or self._refreshing is not None

    @property
    def size_bytes(self) -> int:
        active = self._active.copy if self._active is not None else None
        return sum(copy.size_bytes() for copy in (active, self._spare) if copy is not None)

    async def refresh(self, seconds: float = limits.HEAD_WAIT_SECONDS_MAX) -> None:
        """Look at head and follow it. Concurrent callers share one look, which may have begun before they asked, and
        which goes on when they stop waiting.

        Raises `StoreUnavailable`, also when it takes longer than this; `INTEGRITY_ERROR` for a missing or damaged head;
        `INDEX_NOT_READY` when no state that head vouches for can be had right now.
        """
        look = self.start_refresh()
        if not (await asyncio.wait((look,), timeout=seconds))[0]:
            raise StoreUnavailable(f"no newer state of the store was to be had within {seconds:.1f} s")
        look.result()

    def start_refresh(self) -> asyncio.Task[None]:
        """The look at head under way, or a new one. Whoever does not wait for it need not care how it ends."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
            self._refreshing.add_done_callback(self._refreshed)
        return self._refreshing

    async def refresh_anew(self, seconds: float | None = None) -> None:
        """As `refresh`, by a look at head that begins after this call did."""
        began = time.monotonic()
        seconds = limits.HEAD_WAIT_SECONDS_MAX if seconds is None else seconds
        if (earlier := self._refreshing) is not None:
            await asyncio.wait((earlier,), timeout=seconds)
        await self.refresh(seconds - (time.monotonic() - began))

    async def changed(self, seconds: float) -> None:
        """Return as soon as another state is shown, or after this time: whoever waits sees what somebody else's look
        at head brought."""
        watcher = asyncio.get_running_loop().create_future()
        self._watchers[watcher] = None
        try:
            await asyncio.wait((watcher,), timeout=seconds)
        finally:
            del self._watchers[watcher]

    @contextmanager
    def in_use(self) -> Iterator[Replica]:
        """Keeps the replica from being evicted."""
        self._users += 1
        self.used_at = time.monotonic()
        try:
            yield self
        finally:
            self._users -= 1
            self.used_at = time.monotonic()

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("tenant %s: not refreshed: %s", self.tenant, error)

    async def _refresh(self) -> None:
        if time.monotonic() < self._backing_off_until:
            raise _not_ready("the last states of the tenant were not its own; trying again soon")
        began = time.monotonic()
        try:
            await self._look(began)
        except MemoreeError as error:
            self._is_damaged = error.code is Code.INTEGRITY_ERROR
            raise
        self._is_damaged = False
        self.checked_at = began

    async def _look(self, began: float) -> None:
        if self._reading is not None and self._active is not None:
            try:
                changed = await self._head_file.read_if_changed(self._reading.etag)
            except ObjectMissing:
                if not await self._is_deleted():
                    raise self._missed() from None
                changed = None
            self.head_seen_at = began
            if changed is not None:
                await self._follow(changed)
            return
        reading = await self._head_file.read()
        self.head_seen_at = began
        if reading is not None:
            await self._follow(reading)
        elif await self._is_deleted():
            return
        elif self._head_was_seen or await self._head_file.is_missing():
            raise self._missed()
        elif self._active is None:
            await self._show_empty()

    async def _is_deleted(self) -> bool:
        """Whether a head that is missing was deleted with its tenant: then nothing is kept, and nothing shown."""
        buried = await tombstone.find(self._environment.store, self.tenant)
        founded_anew = self._reading is not None and buried is not None and self._reading.head.history > buried.history
        if buried is None or founded_anew or await self._head_file.is_missing():
            return False
        self.tombstone = buried
        if self._head_was_seen:
            self.discard()
            self._reading, self._head_was_seen = None, False
        if self._active is None:
            await self._show_empty()
        return True

    async def _follow(self, reading: HeadReading) -> None:
        """Show the state that `reading` names, by the cheapest way there is."""
        self._head_was_seen, self.tombstone = True, None
        schema.check_version(reading.head.schema_version)
        if reading.head.prefix is not None:
            schema.check_migrated(reading.head.schema_version)
        try:
            await self._show(reading.head)
        except ForeignState as error:
            self._note_foreign(error)
        except (LtxError, GapTooWide, NotRestorable, NotCovered, OSError, apsw.Error) as error:
            raise _not_ready(f"{type(error).__name__}: {error}") from error
        self._reading = reading

    async def _show(self, head: Head) -> None:
        if self._shows(head):
            return  # a renewal of the lease, or a takeover that has not moved the prefix yet
        shown = self._active
        if shown is not None and shown.meta.history != head.history:
            self.discard()  # nothing of another history may be served, not even while restoring
        elif shown is not None and head.batch < shown.meta.batch:
            raise ForeignState(f"head covers batch {head.batch}, after it had covered {shown.meta.batch}")
        if head.prefix is None:
            await self._show_empty()
        else:
            await self._advance(head)

    def _shows(self, head: Head) -> bool:
        shown = self._active
        return (
            shown is not None
            and self._prefix == head.prefix
            and (shown.meta.history, shown.meta.batch) == (head.history, head.batch)
        )

    async def _advance(self, head: Head) -> None:
        if self._active is not None and self._prefix == head.prefix:
            try:
                await self._apply_changes(head)
                return
            except (GapTooWide, LtxError) as error:
                log.info("tenant %s: restoring instead of applying changes: %s", self.tenant, error)
        await self._restore(head)

    # --- by changes ---------------------------------------------------------------------------------------------

    async def _apply_changes(self, head: Head) -> None:
        assert self._active is not None and self._changes is not None
        target = await self._idle_copy()
        files = await self._changes.between(target.position, head.txid)
        self._spare = None  # whatever fails from here on, this file is no copy of anything
        try:
            generation = await self._in_thread(_brought_forward, target, files, head)
        except BaseException:
            target.discard()
            raise
        retired = self._active
        self._swap(generation)
        self._spare = retired.copy
        self._changes.forget_up_to(self._spare.position)

    async def _idle_copy(self) -> Copy:
        """A file to write to that nobody has open: the spare one, or a third made of the active one."""
        assert self._active is not None
        if self._spare is not None and await wait_until_free(self._spare, limits.IDLE_COPY_WAIT_SECONDS):
            return self._spare
        if self._spare is not None:
            self._spare.discard()  # its slow readers are undisturbed; the next copy has another name
            self._spare = None
        self._spare = await self._in_thread(self._active.copy.duplicate, self._new_path())
        return self._spare

    # --- by restoring -------------------------------------------------------------------------------------------

    async def _restore(self, head: Head) -> None:
        """A fresh copy at the lowest restorable boundary at or after what head names."""
        assert head.prefix is not None
        prefix = layout.tenant_prefix(self.tenant) + head.prefix
        changes = Changes(self._environment.store, prefix, kept_bytes_max=limits.KEPT_CHANGES_BYTES_MAX)
        copy = await self._replayed_copy(changes, head) or await self._restored_copy(prefix, changes, head.txid)
        try:
            if copy.position == head.txid:
                generation = await self._in_thread(_proved, copy, head)
            else:
                generation = await self._in_thread(_proved_covered, copy, head, await self._head_again(head))
        except BaseException:
            copy.discard()
            raise
        if self._spare is not None:
            self._spare.discard()
        if (retired := self._active) is not None:
            retired.copy.discard()
        self._spare, self._changes, self._prefix = None, changes, head.prefix
        self._swap(generation)

    async def _replayed_copy(self, changes: Changes, head: Head) -> Copy | None:
        """What a takeover leaves is read sooner here than by a process of its own."""
        if (files := await changes.from_the_beginning(head.txid)) is None:
            return None
        copy = Copy(self._new_path(), 0)
        try:
            await self._in_thread(_written, copy, files, head)
        except BaseException:
            copy.discard()
            raise
        return copy

    async def _restored_copy(self, prefix: str, changes: Changes, txid: int) -> Copy:
        for _ in range(RESTORE_TRIES_MAX):
            boundary = next((b for b in restorable_boundaries(await changes.available()) if b >= txid), None)
            if boundary is None:
                break
            path = self._new_path()
            try:
                await self._environment.replicator.restore(prefix, boundary, path)
            except NotRestorable:
                continue  # compaction or retention changed the prefix after it was listed
            except LitestreamError as error:
                raise _not_ready(f"restoring failed: {error}") from error
            return Copy(path, boundary)
        raise NotRestorable(f"TXID {txid} of {prefix} cannot be restored")

    async def _head_again(self, head: Head) -> Head:
        """The boundary lay after head: what it holds may be shown only if head covers it by now."""
        reading = await self._head_file.read()
        if reading is None or reading.head.prefix != head.prefix:
            raise NotCovered("head moved to another prefix while its state was restored")
        return reading.head

    async def _show_empty(self) -> None:
        """A tenant that never committed is an empty store at commit 0."""
        self._swap(await self._in_thread(_empty_generation, self._new_path()))

    # --- small things -------------------------------------------------------------------------------------------

    def _swap(self, generation: Generation) -> None:
        retired, self._active = self._active, generation
        self._foreign_states = 0
        if retired is not None:
            retired.retire()
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)

    def _note_foreign(self, error: ForeignState) -> None:
        """Both copies are discarded; after two such states in a row the replica backs off and raises an alarm."""
        self._foreign_states += 1
        self.discard()
        log.error("tenant %s: %s", self.tenant, error)
        if self.is_alarmed:
            steps = limits.RESTORE_BACKOFF_SECONDS
            step = min(self._foreign_states - FOREIGN_STATES_MAX, len(steps) - 1)
            self._backing_off_until = time.monotonic() + steps[step]
        raise _not_ready(str(error)) from error

    def _missed(self) -> MemoreeError:
        """Nothing is kept of a tenant whose head is gone: it may have been deleted, and its text with it."""
        self.discard()
        return head_missing(self._head_file.key)

    def _new_path(self) -> Path:
        self._files_made += 1
        return self._path.with_name(f"{self._path.name}-{self._files_made:06}.sqlite3")

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._environment.executor, work, *arguments)

    def discard(self) -> None:
        """Keep no state; the files go once no request reads them any more."""
        if self._active is not None:
            self._active.copy.discard()
            self._active.retire()
        if self._spare is not None:
            self._spare.discard()
        self._active = self._spare = self._changes = self._prefix = self._reading = None

    async def close(self) -> None:
        if (refreshing := self._refreshing) is not None:
            refreshing.cancel()
            await asyncio.wait((refreshing,))
        self.discard()


def _brought_forward(target: Copy, files: Sequence[LtxFile], head: Head) -> Generation:
    """Apply changes to a copy nobody has open, and prove it. On failure the copy is no copy of anything."""
    _written(target, files, head)
    return _proved(target, head)


def _written(target: Copy, files: Sequence[LtxFile], head: Head) -> None:
    descriptor = os.open(target.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for file in files:
            apply(file, descriptor)
    finally:
        os.close(descriptor)
    target.position = max(head.txid, target.position)


def _proved(copy: Copy, head: Head) -> Generation:
    """The copy as a generation, if it is exactly the state that head names. Raises `ForeignState`."""
    generation, epoch = _opened(copy, head)
    if (found := _identity(generation.meta)) != (named := _named(head, epoch)):
        generation.retire()
        raise ForeignState(f"TXID {copy.position} is {found}; head names {named}")
    return generation


def _proved_covered(copy: Copy, before: Head, now: Head) -> Generation:
    """The copy as a generation, if it lies between the head read before it was restored and the one read after:
    Litestream adds changes of its own, and raw files vanish, so the exact state may not be had any more."""
    generation, epoch = _opened(copy, now)
    found = generation.meta
    message = f"TXID {copy.position} holds batch {found.batch}; head covers {before.batch} to {now.batch}"
    mixed_up = any(found.batch == head.batch and _identity(found) != _named(head, epoch) for head in (before, now))
    if mixed_up or found.epoch != epoch or found.batch < before.batch or found.commit_seq < before.commit_seq:
        generation.retire()
        raise ForeignState(message)
    if found.batch > now.batch or found.commit_seq > now.commit_seq:
        generation.retire()
        raise NotCovered(message)
    return generation


Identity = tuple[int, int, int, int, str]
"""Epoch, batch, commit, logical clock and integrity sum: two lineages may count alike, but hold different things."""


def _identity(found: Meta) -> Identity:
    return found.epoch, found.batch, found.commit_seq, found.hlc, found.integrity.hex()


def _named(head: Head, epoch: int) -> Identity:
    return epoch, head.batch, head.commit_seq, head.hlc, head.integrity


def _opened(copy: Copy, head: Head) -> tuple[Generation, int]:
    assert head.prefix is not None
    try:
        generation = Generation(copy)
    except apsw.Error as error:
        raise ForeignState(f"TXID {copy.position} is no readable database: {error}") from error
    if generation.meta.history != head.history:
        generation.retire()
        raise ForeignState(f"TXID {copy.position} is of history {generation.meta.history}, head of {head.history}")
    return generation, layout.epoch_of(head.prefix)


def _empty_generation(path: Path) -> Generation:
    db = open_writer(path, replicated=False)
    try:
        schema.create_or_migrate(db)
        db.execute("PRAGMA journal_mode = DELETE")
    finally:
        db.close()
    return Generation(Copy(path, 0))


def _not_ready(message: str) -> MemoreeError:
    return MemoreeError(Code.INDEX_NOT_READY, message, retry_after_seconds=1.0)

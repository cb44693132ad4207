"""The embedded profile: the writer is in this process, the reader opens the same database (design §5.5).

Several processes may use one data directory at once: a `flock` on a file of its own, held for one group commit,
orders the writers. An acknowledged write has been fsynced.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import apsw

from memoree import clock, limits
from memoree.clock import Clock
from memoree.command import Command
from memoree.data_directory import BORN, DATABASE_NAME, LOCK_NAME, OBJECTS_NAME, open_database
from memoree.database import compaction, meta, quota
from memoree.database.connection import BUSY_TIMEOUT_MS, open_reader
from memoree.database.quota import Quota
from memoree.database.schema import check_version
from memoree.envelope import REQUEST_ID_UNREADABLE, encode
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId
from memoree.local_uploads import LocalUploads
from memoree.objects import ObjectStoreError
from memoree.objects.blobs import LocalBlobStore
from memoree.objects.filesystem import FilesystemStore
from memoree.objects.secret import shared_secret
from memoree.operations.artifacts import locate
from memoree.operations.backup import BUCKET_SCHEME
from memoree.operations.call import Call, decode, validate
from memoree.operations.execute import Success, outcome_of, replay_from_snapshot, run_read
from memoree.operations.registry import Mutation
from memoree.operations.view import MadeBackup, ServiceFacts, View
from memoree.service import (
    CURSOR_KEY,
    Check,
    OperationStatus,
    Reply,
    Request,
    new_command,
    read_reply,
    refusal,
    write_reply,
)
from memoree.uploads import Uploads
from memoree.writer.group_commit import GroupCommitter

if TYPE_CHECKING:
    import asyncio

    from memoree.contents import RevisionContent
    from memoree.database.artifacts import Revision
    from memoree.erasures import Erasure, ErasureReceipt
    from memoree.local_changes import LocalChanges
    from memoree.long_reads import LongReads, Stop
    from memoree.objects.audit import BlobAudit
    from memoree.tenants import Tenants

LOCAL_TENANT = "local"
READERS_MAX = 8
CANARY_KEY = "canary"
LOCK_WAIT_SECONDS_MAX = 10.0
LOCK_POLL_SECONDS_MIN = 0.0005
LOCK_POLL_SECONDS_MAX = 0.01
GRANTED_SECONDS = 1.0
SCRUB_BUSY_TIMEOUT_MS = 200
SCRUB_RETRY_SECONDS = 1.0

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class _Blobs:
    """The directory's blobs, by raw digest."""

    def __init__(self, store: LocalBlobStore) -> None:
        self._store = store

    def read(self, digest: bytes, size: int) -> bytes:
        return self._store.read(digest.hex(), size=size)

    def holds(self, digest: bytes) -> bool:
        return self._store.exists(digest.hex())

    def put(self, data: bytes) -> None:
        self._store.put(data)


class _Upkeep:
    """`memoree.operations.view.Upkeep` of one data directory."""

    def __init__(self, data_dir: Path, store: FilesystemStore) -> None:
        self._data_dir = data_dir
        self._store = store

    def blob_audit(self) -> BlobAudit:
        from memoree.objects.audit import DirectoryAudit

        return DirectoryAudit(self._store, LOCAL_TENANT)

    def back_up(self, destination: str, *, commit_seq_min: int) -> MadeBackup:
        from memoree.backup.directory import StoreLayout, back_up

        if destination.startswith(BUCKET_SCHEME):
            raise MemoreeError(Code.CONFIG_ERROR, "this store is a directory; name a new one to copy it to")
        layout = StoreLayout(LOCAL_TENANT, DATABASE_NAME, OBJECTS_NAME, LOCK_NAME, BORN)
        made = back_up(self._data_dir, layout, Path(destination), commit_seq_min=commit_seq_min)
        return MadeBackup(destination, str(made.database), str(made.blobs), made.commit_seq, made.copied_blobs)


class AtWork(NamedTuple):
    """How many restores and writes of large objects are under way in a data directory, each with a file of its own."""

    restores: int
    writes: int


@dataclass(slots=True)
class _Submission:
    """A command in the line for the next group commit, and what became of it."""

    command: Command
    outcome: Success | MemoreeError | None = None
    commit_seq: int = 0


class EmbeddedService:
    """One tenant, `local`, in one data directory. Thread-safe; also usable without an event loop.

    Opening raises `CONFIG_ERROR` for a directory that cannot be used and for a store of a later program, which is
    left as it is; `INTEGRITY_ERROR` for a damaged database; `TRANSPORT_ERROR` when another process keeps it locked.
    """

    def __init__(self, data_dir: Path, *, facts: ServiceFacts, clock_now: Clock = clock.utc_now) -> None:
        self._path = data_dir / DATABASE_NAME
        self._clock = clock_now
        self._facts = facts
        self._store = FilesystemStore(data_dir / OBJECTS_NAME)
        self._blobs = _Blobs(LocalBlobStore(self._store, LOCAL_TENANT))
        self._uploads = Uploads(self._store, clock_now, through_service=True, sweep_when_declaring=True)
        self._local_uploads = LocalUploads(self._store, LOCAL_TENANT, clock_now)
        self._upkeep = _Upkeep(data_dir, self._store)
        self._writing = threading.Lock()
        """Guards the writer's connection and the lock file, whose `flock` binds processes but not threads."""
        self._line: list[_Submission] = []
        self._line_lock = threading.Lock()
        self._readers: list[apsw.Connection] = []
        self._closed = False
        self._granted: Quota | None = None
        self._granted_at = float("-inf")
        self._long_reads: LongReads | None = None
        self._changes: LocalChanges | None = None
        self._scrubbing: asyncio.Task[None] | None = None
        try:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file = os.open(data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise MemoreeError(
                Code.CONFIG_ERROR, f"the data directory {data_dir} cannot be used: {error.strerror}"
            ) from error
        try:
            with self._exclusive():
                self._db = self._open_database(data_dir)
        except BaseException:
            os.close(self._lock_file)
            raise
        self._committer = GroupCommitter(self._db, self._blobs, facts, clock_now)

    def _open_database(self, data_dir: Path) -> apsw.Connection:
        try:
            return open_database(data_dir, self._lock_file)
        except (apsw.NotADBError, apsw.CorruptError, apsw.BusyError, apsw.FullError) as error:
            raise _storage_failure(error) from error
        except (OSError, apsw.Error) as error:
            raise MemoreeError(Code.CONFIG_ERROR, f"the database {self._path} cannot be opened: {error}") from error

    # --- one request --------------------------------------------------------------------------------------------

    def call_bytes(self, body: bytes) -> bytes:
        """One request envelope in, one response envelope out; never raises."""
        try:
            envelope = decode(body)
        except MemoreeError as error:
            return encode(refusal(REQUEST_ID_UNREADABLE, error).envelope)
        try:
            request = Request(envelope, validate(envelope))
        except MemoreeError as error:
            return encode(refusal(envelope.request_id, error).envelope)
        return encode(self.answer(request).envelope)

    def answer(self, request: Request, stop: Stop | None = None) -> Reply:
        """Run a validated request. Faults that are no refusals are logged and answered as `INTERNAL_ERROR`."""
        call = request.call
        try:
            return self._write(call) if isinstance(call.operation, Mutation) else self._read(call, stop)
        except MemoreeError as error:
            return refusal(call.request_id, error)
        except Exception as error:
            log.exception("%s failed", call.operation.name)
            return refusal(call.request_id, _storage_failure(error))

    def _read(self, call: Call[Any], stop: Stop | None) -> Reply:
        with self._view() as view, stop.watching(view) if stop is not None else nullcontext(view) as watched:
            return read_reply(call, run_read(watched, call), view.meta.commit_seq)

    def answer_all(self, requests: Sequence[Request]) -> list[Reply]:
        """As `answer`, a reply for each in their order; writes share group commits, which is what makes many fast."""
        waiting: list[Reply | _Submission] = []
        for request in requests:
            if not isinstance(request.call.operation, Mutation):
                waiting.append(self.answer(request))
                continue
            try:
                waiting.append(self._submitted(request.call))
            except Exception as error:
                waiting.append(refusal(request.call.request_id, _storage_failure(error)))
        submissions = [each for each in waiting if isinstance(each, _Submission)]
        with self._line_lock:
            self._line.extend(submissions)
        with self._writing:
            while any(submission.outcome is None for submission in submissions):
                self._commit_line()
        return [each if isinstance(each, Reply) else _reply_of(each) for each in waiting]

    def _write(self, call: Call[Any]) -> Reply:
        submission = self._submitted(call)
        if isinstance(submission, Reply):
            return submission
        with self._line_lock:
            self._line.append(submission)
        with self._writing:
            if submission.outcome is None:
                self._commit_line()
        return _reply_of(submission)

    def _submitted(self, call: Call[Any]) -> _Submission | Reply:
        """The write, ready for the line; the reply where it is a repeat that needs no commit."""
        if call.upload_id is not None:
            with self._view() as view:
                if (replayed := replay_from_snapshot(view, call)) is not None:
                    return write_reply(call, replayed, view.meta.commit_seq)
            call = replace(call, content=self._local_uploads.content_of(call.upload_id))
        elif call.content is not None and not call.content.inline:
            assert call.content.data is not None
            self._blobs.put(call.content.data)
        with self._view() as view:
            history = view.meta.history
        return _Submission(new_command(LOCAL_TENANT, call, history=history, clock_now=self._clock))

    def _commit_line(self) -> None:
        """One group commit of what is waiting; whoever holds the writing lock does it for all of them."""
        with self._line_lock:
            batch = self._line[: limits.BATCH_COMMANDS_MAX]
            del self._line[: len(batch)]
        try:
            with self._exclusive():
                self._commit(batch)
        except BaseException as error:
            for entry in batch:
                entry.outcome = entry.outcome or _storage_failure(error)
            if not isinstance(error, Exception):
                raise
            log.exception("a group commit failed")

    def _commit(self, batch: Sequence[_Submission]) -> None:
        """All in one transaction; one by one when that fails for a reason that may lie in a single command."""
        try:
            committed = self._committer.commit([entry.command for entry in batch], self._blobs)
        except apsw.Error:
            raise
        except Exception as error:
            if len(batch) == 1:
                log.exception("a command failed")
                batch[0].outcome = _storage_failure(error)
                return
            for entry in batch:
                self._commit([entry])
            return
        for entry, attempt in zip(batch, committed.attempts, strict=True):
            entry.commit_seq = committed.meta.commit_seq
            try:
                entry.outcome = outcome_of(self._db, attempt)
            except MemoreeError as refused:
                entry.outcome = refused

    def snapshot(self, work: Callable[[apsw.Connection], Result]) -> tuple[Result, meta.Meta]:
        """What `work` finds in one read transaction, and the counters of that state."""
        with self._view() as view:
            return work(view.db), view.meta

    def exclusively(self, work: Callable[[apsw.Connection], Result]) -> Result:
        """What `work` does or finds while nobody writes to the database, in this process or another; the blobs that its
        rows need stay what they are meanwhile. Raises `TRANSPORT_ERROR` when another process keeps the lock."""
        with self._writing, self._exclusive():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                return work(self._db)
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def remove_abandoned(self) -> AtWork:
        """Remove what killed processes left in the data directory: a restore its copy of the database, a write its
        file. Returns what is under way and was left alone."""
        from memoree.backup.staging import remove_abandoned

        return AtWork(restores=remove_abandoned(self.data_dir), writes=self._store.remove_abandoned_sync())

    def scrub(self, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> AtWork:
        """Finish an erasure: what the database file keeps between its rows goes, and so do its log, the copies that
        were made of it before its schema changed, and what `remove_abandoned` removes; returns as that. Raises
        `TRANSPORT_ERROR` while a reader holds on to an earlier state; the next time finishes it. Nobody writes while it
        waits for one."""
        from memoree.backup.before_migration import remove_copies

        at_work = self.remove_abandoned()
        with self._writing, self._exclusive():
            remove_copies(self._path)
            self._db.set_busy_timeout(busy_timeout_ms)
            try:
                compaction.compact(self._db)
            except apsw.BusyError as error:
                raise _busy() from error
            finally:
                self._db.set_busy_timeout(BUSY_TIMEOUT_MS)
        return at_work

    def replace_database(self, prepared: Callable[[apsw.Connection], apsw.Connection]) -> None:
        """Let another database take the place of this one, all at once, for every process: what `prepared` returns,
        which it is given this one for, while no writer is at work. The file stays: a log that belonged to another would
        be laid over it (design §5.5). Whatever is raised, nothing has changed."""
        with self._writing, self._exclusive():
            source = prepared(self._db)
            with self._db.backup("main", source, "main") as copying:
                while not copying.done:
                    copying.step()

    @property
    def store(self) -> FilesystemStore:
        """The directory's objects."""
        return self._store

    @property
    def data_dir(self) -> Path:
        return self._path.parent

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def facts(self) -> ServiceFacts:
        return self._facts

    # --- connections and locks ----------------------------------------------------------------------------------

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Holds the data directory's writer lock: across processes by `flock`, for one group commit. The caller holds
        `_writing`. Raises `TRANSPORT_ERROR` when another process does not give it up."""
        if self._closed:
            raise _closed()
        deadline = time.monotonic() + LOCK_WAIT_SECONDS_MAX
        pause = LOCK_POLL_SECONDS_MIN
        while True:
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _busy() from None
            time.sleep(pause)
            pause = min(pause * 2, LOCK_POLL_SECONDS_MAX)
        try:
            yield
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    @contextmanager
    def _view(self) -> Iterator[View]:
        """One read transaction on a pooled connection."""
        db = self._take_reader()
        try:
            db.execute("BEGIN")
            counters = meta.read(db)
            check_version(counters.schema_version)  # a newer program may have migrated the store meanwhile
            now = clock.stored(self._clock())
            yield View(db, self._blobs, self._facts, counters, now, upkeep=self._upkeep)
        finally:
            self._return_reader(db)

    def _take_reader(self) -> apsw.Connection:
        with self._line_lock:
            if self._closed:
                raise _closed()
            if self._readers:
                return self._readers.pop()
        return open_reader(self._path, immutable=False)

    def _return_reader(self, db: apsw.Connection) -> None:
        """End its transaction and keep it for the next request; one that cannot end it is of no use any more."""
        with suppress(apsw.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
            with self._line_lock:
                if not self._closed and len(self._readers) < READERS_MAX:
                    self._readers.append(db)
                    return
        db.close()

    def close_sync(self) -> None:
        """After the write under way, if there is one. What comes later is refused. Idempotent."""
        with self._writing:
            with self._line_lock:
                if self._closed:
                    return
                self._closed = True
                readers, self._readers = self._readers, []
            for db in (*readers, self._db):
                db.close()
            os.close(self._lock_file)

    # --- the asynchronous face (memoree.service.Service) ---------------------------------------------------------

    async def call(
        self,
        tenant: str,
        request: Request,
        *,
        wait_seconds: float = limits.WRITE_WAIT_SECONDS_DEFAULT,
        strong: bool = False,
    ) -> Reply:
        """As `answer`, in a thread. Every write is decided before it returns and every read sees all of them,
        so `wait_seconds` and `strong` change nothing here."""
        import asyncio  # the shell never needs it, and it is slow to import

        assert tenant == LOCAL_TENANT
        if not request.call.operation.long:
            return await asyncio.to_thread(self.answer, request)
        from memoree.long_reads import LongReads

        self._long_reads = self._long_reads or LongReads()
        loop = asyncio.get_running_loop()
        try:
            return await self._long_reads.run(
                tenant, lambda threads, stop: loop.run_in_executor(threads, self.answer, request, stop)
            )
        except MemoreeError as error:
            return refusal(request.call.request_id, error)

    async def operation_status(self, tenant: str, attempt_id: AttemptId) -> OperationStatus:
        import asyncio

        assert tenant == LOCAL_TENANT
        return await asyncio.to_thread(self._operation_status, attempt_id)

    def _operation_status(self, attempt_id: AttemptId) -> OperationStatus:
        with self._view() as view:
            now_ms = clock.milliseconds(self._clock())
            return OperationStatus.of(view.db, attempt_id, commit_seq=view.meta.commit_seq, now_ms=now_ms)

    @property
    def uploads(self) -> Uploads:
        """See `memoree.service.Service.uploads`."""
        return self._uploads

    async def revision_content(
        self, tenant: str, artifact_id: str, revision_id: str, *, strong: bool = False
    ) -> RevisionContent:
        """See `memoree.service.Service.revision_content`."""
        import asyncio

        from memoree.contents import RevisionContent

        assert tenant == LOCAL_TENANT
        revision, body, commit_seq = await asyncio.to_thread(self._located, artifact_id, revision_id)
        return RevisionContent(self._store, tenant, revision, body, commit_seq)

    def _located(self, artifact_id: str, revision_id: str) -> tuple[Revision, bytes | None, int]:
        with self._view() as view:
            return *locate(view, artifact_id, revision_id), view.meta.commit_seq

    async def cursor_key(self) -> bytes:
        """See `memoree.service.Service.cursor_key`."""
        try:
            return await shared_secret(self._store, CURSOR_KEY)
        except ObjectStoreError as error:
            raise _storage_failure(error) from error

    async def record_erasure(self, tenant: str, erasure: Erasure, *, blobs: int) -> ErasureReceipt:
        """See `memoree.service.Service.record_erasure`. The files are rewritten when this returns; where somebody reads
        an earlier state for longer, as soon as that ends."""
        import asyncio

        from memoree.erasures import directory_receipt, record

        try:
            await record(self._store, tenant, erasure)
        except ObjectStoreError as error:
            raise _storage_failure(error) from error
        try:
            at_work = await asyncio.to_thread(self.scrub, SCRUB_BUSY_TIMEOUT_MS)
        except MemoreeError as error:
            log.info("what was erased is in the files still: %s", error)
            self._scrub_later()
            at_work = None
        return directory_receipt(
            self._clock(),
            blobs=blobs,
            rewritten=at_work is not None,
            restores=at_work is not None and at_work.restores > 0,
            writes=at_work is not None and at_work.writes > 0,
        )

    def _scrub_later(self) -> None:
        import asyncio

        async def scrub() -> None:
            while True:
                await asyncio.sleep(SCRUB_RETRY_SECONDS)
                with suppress(MemoreeError):
                    await asyncio.to_thread(self.scrub, SCRUB_BUSY_TIMEOUT_MS)
                    return

        if self._scrubbing is None or self._scrubbing.done():
            self._scrubbing = asyncio.create_task(scrub())

    @property
    def administration(self) -> Tenants:
        """See `memoree.service.Service.administration`."""
        from memoree.jobs.embedded import EmbeddedTenants

        return EmbeddedTenants(self)

    def granted(self, tenant: str) -> Quota | None:
        """See `memoree.service.Service.granted`; looked up once a second."""
        now = time.monotonic()
        if now - self._granted_at >= GRANTED_SECONDS:
            with suppress(apsw.Error, MemoreeError), self._view() as view:
                self._granted, self._granted_at = quota.read(view.db), now
        return self._granted

    async def queue_lag(self, tenant: str) -> bool:
        """The writer is in this process: whoever is answered, is written."""
        return False

    async def newer(self, tenant: str, commit_seq: int, seconds: float) -> bool:
        """See `memoree.service.Service.newer`."""
        from memoree.local_changes import LocalChanges

        self._changes = self._changes or LocalChanges(self._newest_commit)
        return await self._changes.newer(commit_seq, seconds)

    def _newest_commit(self) -> int:
        with self._view() as view:
            return view.meta.commit_seq

    async def readiness(self) -> list[Check]:
        import asyncio

        return await asyncio.to_thread(self._readiness)

    def _readiness(self) -> list[Check]:
        canary = os.urandom(16)
        try:
            with self._writing, self._exclusive(), self._view() as view:
                self._store.put_sync(CANARY_KEY, canary)
                stored = self._store.get_sync(CANARY_KEY)
                self._store.delete_sync(CANARY_KEY)
                if stored is None or stored.body != canary:
                    raise MemoreeError(Code.INTEGRITY_ERROR, "the canary was not read back as it was written")
                detail = f"commit {view.meta.commit_seq}"
        except Exception as error:  # readiness reports every fault instead of failing on it
            return [Check("store", ok=False, detail=str(error))]
        return [Check("store", ok=True, detail=detail)]

    async def close(self) -> None:
        import asyncio

        if self._long_reads is not None:
            await self._long_reads.close()
        if self._changes is not None:
            await self._changes.close()
        if self._scrubbing is not None:
            self._scrubbing.cancel()
            await asyncio.gather(self._scrubbing, return_exceptions=True)
        await asyncio.to_thread(self.close_sync)


def _reply_of(submission: _Submission) -> Reply:
    """Of a write that is decided."""
    call, outcome = submission.command.call, submission.outcome
    assert outcome is not None
    if isinstance(outcome, MemoreeError):
        return refusal(call.request_id, outcome)
    return write_reply(call, outcome, submission.commit_seq)


def _busy() -> MemoreeError:
    message = "another process keeps the store locked; nothing was stored, send it again"
    return MemoreeError(Code.TRANSPORT_ERROR, message, retry_after_seconds=1.0)


def _closed() -> MemoreeError:
    return MemoreeError(Code.TRANSPORT_ERROR, "the store was closed; nothing was stored")


def _storage_failure(error: BaseException) -> MemoreeError:
    """What a caller is told of a fault that is no refusal. Only faults that cannot have stored anything say so."""
    if isinstance(error, MemoreeError):
        return error
    if isinstance(error, apsw.BusyError):
        return _busy()
    if isinstance(error, apsw.FullError):
        return MemoreeError(Code.INTERNAL_ERROR, "the disk is full; nothing was stored")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return MemoreeError(
            Code.INTEGRITY_ERROR,
            f"{DATABASE_NAME} in the data directory is damaged ({error}); keep a copy of the directory, then put back "
            "a sound copy of it",
        )
    if isinstance(error, ObjectStoreError):
        return MemoreeError(Code.TRANSPORT_ERROR, f"the blob store failed: {error}", retry_after_seconds=1.0)
    if isinstance(error, apsw.IOError | apsw.InterruptError) or not isinstance(error, Exception):
        return MemoreeError(
            Code.TRANSPORT_ERROR,
            "the operation was interrupted; whether a write took effect is unknown, send the identical request again",
            retry_after_seconds=1.0,
        )
    return MemoreeError(Code.INTERNAL_ERROR, "the operation failed and nothing was stored; see the log")

"""Verifying a tenant of a deployment: everything that its store keeps of it, from the bucket and from nowhere else
(design §8).

The database is restored from the change files as a writer that takes over would restore it, and that copy is checked,
against head, against its blobs and against itself: no replica could vouch for the bucket. With `full`, every byte is
read: each change file, each blob, each backup. Damage is told and never raised.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import shutil
from collections.abc import Iterator
from contextlib import aclosing, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import apsw

from memoree import limits
from memoree.backup import record
from memoree.backup.erased import WithoutErased, only_erased, recorded_by_now
from memoree.concurrency import for_each
from memoree.database import erasures, meta
from memoree.database.connection import open_reader
from memoree.database.meta import Meta
from memoree.erasures import HOW_TO_MEND, Erasure
from memoree.errors import MemoreeError, not_found
from memoree.jobs import backup_check
from memoree.jobs.backup import Progress, silently
from memoree.objects import ObjectInfo, ObjectMissing, ObjectStore
from memoree.objects.presence import PresenceAudit
from memoree.objects.remote_audit import RemoteAudit
from memoree.objects.streaming import windows
from memoree.replication import layout, ltx
from memoree.replication.head import Head, HeadFile
from memoree.replication.lineage import LedgerEntry, ledger_entry
from memoree.replication.litestream import LitestreamError, NotRestorable
from memoree.replication.ltx import LtxError, parse_name, restorable_boundaries
from memoree.replication.replicator import Replicator
from memoree.verification import store as whole_store
from memoree.verification.issue import Issue, Kind

RESTORE_TRIES_MAX = 5
"""A busy writer's compaction and retention change the prefix after it was listed."""


@dataclass(slots=True)
class Verdict:
    """What was looked at and what was found. `commit_seq` and `batch` are of the state that was restored; a backup that
    is not finished may be under way, or have lost its record. `issues_left_out` counts what was found beyond the
    first `VERIFY_ISSUES_MAX`."""

    tenant: str
    full: bool
    commit_seq: int = 0
    batch: int = 0
    artifact_revisions: int = 0
    claim_revisions: int = 0
    blobs: int = 0
    epochs: int = 0
    change_files: int = 0
    backups: int = 0
    unfinished_backups: list[str] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    issues_left_out: int = 0

    @property
    def ok(self) -> bool:
        return not self.issues

    def add(self, kind: Kind, entity: str, detail: str) -> None:
        self.include([Issue(kind, entity, detail)])

    def include(self, issues: list[Issue]) -> None:
        room = max(limits.VERIFY_ISSUES_MAX - len(self.issues), 0)
        self.issues += issues[:room]
        self.issues_left_out += len(issues[room:])

    def to_wire(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


async def verify(
    store: ObjectStore,
    replicator: Replicator,
    tenant: str,
    scratch: Path,
    *,
    full: bool = False,
    progress: Progress = silently,
) -> Verdict:
    """Look at everything once; writers may go on. `scratch` is on a disk with room for the database and its largest
    change file. Raises `NOT_FOUND` for a tenant that has no object, `StoreUnavailable`, and `OSError` of the disk."""
    directory = scratch / f"verify-{os.urandom(8).hex()}"
    directory.mkdir(mode=0o700)
    try:
        return await _Verification(store, replicator, tenant, directory, full, progress).run()
    finally:
        await asyncio.to_thread(shutil.rmtree, directory)


class _Verification:
    def __init__(
        self,
        store: ObjectStore,
        replicator: Replicator,
        tenant: str,
        directory: Path,
        full: bool,
        progress: Progress,
    ) -> None:
        self._store = store
        self._replicator = replicator
        self._tenant = tenant
        self._prefix = layout.tenant_prefix(tenant)
        self._head_file = HeadFile(store, self._prefix)
        self._directory = directory
        self._full = full
        self._progress = progress
        self._verdict = Verdict(tenant, full)
        self._erasures: list[str] = []
        """Of which the database tells."""

    async def run(self) -> Verdict:
        self._progress("reading head and the ledger of epochs")
        entries = await self._ledger()  # before head, which names an epoch before the ledger does
        head = await self._head()
        if head is not None:
            await self._check_ledger(head, entries)
            if head.prefix is not None:
                await self._check_database(head)
        await self._check_backups()
        await self._check_erasures()
        return self._verdict

    async def _head(self) -> Head | None:
        try:
            reading = await self._head_file.read()
        except MemoreeError as error:
            self._verdict.add("head", self._head_file.key, error.message)
            return None
        if reading is not None:
            return reading.head
        if not await self._head_file.has_remains():
            not_found("tenant", self._tenant)
        self._verdict.add("head", self._head_file.key, "is missing although the tenant has history")
        return None

    # --- the ledger ---------------------------------------------------------------------------------------------

    async def _ledger(self) -> dict[int, LedgerEntry | None]:
        """Every entry by its number; `None` for a damaged one."""
        found: dict[int, LedgerEntry | None] = {}

        async def read(info: ObjectInfo) -> None:
            epoch = layout.ledger_epoch(info.key)
            if epoch is None:
                self._verdict.add("ledger", info.key, "is not the name of an entry")
                return
            await self._read_entry(epoch, found)

        entries = self._store.list(layout.epochs_prefix(self._tenant))
        await for_each(entries, read, at_once=limits.JOB_REQUESTS_AT_ONCE_MAX)
        self._verdict.epochs = len(found)
        return found

    async def _read_entry(self, epoch: int, found: dict[int, LedgerEntry | None]) -> None:
        key = layout.epoch_ledger_key(self._tenant, epoch)
        try:
            entry = await ledger_entry(self._store, self._tenant, epoch)
            if entry is None:
                return
            found[epoch] = entry
        except MemoreeError as error:
            found[epoch] = None
            self._verdict.add("ledger", key, error.message)

    async def _check_ledger(self, head: Head, entries: dict[int, LedgerEntry | None]) -> None:
        for epoch, entry in entries.items():
            key = layout.epoch_ledger_key(self._tenant, epoch)
            if epoch > head.epoch:
                self._verdict.add("ledger", key, f"is of an epoch that head, at {head.epoch}, does not know")
            if entry is not None and layout.epoch_in(entry.prefix) != epoch:
                self._verdict.add("ledger", key, f"names the prefix {entry.prefix}")
        epoch = layout.epoch_in(head.prefix or "") or 0
        commit_seq = head.commit_seq
        while epoch:
            key = layout.epoch_ledger_key(self._tenant, epoch)
            if epoch not in entries:
                await self._read_entry(epoch, entries)  # it may have begun since the ledger was listed
            if epoch not in entries:
                self._verdict.add("ledger", key, "is missing: what is there continues it")
                return
            if (entry := entries[epoch]) is None:
                return
            if entry.parent_epoch >= epoch or entry.base_commit_seq > commit_seq:
                detail = f"continues epoch {entry.parent_epoch} at commit {entry.base_commit_seq}, after {commit_seq}"
                self._verdict.add("ledger", key, detail)
                return
            epoch, commit_seq = entry.parent_epoch, entry.base_commit_seq

    # --- the change files and what they restore to --------------------------------------------------------------

    async def _check_database(self, head: Head) -> None:
        assert head.prefix is not None
        self._progress("restoring the database from its change files")
        path = self._directory / "restored.sqlite3"
        restored = await self._restore(head, path)
        if self._full or not restored:
            self._progress("proving every change file")
            await self._prove_files(head.prefix)
        if not restored:
            return
        self._progress("checking every row and the blobs")
        loop = asyncio.get_running_loop()
        audit = WithoutErased(
            (RemoteAudit if self._full else PresenceAudit)(self._store, self._tenant, loop),
            lambda: self._erased(path, loop),
        )
        counters, report, self._erasures = await asyncio.to_thread(_looked_through, path, audit)
        verdict = self._verdict
        verdict.commit_seq, verdict.batch = counters.commit_seq, counters.batch
        verdict.artifact_revisions, verdict.claim_revisions = report.artifact_revisions, report.claim_revisions
        verdict.blobs = report.blobs
        verdict.include(report.issues)
        verdict.issues_left_out += report.issues_left_out
        present = await self._head()
        if present is not None and present.prefix == head.prefix:
            verdict.include(list(self._disagreements(counters, head, present)))

    def _erased(self, path: Path, loop: asyncio.AbstractEventLoop) -> frozenset[str]:
        """What was erased since the copy was made. What is damaged proves of no blob that it is not needed, and is
        told by itself."""
        try:
            return only_erased(path, recorded_by_now(self._store, self._tenant, loop))
        except (MemoreeError, apsw.Error):
            return frozenset()

    async def _restore(self, head: Head, path: Path) -> bool:
        """Whether the state that head covers, or one soon after it, could be restored."""
        assert head.prefix is not None
        prefix = self._prefix + head.prefix
        for tries_left in reversed(range(RESTORE_TRIES_MAX)):
            names = [name async for info in self._store.list(prefix) if (name := parse_name(info.key)) is not None]
            boundaries = restorable_boundaries(names)
            target = next((txid for txid in boundaries if txid >= head.txid), None)
            if target is None:
                reached = boundaries[-1] if boundaries else 0
                detail = f"no change file continues TXID {reached}, so {head.txid}, which head covers, is lost"
                self._verdict.add("ltx", prefix, detail)
                return False
            try:
                await self._replicator.restore(prefix, target, path)
            except NotRestorable as error:
                if not tries_left:
                    self._verdict.add("ltx", prefix, str(error))
            except LitestreamError as error:
                self._verdict.add("ltx", prefix, str(error))
                return False
            else:
                return True
        return False

    async def _prove_files(self, prefix: str) -> None:
        async for info in self._store.list(self._prefix + prefix):
            name = parse_name(info.key)
            if name is None:
                self._verdict.add("ltx", info.key, "is not the name of a change file")
                continue
            self._verdict.change_files += 1
            path = self._directory / "file.ltx"
            try:
                await self._download(info, path)
                fault = await asyncio.to_thread(_fault_of, path, name)
            except ObjectMissing:
                continue  # compaction or retention removed it since it was listed
            else:
                if fault is not None:
                    self._verdict.add("ltx", info.key, fault)
            finally:
                path.unlink(missing_ok=True)

    async def _download(self, info: ObjectInfo, path: Path) -> None:
        with path.open("xb") as file:
            if not info.size:
                return
            window_bytes = limits.VERIFICATION_WINDOW_BYTES
            pieces = windows(self._store, info.key, 0, info.size, window_bytes=window_bytes, if_match=info.etag)
            async with aclosing(pieces):
                async for piece in pieces:
                    await asyncio.to_thread(file.write, piece.body)

    def _disagreements(self, counters: Meta, head: Head, present: Head) -> Iterator[Issue]:
        """Of the restored copy, with head as it was before and as it is after the restore."""
        key = self._head_file.key
        epoch = layout.epoch_in(present.prefix or "")
        if (counters.epoch, counters.history) != (epoch, present.history):
            told = f"history {present.history}, epoch {epoch}"
            yield Issue("head", key, f"says {told}; its prefix holds {counters.history}, {counters.epoch}")
        if present.epoch < (epoch or 0):
            yield Issue("head", key, f"is at epoch {present.epoch} and names the prefix of {epoch}")
        if not head.batch <= counters.batch <= present.batch:
            told = f"{head.batch} to {present.batch}"
            yield Issue("head", key, f"covers batch {told}; its prefix restores to {counters.batch} at that TXID")
        for covered in (head, present):
            if covered.batch == counters.batch:
                yield from self._differences(counters, covered)
                return

    def _differences(self, counters: Meta, head: Head) -> Iterator[Issue]:
        """Both tell of one state: they agree in everything."""
        for name in ("commit_seq", "hlc", "schema_version"):
            if getattr(head, name) != getattr(counters, name):
                detail = f"says {name} {getattr(head, name)} where the database has {getattr(counters, name)}"
                yield Issue("head", self._head_file.key, detail)
        if head.integrity != counters.integrity.hex():
            detail = f"head says {head.integrity} where the database has {counters.integrity.hex()}"
            yield Issue("integrity_sum", "head", detail)

    # --- backups and erasures -----------------------------------------------------------------------------------

    async def _check_backups(self) -> None:
        """The newest one whole, with `full` all of them; of the others the record and that its objects are there."""
        begun = await record.intents(self._store, self._tenant)
        self._verdict.unfinished_backups = [intent.backup_id for intent in begun if not intent.published]
        published = sorted(await record.published(self._store, self._tenant))
        self._verdict.backups = len(published)
        for backup_id in published:
            is_whole = self._full or backup_id == published[-1]
            try:
                left_out, issues = await (self._proved if is_whole else self._looked_at)(backup_id)
            except MemoreeError as error:
                left_out, issues = 0, [Issue("backup", backup_id, error.message)]
            if issues and await self._is_published(backup_id):  # otherwise it was pruned since it was listed
                self._verdict.include(issues)
                self._verdict.issues_left_out += left_out

    async def _proved(self, backup_id: str) -> tuple[int, list[Issue]]:
        """How many issues are left out, and the others."""
        self._progress(f"verifying the backup {backup_id}")
        checked = await backup_check.verify(self._store, self._tenant, backup_id, self._directory, full=self._full)
        return checked.faults_left_out, [Issue("backup", fault.object, fault.detail) for fault in checked.faults]

    async def _looked_at(self, backup_id: str) -> tuple[int, list[Issue]]:
        """As `_proved`, of the record and of what is there."""
        issues: list[Issue] = []
        backup = await record.find(self._store, self._tenant, backup_id)
        for packed in (backup.checkpoint, backup.manifest):
            key = backup.key_of(packed.name)
            try:
                size = (await self._store.head(key)).size
            except ObjectMissing:
                issues.append(Issue("backup", key, "is missing"))
            else:
                if size != packed.stored_size:
                    detail = f"has {size} bytes where {packed.stored_size} were recorded"
                    issues.append(Issue("backup", key, detail))
        return 0, issues

    async def _is_published(self, backup_id: str) -> bool:
        try:
            await self._store.head(layout.backup_key(self._tenant, backup_id, record.RECORD_NAME))
        except ObjectMissing:
            return False
        return True

    async def _check_erasures(self) -> None:
        """Every entry, and that there is one of each erasure that the database tells of: a restore without it would
        bring back what was erased."""
        unrecorded = set(self._erasures)
        async for info in self._store.list(layout.erasures_prefix(self._tenant)):
            unrecorded.discard(info.key.rpartition("/")[2].removesuffix(".json"))
            stored = await self._store.get(info.key)
            assert stored is not None, "a GET without a condition always has a body"
            try:
                Erasure.from_bytes(stored.body)
            except MemoreeError as error:
                self._verdict.add("erasure", info.key, f"{error.message}; {HOW_TO_MEND}")
        for erasure_id in sorted(unrecorded):
            key = layout.erasure_key(self._tenant, erasure_id)
            why = "is missing: a restore would bring back what it erased"
            self._verdict.add("erasure", key, f"{why}; {HOW_TO_MEND}")


def _looked_through(path: Path, audit: WithoutErased) -> tuple[Meta, whole_store.Report, list[str]]:
    with closing(open_reader(path, immutable=True)) as db:
        return meta.read(db), whole_store.verify(db, audit), [each.erasure_id for each in erasures.every(db)]


def _fault_of(path: Path, name: ltx.LtxName) -> str | None:
    """What is wrong with a change file. A snapshot is as large as the database: it is mapped, not read into memory."""
    if not path.stat().st_size:
        return "is empty"
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        with memoryview(mapped) as view:
            try:
                ltx.prove(view, name)
            except LtxError as error:
                fault = str(error)  # alone: the exception holds parts of the view, which keep the map from closing
            else:
                return None
        return fault

"""Verifying a backup: everything that a restore will need, proven by doing it, and the restore drill (design §8).

Whatever is wrong is told as a fault of an object of the bucket. Nothing but the backup is looked at, so it can be
verified where its tenant is long gone.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import apsw

from memoree.backup import manifest
from memoree.backup.database import open_copy
from memoree.backup.drill import rehearse
from memoree.backup.erased import WithoutErased, only_erased, recorded_by_now
from memoree.backup.record import (
    INTENT_NAME,
    RECORD_NAME,
    BackupRecord,
    FaultyObject,
    fetch_checkpoint,
    fetch_manifest,
    in_use,
    is_begun,
    read,
)
from memoree.database import meta
from memoree.database.connection import open_writer
from memoree.database.schema import SCHEMA_VERSION, check_version, create_or_migrate
from memoree.erasures import Erasure
from memoree.errors import not_found
from memoree.jobs.backup import PROGRAM, Progress, silently
from memoree.objects import ObjectMissing, ObjectStore
from memoree.objects.audit import BlobAudit
from memoree.objects.blobs import blob_key
from memoree.objects.presence import PresenceAudit
from memoree.objects.remote_audit import RemoteAudit
from memoree.replication import layout
from memoree.verification import store as whole_store
from memoree.verification.issue import Issue

DrillOutcome = Literal["same", "different", "not compared"]


@dataclass(frozen=True, slots=True)
class Fault:
    """`object` is a key of the bucket."""

    object: str
    detail: str


@dataclass(slots=True)
class Checked:
    """What was looked at and found. The drill is not compared when the database could not be read, or when another
    version of the program made the backup: it may answer in another way."""

    backup_id: str
    record: BackupRecord | None = None
    faults: list[Fault] = field(default_factory=list)
    faults_left_out: int = 0
    artifact_revisions: int = 0
    claim_revisions: int = 0
    blobs: int = 0
    drill: DrillOutcome = "not compared"

    @property
    def ok(self) -> bool:
        return not self.faults


async def verify(
    store: ObjectStore, tenant: str, backup_id: str, scratch: Path, *, full: bool = False, progress: Progress = silently
) -> Checked:
    """Restore the backup into `scratch`, on a disk with room for the database and its packed form, and check it. `full`
    hashes every blob; otherwise they are there and of their sizes.

    Damage is reported and never raised. Raises `NOT_FOUND` when no object of such a backup is there, `CONFIG_ERROR`
    for one of a later format or schema, `StoreUnavailable`, `OSError`.
    """
    if not await is_begun(store, tenant, backup_id):
        not_found("backup", backup_id)
    checked = Checked(backup_id)
    key = layout.backup_key(tenant, backup_id, RECORD_NAME)
    try:
        checked.record = record = await read(store, tenant, backup_id)
    except ObjectMissing:
        checked.faults.append(Fault(key, "is missing: this backup was never published, or lost its record"))
    except FaultyObject as error:
        checked.faults.append(Fault(error.key, error.how))
    else:
        check_version(record.schema_version)
        work = scratch / backup_id
        work.mkdir(mode=0o700)
        try:
            async with in_use(store, record):
                await _check(store, record, work, checked, full, progress)
        finally:
            await asyncio.to_thread(shutil.rmtree, work)
    return checked


async def _check(
    store: ObjectStore, record: BackupRecord, work: Path, checked: Checked, full: bool, progress: Progress
) -> None:
    progress("fetching it")
    checked.faults.extend(await _intent_faults(store, record))
    database, lines = work / "checkpoint.db", work / "manifest.jsonl"
    for fetch, path in ((fetch_checkpoint, database), (fetch_manifest, lines)):
        try:
            await fetch(store, record, path)
        except FaultyObject as error:
            checked.faults.append(Fault(error.key, error.how))
    progress(f"checking {record.manifest.blobs} blobs and every row")
    loop = asyncio.get_running_loop()
    audit = WithoutErased(
        (RemoteAudit if full else PresenceAudit)(store, record.tenant, loop),
        lambda: _erased(database, recorded_by_now(store, record.tenant, loop)),
    )
    if database.exists():
        await asyncio.to_thread(_check_database, record, database, audit, checked)
    if lines.exists():
        await asyncio.to_thread(_check_manifest, record, lines, database, audit, checked)


def _erased(database: Path, known: Sequence[Erasure]) -> frozenset[str]:
    """What is not missed. A database that cannot be read proves of no blob that it is not needed."""
    try:
        return only_erased(database, known) if database.exists() else frozenset()
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError):
        return frozenset()


async def _intent_faults(store: ObjectStore, record: BackupRecord) -> list[Fault]:
    key = record.key_of(INTENT_NAME)
    try:
        found = await store.get(key)
    except ObjectMissing:
        return [Fault(key, "is missing")]
    assert found is not None, "a GET without a condition always has a body"
    return [] if found.body == record.intent.to_bytes() else [Fault(key, "is damaged: it is not as the record has it")]


def _check_database(record: BackupRecord, database: Path, audit: BlobAudit, checked: Checked) -> None:
    """The counters against the record, everything that a live store is checked for, and the drill."""
    key = record.key_of(record.checkpoint.name)
    with closing(open_copy(database)) as db:
        checked.faults.extend(Fault(key, told) for told in _strange_counters(record, db))
    if record.schema_version < SCHEMA_VERSION:
        _migrate(database)
    with closing(open_copy(database)) as db:
        try:
            report = whole_store.verify(db, audit)
            checked.faults.extend(_fault_of(record, issue) for issue in report.issues)
            checked.faults_left_out = report.issues_left_out
            checked.artifact_revisions, checked.claim_revisions = report.artifact_revisions, report.claim_revisions
            checked.blobs = report.blobs
            if (record.program, record.schema_version) == (PROGRAM, SCHEMA_VERSION):
                checked.drill = "same" if rehearse(db, record.drill.at) == record.drill else "different"
        except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
            checked.faults.append(Fault(key, f"cannot be read: {error}"))
    if checked.drill == "different":
        checked.faults.append(Fault(key, "answers questions otherwise, or by other plans, than the database it copies"))


def _migrate(database: Path) -> None:
    """As whoever restores it would: the checks are those of this program's schema."""
    with closing(open_writer(database, replicated=False)) as db:
        create_or_migrate(db)


def _strange_counters(record: BackupRecord, db: apsw.Connection) -> Iterator[str]:
    found = meta.read(db)
    for name in ("schema_version", "history", "epoch", "batch", "commit_seq", "hlc"):
        if getattr(found, name) != getattr(record, name):
            yield f"has the {name} {getattr(found, name)} where {getattr(record, name)} was recorded"
    if found.integrity.hex() != record.integrity:
        yield f"has the integrity sum {found.integrity.hex()} where {record.integrity} was recorded"


def _check_manifest(record: BackupRecord, lines: Path, database: Path, audit: BlobAudit, checked: Checked) -> None:
    """Against the database; where that is lost, its blobs instead."""
    if not database.exists():
        for fault in audit.faults(manifest.refs(lines)):
            checked.faults.append(Fault(blob_key(record.tenant, fault.name), fault.detail))
        return
    with closing(open_copy(database)) as db:
        if any(one != other for one, other in zip_longest(manifest.refs(lines), whole_store.referenced_blobs(db))):
            checked.faults.append(
                Fault(record.key_of(record.manifest.name), "does not name exactly the blobs that its database needs")
            )


def _fault_of(record: BackupRecord, issue: Issue) -> Fault:
    if issue.kind == "blob":
        return Fault(blob_key(record.tenant, issue.entity), issue.detail)
    return Fault(record.key_of(record.checkpoint.name), str(issue))

"""Restoring a data directory from a backup directory (the embedded profile, design §5.5).

Everything is made ready in a copy beside the database, blobs first. Then SQLite's backup interface writes that copy
over the database in one transaction, under the writer's lock: other processes go on with their connections, and see the
one state or the other.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw

from memoree import limits
from memoree.backup.database import copy_database, open_copy
from memoree.backup.staging import claim_staging, remove_abandoned
from memoree.data_directory import DATABASE_NAME, OBJECTS_NAME
from memoree.database import meta, schema
from memoree.database.compaction import compact
from memoree.database.connection import open_writer
from memoree.database.meta import Meta
from memoree.embedded import LOCAL_TENANT, EmbeddedService
from memoree.erasures import Erasure, record_missing, recorded, told_by
from memoree.errors import Code, MemoreeError, shown
from memoree.jobs.embedded import EmbeddedTenancy
from memoree.jobs.local_gc import collect_condemned
from memoree.jobs.restore import Options, Restored
from memoree.jobs.restore_blobs import Brought, bring_blobs, carried_over, needed_blobs
from memoree.objects import ObjectStoreError
from memoree.objects.audit import DirectoryAudit
from memoree.objects.blobs import LocalBlobStore
from memoree.objects.copying import Place
from memoree.objects.filesystem import FilesystemStore
from memoree.verification.store import verify
from memoree.writer.adoption import Adopted, Adoption, adopt, condemned_now, is_alive

ISSUES_TOLD = 3


def require_backup(backup: Path) -> None:
    """Raises `CONFIG_ERROR` for what is no backup directory."""
    if not (backup / DATABASE_NAME).is_file():
        raise MemoreeError(Code.CONFIG_ERROR, f"{shown(str(backup))} is no backup: it holds no {DATABASE_NAME}")


async def restore_directory(
    service: EmbeddedService, data_dir: Path, backup: Path, options: Options | None = None
) -> Restored:
    """Make the store in `data_dir` what the directory `backup` holds, which `backup.create` made.

    Raises `CONFIG_ERROR` for a directory that is no backup or of a newer program, and for a store that holds something,
    unless it may be replaced; `INTEGRITY_ERROR` for a backup that is not whole, naming what is wrong; `TRANSPORT_ERROR`
    while another process keeps the store locked; `INTERNAL_ERROR` when the disk fails. Whatever is raised, the store is
    what it was.
    """
    options = options or Options()
    require_backup(backup)
    source = _place(backup)
    present, _ = await asyncio.to_thread(service.snapshot, meta.read)
    _require_replaceable(present, options)
    began = time.monotonic()
    try:
        with _staging(data_dir) as directory:
            staged = directory / DATABASE_NAME
            told, _ = await asyncio.to_thread(service.snapshot, told_by)
            erasures = await _erasures(service.store, source, told)  # an erasure that is later sees the staging
            options.progress("copying and checking the database")
            past = await asyncio.to_thread(_stage, backup / DATABASE_NAME, staged, source, options)
            options.progress("copying its blobs")
            blobs = await _bring(source, service, staged, erasures, options)
            options.progress("replacing the database")
            adopted = await asyncio.to_thread(_replace, service, backup, staged, began, options)
    except (OSError, apsw.FullError, apsw.IOError, apsw.CantOpenError) as error:
        raise MemoreeError(Code.INTERNAL_ERROR, f"the restore could not be written: {error}") from error
    with suppress(MemoreeError, ObjectStoreError):  # a collection does it too: what was brought may be erased by now
        await collect_condemned(EmbeddedTenancy(service))
    return Restored(
        tenant=LOCAL_TENANT,
        asked={"backup": str(backup)},
        got={"commit_seq": past.commit_seq},
        history=adopted.counters.history,
        commit_seq=adopted.counters.commit_seq,
        replaced_commit_seq=adopted.replaced_commit_seq,
        blobs_copied=blobs.copied,
        blobs_missing=len(blobs.missing),
        missing_blobs=blobs.told,
        erased_again=adopted.erased,
    )


def _require_replaceable(present: Meta, options: Options) -> None:
    if is_alive(present) and not options.replace:
        raise MemoreeError(
            Code.CONFIG_ERROR,
            f"the store stands at commit {present.commit_seq}, which a restore would undo; --replace does that, and a "
            "backup directory can also be used as it is: name it by MEMOREE_DATA_DIR",
        )


def _place(backup: Path) -> Place:
    return Place(FilesystemStore(backup / OBJECTS_NAME), LOCAL_TENANT)


async def _erasures(store: FilesystemStore, source: Place, told: Sequence[Erasure]) -> list[Erasure]:
    """All that are on record, where those are seen to that the store's database tells of."""
    await record_missing(store, LOCAL_TENANT, told)
    found = [*await recorded(store, LOCAL_TENANT), *await recorded(source.store, source.tenant)]
    return list({erasure.erasure_id: erasure for erasure in found}.values())


async def _erasures_kept(store: FilesystemStore, source: Place, told: Sequence[Erasure]) -> list[Erasure]:
    """As `_erasures`, and the store has all of them on record: its database will tell of other ones."""
    found = await _erasures(store, source, told)
    await record_missing(store, LOCAL_TENANT, found)
    return found


@contextmanager
def _staging(data_dir: Path) -> Iterator[Path]:
    remove_abandoned(data_dir)
    directory, lock = claim_staging(data_dir)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _stage(database: Path, staged: Path, source: Place, options: Options) -> Meta:
    """A sound copy of this program's schema, and its counters as they were."""
    try:
        copy_database(database, staged)
        with closing(open_writer(staged, replicated=False)) as db:
            if not schema.stored_version(db):
                raise _unsound("its database is empty")
            schema.create_or_migrate(db)
        with closing(open_copy(staged)) as db:
            assert isinstance(source.store, FilesystemStore)
            report = verify(db, DirectoryAudit(source.store, source.tenant))
            found = meta.read(db)
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
        raise _unsound(str(error)) from error
    issues = [issue for issue in report.issues if not options.allow_missing_blobs or issue.kind != "blob"]
    if issues:
        raise _unsound("; ".join(map(str, issues[:ISSUES_TOLD])))
    return found


async def _bring(
    source: Place, service: EmbeddedService, staged: Path, erasures: Sequence[Erasure], options: Options
) -> Brought:
    blobs = await bring_blobs(source, Place(service.store, LOCAL_TENANT), staged, erasures)
    if not options.allow_missing_blobs:
        blobs.require_all()
    return blobs


def _replace(service: EmbeddedService, backup: Path, staged: Path, began: float, options: Options) -> Adopted:
    """What is erased by now is erased again: the database tells of it under the lock, on record or not."""
    adopted: list[Adopted] = []

    with closing(open_writer(staged, replicated=False)) as db:

        def prepared(live: apsw.Connection) -> apsw.Connection:
            present = meta.read(live)
            _require_replaceable(present, options)
            if time.monotonic() - began > limits.RESTORE_DIRECTORY_SECONDS_MAX:
                raise MemoreeError(Code.TRANSPORT_ERROR, "the restore took too long and was given up; try again")
            erasures = asyncio.run(_erasures_kept(service.store, _place(backup), told_by(live)))
            if not options.allow_missing_blobs:
                _require_blobs(service.store, staged, erasures)
            carried = carried_over(staged, erasures, condemned_now(live), service.clock)
            adoption = Adoption({"backup": str(backup)}, carried, erasures, service.facts, service.clock)
            adopted.append(adopt(db, present, adoption))
            compact(db)
            return db

        service.replace_database(prepared)
    return adopted[0]


def _require_blobs(store: FilesystemStore, database: Path, erasures: Sequence[Erasure]) -> None:
    """Raises `TRANSPORT_ERROR`. A blob that nothing referred to may have been collected until a moment ago."""
    blobs = LocalBlobStore(store, LOCAL_TENANT)
    for ref in needed_blobs(database, erasures):
        if blobs.size_of(ref.digest.hex()) != ref.size:
            raise MemoreeError(Code.TRANSPORT_ERROR, f"blob {ref.digest.hex()} was collected meanwhile; try again")


def _unsound(what: str) -> MemoreeError:
    return MemoreeError(Code.INTEGRITY_ERROR, f"nothing was restored, the backup is not whole: {what}")

"""A backup of the embedded profile: a directory that opens as a store (machine protocol §4.37, design §8).

It is staged beside its destination, proved there, and renamed into place in one step. The blob manifest is made from
the staged database, so both are of one commit by construction.
"""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import apsw
import orjson
from blake3 import blake3

from memoree import limits
from memoree.backup.database import copy_database, create_private, flush, open_copy
from memoree.backup.publish import rename_without_replacing
from memoree.database import meta
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.ids import new_ulid
from memoree.objects import ObjectMissing, OutOfRange
from memoree.objects.audit import BlobRef, DirectoryAudit
from memoree.objects.blobs import blob_key, blob_prefix
from memoree.objects.filesystem import FilesystemStore
from memoree.private_file import write_private
from memoree.verification.store import referenced_blobs, verify

MANIFEST_NAME = "manifest.jsonl"
STAGING_PREFIX = ".memoree-backup-"
"""What is left of a killed process bears this name. Nothing reads it; it may be removed when no backup is running."""


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The files of an embedded store, relative to its directory."""

    tenant: str
    database: str
    objects: str
    lock: str
    born: bytes
    """What the lock file of a directory says that holds a store."""


@dataclass(frozen=True, slots=True)
class Backup:
    """`database` and `blobs` are where they are now."""

    database: Path
    blobs: Path
    commit_seq: int
    copied_blobs: int


def back_up(store: Path, layout: StoreLayout, destination: Path, *, commit_seq_min: int) -> Backup:
    """Copy the store in the directory `store` to `destination`, which must not exist; at least up to a commit that the
    caller has seen.

    Raises `INVALID_REQUEST` for a destination that exists or cannot be one, `CONFIG_ERROR` when it appeared meanwhile
    or cannot be published, `INTEGRITY_ERROR` when the store or its copy is not whole, `INTERNAL_ERROR` when the disk
    fails. Whatever is raised, nothing is left behind but parent directories.
    """
    _check_destination(store / layout.objects, destination)
    try:
        destination.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staging = destination.parent / f"{STAGING_PREFIX}{new_ulid()}"
        staging.mkdir(mode=0o700)
        try:
            commit_seq, copied = _stage(store, layout, staging)
            if commit_seq < commit_seq_min:
                raise _unsound(f"its copy holds commit {commit_seq} where {commit_seq_min} was seen")
            _publish(staging, destination)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
    except (OSError, apsw.FullError, apsw.IOError, apsw.CantOpenError) as error:
        raise MemoreeError(Code.INTERNAL_ERROR, f"the backup could not be written: {error}") from error
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
        raise _unsound(f"its database, or the copy of it, cannot be read: {error}") from error
    blobs = destination / layout.objects / blob_prefix(layout.tenant)
    return Backup(destination / layout.database, blobs, commit_seq, copied)


def _check_destination(objects: Path, destination: Path) -> None:
    assert destination.is_absolute(), "a relative path means something else to every process"
    try:
        destination.lstat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        invalid(f"destination: {shown(str(destination))} cannot be a directory: {error}")
    else:
        invalid(f"destination: {shown(str(destination))} exists already")
    if destination.resolve().is_relative_to(objects.resolve()):
        invalid(f"destination: {shown(str(destination))} lies among the blobs it would copy")


def _stage(store: Path, layout: StoreLayout, staging: Path) -> tuple[int, int]:
    """Everything a store needs, durable and proved; returns its commit and how many blobs it has."""
    copy_database(store / layout.database, staging / layout.database)
    source, copy = FilesystemStore(store / layout.objects), FilesystemStore(staging / layout.objects)
    _make_private(staging / layout.objects / blob_prefix(layout.tenant))
    copied = 0
    with closing(open_copy(staging / layout.database)) as db:
        with create_private(staging / MANIFEST_NAME) as manifest:
            for ref in referenced_blobs(db):
                _copy_blob(source, copy.root, blob_key(layout.tenant, ref.digest.hex()), ref)
                manifest.write(orjson.dumps({"digest": ref.digest.hex(), "size": ref.size}) + b"\n")
                copied += 1
        report = verify(db, DirectoryAudit(copy, layout.tenant))
        if not report.ok:
            raise _unsound("; ".join(report.lines()[:3]))
        commit_seq = meta.read(db).commit_seq
    write_private(staging / layout.lock, layout.born)
    flush(staging / MANIFEST_NAME)
    for directory, _, _ in os.walk(staging):
        flush(Path(directory))
    return commit_seq, copied


def _make_private(directory: Path) -> None:
    """As `mkdir` with parents, whose mode it would leave to the umask."""
    if not directory.is_dir():
        _make_private(directory.parent)
        directory.mkdir(mode=0o700)


def _copy_blob(source: FilesystemStore, root: Path, key: str, ref: BlobRef) -> None:
    target = root / key
    _make_private(target.parent)
    try:
        with create_private(target) as file:
            found = _copy_bytes(source, key, ref.size, file)
            file.flush()
            os.fsync(file.fileno())
    except (ObjectMissing, OutOfRange) as error:
        raise _unsound(f"blob {ref.digest.hex()} is missing or cut short") from error
    if found != ref.digest:
        raise _unsound(f"blob {ref.digest.hex()} is damaged: what is stored under its name hashes to {found.hex()}")


def _copy_bytes(source: FilesystemStore, key: str, size: int, file: BinaryIO) -> bytes:
    """The digest of what was copied, in pieces: a blob may be larger than memory."""
    hasher = blake3()
    for start in range(0, size, limits.VERIFY_PIECE_BYTES):
        piece = source.get_range_sync(key, start, min(start + limits.VERIFY_PIECE_BYTES, size))
        if piece.object_size != size:
            raise _unsound(f"{key} has {piece.object_size} bytes where {size} were recorded")
        hasher.update(piece.body)
        file.write(piece.body)
    return hasher.digest()


def _publish(staging: Path, destination: Path) -> None:
    try:
        rename_without_replacing(staging, destination)
    except FileExistsError as error:
        raise MemoreeError(
            Code.CONFIG_ERROR, f"{destination} appeared while the backup was made; it was left as it is"
        ) from error
    flush(destination.parent)


def _unsound(what: str) -> MemoreeError:
    return MemoreeError(
        Code.INTEGRITY_ERROR, f"no backup was made, the store is not whole: {what}; `memoree verify` tells everything"
    )

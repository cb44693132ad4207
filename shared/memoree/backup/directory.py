"""A backup of the embedded profile: a directory that opens as a store (machine protocol §4.37, design §8).

It is staged beside its destination, proved there, and renamed into place in one step. The blob manifest is made from
the staged database, so both are of one commit by construction.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

import apsw
import orjson
from blake3 import blake3

from memoree import limits
from memoree.backup.database import copy_database, create_private, flush, open_copy
from memoree.backup.publish import rename_without_replacing
from memoree.backup.staging import claim_staging, remove_abandoned
from memoree.database import meta
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.objects import ObjectMissing, ObjectStoreError, OutOfRange
from memoree.objects.audit import BlobRef, DirectoryAudit
from memoree.objects.blobs import blob_key, blob_prefix
from memoree.objects.filesystem import FilesystemStore
from memoree.private_file import write_private
from memoree.replication.layout import erasures_prefix
from memoree.verification.store import referenced_blobs, verify

MANIFEST_NAME = "manifest.jsonl"

_AT_ITS_END = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""The disk or the process, whatever destination is named."""


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

    Raises `INVALID_REQUEST` for a destination that exists, lies in the store or cannot be a directory, `CONFIG_ERROR`
    when it appeared meanwhile or cannot be published, `INTEGRITY_ERROR` when the store or its copy is not whole,
    `INTERNAL_ERROR` when the disk fails. Whatever is raised, nothing is left behind but parent directories; what a
    killed process left beside the destination is removed.
    """
    _check_destination(destination)
    _check_outside(store, layout, destination)
    try:
        staging, lock = _staging_beside(destination)
        try:
            commit_seq, copied = _stage(store, layout, staging)
            if commit_seq < commit_seq_min:
                raise _unsound(f"its copy holds commit {commit_seq} where {commit_seq_min} was seen")
            _publish(staging, destination)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        finally:
            os.close(lock)
    except (OSError, apsw.FullError, apsw.IOError, apsw.CantOpenError) as error:
        raise MemoreeError(Code.INTERNAL_ERROR, f"the backup could not be written: {error}") from error
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
        raise _unsound(f"its database, or the copy of it, cannot be read: {error}") from error
    blobs = destination / layout.objects / blob_prefix(layout.tenant)
    return Backup(destination / layout.database, blobs, commit_seq, copied)


def _check_destination(destination: Path) -> None:
    assert destination.is_absolute(), "a relative path means something else to every process"
    try:
        destination.lstat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        _no_directory(destination, error)
    else:
        invalid(f"destination: {shown(str(destination))} exists already")
    if destination.name == "..":
        invalid(f"destination: {shown(str(destination))} is no name of a new directory")


def _check_outside(store: Path, layout: StoreLayout, destination: Path) -> None:
    """A file or directory of a name that SQLite looks for would keep everybody from opening the store.

    Directories are compared by what they are: links and disks that ignore case give them many names.
    """
    resolved = destination.resolve()
    database = (store / layout.database).resolve()
    own = (store, store / layout.objects)
    if any(_is_same(parent, directory) for parent in resolved.parents for directory in own) or (
        _is_same(resolved.parent, database.parent) and resolved.name.casefold().startswith(database.name.casefold())
    ):
        invalid(f"destination: {shown(str(destination))} lies in the store that it would copy; choose one outside")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _staging_beside(destination: Path) -> tuple[Path, int]:
    """As `claim_staging`; where it cannot be made, the destination is at fault, and with it the caller."""
    parent = destination.parent
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_abandoned(parent)
        return claim_staging(parent)
    except OSError as error:
        if error.errno in _AT_ITS_END:
            raise
        _no_directory(destination, error)


def _no_directory(destination: Path, error: OSError | ValueError) -> NoReturn:
    invalid(f"destination: {shown(str(destination))} cannot be a directory: {error}")


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
        _copy_erasures(source, copy.root, layout.tenant)
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
    except ObjectStoreError as error:
        raise _unsound(f"blob {ref.digest.hex()} cannot be read: {error}") from error
    if found != ref.digest:
        raise _unsound(f"blob {ref.digest.hex()} is damaged: what is stored under its name hashes to {found.hex()}")


def _copy_erasures(source: FilesystemStore, root: Path, tenant: str) -> None:
    """The record of erasures: what a restore of an older backup over this one has to erase again. After the database,
    so that of none that it tells of the entry is missing which the store has."""
    for key in source.keys_sync(erasures_prefix(tenant)):
        try:
            entry = source.get_sync(key)
        except ObjectMissing:
            continue  # of interest to no backup any more
        except ObjectStoreError as error:
            raise _unsound(f"{key} cannot be read: {error}") from error
        assert entry is not None, "a GET without a condition always has a body"
        _make_private((root / key).parent)
        with create_private(root / key) as file:
            file.write(entry.body)
        flush(root / key)


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

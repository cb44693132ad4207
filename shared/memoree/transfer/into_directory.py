"""An export becomes the store of a data directory (the embedded profile)."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from memoree.backup.database import flush
from memoree.backup.publish import rename_without_replacing
from memoree.backup.staging import claim_staging, remove_abandoned
from memoree.data_directory import BORN, DATABASE_NAME, LOCK_NAME, OBJECTS_NAME, has_store
from memoree.embedded import LOCAL_TENANT
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.objects.audit import DirectoryAudit
from memoree.objects.filesystem import FilesystemStore
from memoree.private_file import write_private
from memoree.transfer.importing import Imported, check, read_archive


def import_directory(file: BinaryIO, data_dir: Path) -> Imported:
    """Make an embedded store of an export. It is staged beside `data_dir`, proved, and shown whole or not at all.

    Raises `INVALID_REQUEST` for what is no whole export and for a directory that holds anything; `INTEGRITY_ERROR` for
    an export whose content does not agree with itself; `CONFIG_ERROR` where it cannot be published; `OSError`.
    """
    if has_store(data_dir):
        invalid(f"{shown(str(data_dir))} holds a store already; an import makes a new one")
    data_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_abandoned(data_dir.parent)
    staging, lock = claim_staging(data_dir.parent)
    try:
        store = FilesystemStore(staging / OBJECTS_NAME)
        imported = read_archive(file, staging / DATABASE_NAME, LOCAL_TENANT, partial(_put_file, store))
        check(staging / DATABASE_NAME, DirectoryAudit(store, LOCAL_TENANT))
        write_private(staging / LOCK_NAME, BORN)
        for directory, _, _ in os.walk(staging):
            flush(Path(directory))
        _publish(staging, data_dir)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    finally:
        os.close(lock)
    return imported


def _put_file(store: FilesystemStore, key: str, size: int, pieces: Iterator[bytes]) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    asyncio.run(store.put_stream(key, chunks(), size=size))


def _publish(staging: Path, data_dir: Path) -> None:
    try:
        if data_dir.is_dir():
            data_dir.rmdir()
        rename_without_replacing(staging, data_dir)
    except OSError as error:
        raise MemoreeError(
            Code.INVALID_REQUEST, f"{shown(str(data_dir))} is not an empty directory; nothing was changed"
        ) from error
    flush(data_dir.parent)

"""The tokens file as a file: looked at by its status, replaced by renaming a new one over it."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memoree.errors import Code, MemoreeError, not_found
from memoree.private_file import write_private
from memoree.tokens.document import TOKENS_FILE_BYTES_MAX, Document, encode
from memoree.tokens.source import Change, TokensSource, decoded

LOCK_SECONDS_MAX = 5.0
LOCK_POLL_SECONDS = 0.02

log = logging.getLogger(__name__)


class FileSource(TokensSource):
    """Whoever changes the file holds a lock on its directory; who only reads it sees one version or the next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, ...] | None = None

    def look(self) -> bytes | None:
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
            if version == self._version:
                return None
            raw, self._version = self._read(), version
        except OSError:
            self._version = None
            raise
        return raw

    async def read(self) -> Document:
        """Raises `NOT_FOUND` where there is no file, which may be a slip of the pen."""
        if not await asyncio.to_thread(self._path.exists):
            not_found("tokens file", str(self._path))
        return await asyncio.to_thread(self._document)

    async def update(self, change: Change) -> None:
        await asyncio.to_thread(self._update, change)

    def _update(self, change: Change) -> None:
        path = self._path.resolve()  # a link stays one
        try:
            with _alone(path.parent):
                document = self._document()
                if (changed := change(document)) != document:
                    write_private(path, encode(changed), like=path.stat() if path.exists() else None)
        except OSError as error:
            raise _failed("changed", error) from error

    def _document(self) -> Document:
        """Where there is no file, it holds no token."""
        try:
            return decoded(self._read())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise _failed("read", error) from error

    def _read(self) -> bytes:
        with self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                log.warning("the tokens file can be read by others than its owner; give it mode 0600")
            return file.read(TOKENS_FILE_BYTES_MAX + 1)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Raises `TRANSPORT_ERROR` when somebody else takes longer than `LOCK_SECONDS_MAX`."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    deadline = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise MemoreeError(
                    Code.TRANSPORT_ERROR, "somebody else is changing the tokens file; try again"
                ) from None
        time.sleep(LOCK_POLL_SECONDS)


def _failed(what: str, error: OSError) -> MemoreeError:
    return MemoreeError(
        Code.CONFIG_ERROR, f"the tokens file cannot be {what}: {error.strerror or type(error).__name__}"
    )

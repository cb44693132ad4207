"""Single files of the object store in a directory: durable writing, hashing, and work done in threads."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from blake3 import blake3

from memoree.objects import PreconditionFailed

FILE_MODE = 0o600
HASH_CHUNK_BYTES = 1024 * 1024
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Temporary:
    """A file under a name no reader knows, until it is published. It is locked for as long as somebody works on it, so
    that what a killed process left can be told from it (`remove_abandoned`)."""

    def __init__(self, directory: int, name: str) -> None:
        self._directory = directory
        self.name = name
        self._descriptor: int | None = None

    def write(self, body: bytes) -> None:
        """All of it, durably."""
        self.append(body)
        self.finish()

    def append(self, piece: bytes) -> None:
        if self._descriptor is None:
            self._make()
        assert self._descriptor is not None
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def _make(self) -> None:
        while True:
            self._descriptor = os.open(self.name, _OPEN_NEW, FILE_MODE, dir_fd=self._directory)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
            if os.fstat(self._descriptor).st_nlink:
                return
            self.close()  # it was taken for abandoned before it was locked

    def finish(self) -> int:
        """Make what was written durable, and say how many bytes it is."""
        self.append(b"")
        assert self._descriptor is not None
        fsync(self._descriptor)
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def link_from(self, directory: int, name: str) -> None:
        """Make this a second name of a file that is there, which others may be doing too."""
        self._descriptor = os.open(name, OPEN_FILE, dir_fd=directory)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        os.link(name, self.name, src_dir_fd=directory, dst_dir_fd=self._directory, follow_symlinks=False)

    def refreshed_etag(self) -> str:
        """The hash of what the file holds, which counts as modified now."""
        descriptor = os.open(self.name, OPEN_FILE, dir_fd=self._directory)
        try:
            os.utime(descriptor)
            return etag_of(descriptor)
        finally:
            os.close(descriptor)

    def publish(self, directory: int, name: str, key: str, *, only_if_absent: bool) -> None:
        """Give the file its final name in one step. Raises `PreconditionFailed`."""
        if not only_if_absent:
            os.rename(self.name, name, src_dir_fd=self._directory, dst_dir_fd=directory)
            return
        try:
            os.link(self.name, name, src_dir_fd=self._directory, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError as error:
            raise PreconditionFailed(f"{key!r} exists already") from error


def remove_abandoned(directory: int, names: Iterable[str]) -> int:
    """Remove the temporary files that no process works on; how many of them stay."""
    held = 0
    for name in names:
        try:
            descriptor = os.open(name, OPEN_FILE, dir_fd=directory)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=directory)
        except BlockingIOError:
            held += 1
        except FileNotFoundError:
            pass
        finally:
            os.close(descriptor)
    return held


def fsync(descriptor: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone does not reach the medium
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def read_all(descriptor: int, size: int) -> bytes:
    pieces = []
    while piece := os.read(descriptor, max(size, HASH_CHUNK_BYTES)):
        pieces.append(piece)
    return b"".join(pieces)


def read_at(descriptor: int, start: int, stop: int) -> bytes:
    pieces = []
    while start < stop and (piece := os.pread(descriptor, stop - start, start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def etag_of(descriptor: int) -> str:
    hasher = blake3()
    while piece := os.read(descriptor, HASH_CHUNK_BYTES):
        hasher.update(piece)
    return hasher.hexdigest()


async def in_thread(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    import asyncio  # here, because the embedded command line uses this module without an event loop

    return await asyncio.to_thread(function, *args, **kwargs)


async def to_the_end(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """As `in_thread`, and cancelled it still waits for the thread, which may be using a descriptor."""
    import asyncio

    running = asyncio.ensure_future(in_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        raise

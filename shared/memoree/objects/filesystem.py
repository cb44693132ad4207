"""The object store in a directory: what `file://` means (design §4, §5.5).

An object is a plain file under its key. A write is a temporary file, fsync, one atomic step to the final
name and an fsync of the directory: an acknowledged object survives power loss, and no reader sees half of one.
Check-and-write holds across threads and processes through `flock`. Every path component is opened relative
to its parent without following links, so a symbolic link inside the directory never leads out of it.

The `…_sync` methods need no event loop; the async methods run them in threads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from blake3 import blake3

from memoree.objects import (
    ObjectInfo,
    ObjectMissing,
    ObjectRange,
    ObjectStoreError,
    OutOfRange,
    PreconditionFailed,
    PresignedPut,
    StoredObject,
    StoreUnavailable,
    check_key,
)
from memoree.objects.files import (
    FILE_MODE,
    OPEN_FILE,
    Temporary,
    etag_of,
    fsync,
    in_thread,
    read_all,
    read_at,
    remove_abandoned,
    to_the_end,
)

DIRECTORY_MODE = 0o700

PRIVATE_DIRECTORY = ".store"
"""Holds temporary files and locks; no key may start with it."""

LOCK_STRIPES = 256
"""Lock files in all: keys that share one merely wait for each other."""

LOCK_WAIT_SECONDS_MAX = 10.0
LOCK_POLL_SECONDS = 0.001

TEMPORARY_AGE_SECONDS_MAX = 24 * 3600
"""A temporary file this old was left by a crash: no write takes that long."""

LIST_PAGE = 512

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC

_REFUSALS = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
"""A link or a plain file where a directory should be, the reverse, or a segment too long for the disk."""

_R = TypeVar("_R")


class FilesystemStore:
    """`ObjectStore` over the directory `root`, which is created (0700) when first written to.

    The ETag is the BLAKE3 of the content, the clock is this host's. A directory cannot hold both `a` and
    `a/b`: the second of the two is refused with `ObjectStoreError`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._prepared = False
        self._preparing = threading.Lock()

    # ---- without an event loop

    def get_sync(self, key: str, *, if_none_match: str | None = None) -> StoredObject | None:
        """The object, or `None` when its ETag equals `if_none_match`. Raises `ObjectMissing`."""
        with _os_errors(key), self._opened(key) as descriptor:
            status = os.fstat(descriptor)
            body = read_all(descriptor, status.st_size)
        etag = blake3(body).hexdigest()
        if etag == if_none_match:
            return None
        return StoredObject(_info(key, etag, len(body), status), body, datetime.now(UTC))

    def head_sync(self, key: str) -> ObjectInfo:
        """Raises `ObjectMissing`. Reads the content, for the ETag is its hash; `exists_sync` does not."""
        with _os_errors(key), self._opened(key) as descriptor:
            return _info(key, etag_of(descriptor), os.fstat(descriptor).st_size, os.fstat(descriptor))

    def exists_sync(self, key: str) -> bool:
        try:
            with _os_errors(key), self._opened(key):
                return True
        except ObjectMissing:
            return False

    def size_sync(self, key: str) -> int:
        """The object's size, without reading it. Raises `ObjectMissing`."""
        with _os_errors(key), self._opened(key) as descriptor:
            return os.fstat(descriptor).st_size

    def modified_sync(self, key: str) -> datetime:
        """When the object was written, without reading it. Raises `ObjectMissing`."""
        with _os_errors(key), self._opened(key) as descriptor:
            return datetime.fromtimestamp(os.fstat(descriptor).st_mtime, UTC)

    def get_range_sync(self, key: str, start: int, stop: int, *, if_match: str | None = None) -> ObjectRange:
        """As `ObjectStore.get_range`."""
        with _os_errors(key), self._opened(key) as descriptor:
            size = os.fstat(descriptor).st_size
            if if_match is not None and (found := etag_of(descriptor)) != if_match:
                raise PreconditionFailed(f"{key!r} has the ETag {found}, not {if_match}")
            if start >= size:
                raise OutOfRange(f"{key!r} has {size} bytes, none at {start}")
            return ObjectRange(read_at(descriptor, start, min(stop, size)), size)

    def put_sync(self, key: str, body: bytes, *, if_match: str | None = None, if_absent: bool = False) -> str:
        """Store bytes durably and return the new ETag. Raises `PreconditionFailed`."""
        parents, name = _split(key)
        with _os_errors(key, writing=True):
            self._prepare()
            with self._directory(parents, create=True) as directory, self._temporary() as temporary:
                temporary.write(body)
                with self._locked(key):
                    if if_match is not None:
                        _require_etag(directory, name, key, if_match)
                    temporary.publish(directory, name, key, only_if_absent=if_absent)
                fsync(directory)
        return blake3(body).hexdigest()

    def copy_sync(self, source: str, target: str, *, if_match: str) -> None:
        """As `ObjectStore.copy`. No file is ever written in place, so a second name is a copy; the name is made
        before the content is hashed, so that what was hashed is what is shown."""
        source_parents, source_name = _split(source)
        target_parents, target_name = _split(target)
        self._prepare()
        with self._temporary() as temporary:
            with _os_errors(source), self._directory(source_parents) as directory:
                _require_file(directory, source_name, source)
                temporary.link_from(directory, source_name)
            with _os_errors(target, writing=True), self._directory(target_parents, create=True) as directory:
                if (found := temporary.refreshed_etag()) != if_match:
                    raise PreconditionFailed(f"{source!r} has the ETag {found}, not {if_match}")
                with self._locked(target):
                    temporary.publish(directory, target_name, target, only_if_absent=False)
                fsync(directory)

    def delete_sync(self, key: str) -> None:
        """Remove the object; succeeds when there is none."""
        parents, name = _split(key)
        with suppress(ObjectMissing), _os_errors(key), self._directory(parents) as directory:
            _require_file(directory, name, key)
            with self._locked(key):
                os.unlink(name, dir_fd=directory)
            fsync(directory)

    def remove_abandoned_sync(self) -> int:
        """Remove what killed processes were writing, whatever its age; how many files others are writing now."""
        with _os_errors(PRIVATE_DIRECTORY, writing=True):
            self._prepare()
            with self._directory([PRIVATE_DIRECTORY, "temporary"]) as directory:
                held = remove_abandoned(directory, _entries(directory))
                fsync(directory)
        return held

    def list_sync(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Every object whose key starts with `prefix`, in ascending byte order of keys."""
        for key in self.keys_sync(prefix, start_after=start_after):
            with suppress(ObjectMissing):  # deleted since the directory was read
                yield self.head_sync(key)

    def keys_sync(self, prefix: str, *, start_after: str | None = None) -> Iterator[str]:
        """As `list_sync`, the keys alone: no object is opened."""
        parents, _, _ = prefix.rpartition("/")
        if parents:
            check_key(parents)
        return self._walk(parents, prefix, start_after or "")

    # ---- the ObjectStore protocol

    async def get(self, key: str, *, if_none_match: str | None = None) -> StoredObject | None:
        return await in_thread(self.get_sync, key, if_none_match=if_none_match)

    async def head(self, key: str) -> ObjectInfo:
        return await in_thread(self.head_sync, key)

    async def put(
        self,
        key: str,
        body: bytes,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        timeout_seconds: float | None = None,
    ) -> str:
        import asyncio

        try:
            async with asyncio.timeout(timeout_seconds):
                return await in_thread(self.put_sync, key, body, if_match=if_match, if_absent=if_absent)
        except TimeoutError as error:
            raise StoreUnavailable(f"writing {key!r} took longer than {timeout_seconds} s") from error

    async def get_range(self, key: str, start: int, stop: int, *, if_match: str | None = None) -> ObjectRange:
        return await in_thread(self.get_range_sync, key, start, stop, if_match=if_match)

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, size: int) -> None:
        with _os_errors(key, writing=True):
            self._prepare()
            held = ExitStack()
            temporary = await to_the_end(lambda: held.enter_context(self._temporary()))
            try:
                async for chunk in chunks:
                    await to_the_end(temporary.append, chunk)
                await to_the_end(self._publish_grown, temporary, key, size)
            finally:
                await to_the_end(held.close)

    async def copy(self, source: ObjectInfo, target: str, *, progress: Callable[[], None] = lambda: None) -> None:
        await in_thread(self.copy_sync, source.key, target, if_match=source.etag)

    async def delete(self, key: str) -> None:
        await in_thread(self.delete_sync, key)

    async def children(self, prefix: str) -> AsyncIterator[str]:
        for name in await in_thread(self._children, prefix):
            yield name

    async def abort_unfinished(self, prefix: str, *, before: datetime) -> int:
        """Here they are temporary files, which know nothing of a prefix; those of writes under way are younger."""
        return await in_thread(self._remove_temporary, before.timestamp())

    def _remove_temporary(self, before: float) -> int:
        with _os_errors(PRIVATE_DIRECTORY, writing=True):
            self._prepare()
            with self._directory([PRIVATE_DIRECTORY, "temporary"]) as directory:
                return _remove_stale(directory, before)

    async def list(self, prefix: str, *, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        found = self.list_sync(prefix, start_after=start_after)
        while page := await in_thread(_take, found, LIST_PAGE):
            for info in page:
                yield info

    def presigned_delete(self, key: str, *, expires_seconds: int) -> str | None:
        return None

    def presigned_put(self, key: str, *, size: int, expires_seconds: int) -> PresignedPut | None:
        return None

    async def close(self) -> None:
        """Nothing is held open between calls."""

    # ---- directories

    @contextmanager
    def _directory(self, parents: Sequence[str], *, create: bool = False) -> Iterator[int]:
        """A descriptor of the directory `parents` below the root, reached without following any link."""
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for segment in parents:
                child = _open_child(descriptor, segment, create=create)
                os.close(descriptor)
                descriptor = child
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        """A descriptor of the object's file, for reading."""
        parents, name = _split(key)
        with self._directory(parents) as directory:
            _require_file(directory, name, key)
            descriptor = os.open(name, OPEN_FILE, dir_fd=directory)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _walk(self, parents: str, prefix: str, start_after: str) -> Iterator[str]:
        try:
            with (
                _os_errors(parents or "/"),
                self._directory(parents.split("/") if parents else []) as directory,
            ):
                entries = _entries(directory)
        except ObjectMissing:
            return
        base = f"{parents}/" if parents else ""
        # A directory sorts as its name plus "/": "a.txt" comes before "a/b" in the byte order of keys.
        # Python compares text by code point, which is also the byte order of UTF-8.
        for key in sorted(base + entry for entry in entries if (base + entry).startswith(prefix)):
            if not key.endswith("/"):
                if key > start_after:
                    yield key
            elif key > start_after or start_after.startswith(key):
                yield from self._walk(key[:-1], prefix, start_after)

    def _children(self, prefix: str) -> Sequence[str]:
        parents = prefix.rstrip("/")
        try:
            with _os_errors(prefix), self._directory(parents.split("/") if parents else []) as directory:
                return [prefix + entry for entry in _entries(directory)]
        except ObjectMissing:
            return []

    # ---- writing

    def _prepare(self) -> None:
        """Once per process: make the root, and remove temporary files that a crash left."""
        if self._prepared:
            return
        with self._preparing:
            _make_directory(self.root)
            with self._directory([PRIVATE_DIRECTORY, "locks"], create=True):
                pass
            with self._directory([PRIVATE_DIRECTORY, "temporary"], create=True) as directory:
                _remove_stale(directory, time.time() - TEMPORARY_AGE_SECONDS_MAX)
            self._prepared = True

    def _publish_grown(self, temporary: Temporary, key: str, size: int) -> None:
        parents, name = _split(key)
        if (found := temporary.finish()) != size:
            raise ObjectStoreError(f"{key!r} was to have {size} bytes, {found} came")
        with self._directory(parents, create=True) as directory:
            with self._locked(key):
                temporary.publish(directory, name, key, only_if_absent=False)
            fsync(directory)

    @contextmanager
    def _temporary(self) -> Iterator[Temporary]:
        """The place of a file under no name a reader knows; gone afterwards."""
        with self._directory([PRIVATE_DIRECTORY, "temporary"]) as directory:
            temporary = Temporary(directory, token_hex(16))
            try:
                yield temporary
            finally:
                temporary.close()
                with suppress(FileNotFoundError):
                    os.unlink(temporary.name, dir_fd=directory)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """The key's lock, across threads and processes. Raises `StoreUnavailable` if not to be had."""
        self._prepare()
        stripe = int.from_bytes(blake3(key.encode()).digest(length=4)) % LOCK_STRIPES
        with self._directory([PRIVATE_DIRECTORY, "locks"]) as directory:
            descriptor = os.open(f"{stripe:02x}", _OPEN_LOCK, FILE_MODE, dir_fd=directory)
        try:
            _lock(descriptor, key)
            yield
        finally:
            os.close(descriptor)


@contextmanager
def _os_errors(key: str, *, writing: bool = False) -> Iterator[None]:
    """Turns what the operating system says into the errors of the object store."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT and not writing:
            raise ObjectMissing(f"there is no object {key!r}") from error
        if error.errno in _REFUSALS:
            raise ObjectStoreError(f"{key!r} has no place in this directory: {error.strerror}") from error
        raise StoreUnavailable(f"the directory store failed on {key!r}: {error.strerror}") from error


def _split(key: str) -> tuple[list[str], str]:
    segments = check_key(key).split("/")
    if segments[0].casefold() == PRIVATE_DIRECTORY:
        raise ValueError(f"keys below {PRIVATE_DIRECTORY!r} are the store's own: {key!r}")
    return segments[:-1], segments[-1]


def _open_child(directory: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _OPEN_DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, DIRECTORY_MODE, dir_fd=directory)
    fsync(directory)
    return os.open(name, _OPEN_DIRECTORY, dir_fd=directory)


def _make_directory(path: Path) -> None:
    """Create a directory and what is missing above it, each one durably."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileExistsError):
            path.mkdir(DIRECTORY_MODE)
        fsync(parent)
    finally:
        os.close(parent)


def _require_file(directory: int, name: str, key: str) -> None:
    """Raises `ObjectMissing` for a directory (a prefix is no object), refuses all but a plain file."""
    mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        raise ObjectMissing(f"there is no object {key!r}")
    if not stat.S_ISREG(mode):
        raise ObjectStoreError(f"{key!r} is not a plain file: links and devices are never followed")


def _require_etag(directory: int, name: str, key: str, etag: str) -> None:
    try:
        descriptor = os.open(name, OPEN_FILE, dir_fd=directory)
    except FileNotFoundError as error:
        raise PreconditionFailed(f"{key!r} does not exist, so it does not have the ETag {etag}") from error
    try:
        if (found := etag_of(descriptor)) != etag:
            raise PreconditionFailed(f"{key!r} has the ETag {found}, not {etag}")
    finally:
        os.close(descriptor)


def _entries(directory: int) -> list[str]:
    """What a store wrote into a directory; names of directories end in `/`. Links are not objects."""
    with os.scandir(directory) as found:
        return [
            f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
            for entry in found
            if entry.name != PRIVATE_DIRECTORY and not entry.is_symlink() and _is_unicode(entry.name)
        ]


def _is_unicode(name: str) -> bool:
    """False for a file name that is not UTF-8, which Python spells with lone surrogates: not ours."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _remove_stale(directory: int, before: float) -> int:
    """Remove the files last written before that instant; how many they were."""
    removed = 0
    for name in _entries(directory):
        with suppress(FileNotFoundError):
            if os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime < before:
                os.unlink(name, dir_fd=directory)
                removed += 1
    return removed


def _lock(descriptor: int, key: str) -> None:
    deadline = time.monotonic() + LOCK_WAIT_SECONDS_MAX
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"{key!r} has been locked for {LOCK_WAIT_SECONDS_MAX} s") from error
        time.sleep(LOCK_POLL_SECONDS)


def _info(key: str, etag: str, size: int, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, etag, size, datetime.fromtimestamp(status.st_mtime, UTC))


def _take(items: Iterator[_R], count: int) -> list[_R]:
    return list(islice(items, count))

"""A directory of text files as a source: one item per file, its path the external id, its digest the revision.

Links are not followed, neither to directories nor to files: every directory and file is opened relative to the one
above it and refused when it is a link by then, so nothing outside the root is ever read. Hidden names are left out.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3

from memoree import limits
from memoree.connectors import Change, Gone, Item, Skipped, Unchanged
from memoree.connectors.media_types import media_type_of, title_of
from memoree.connectors.names import TWIN_REASON, Wanted, external_id_of, fault_of, is_hidden, name_of, prefixes_of
from memoree.connectors.state import State
from memoree.connectors.threaded import in_thread
from memoree.errors import Code, MemoreeError

READ_TRIES_MAX = 3
SETTLED_NANOSECONDS = 2_000_000_000
"""A file that changed this short a time before it was read may change again without its time saying so."""
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_OPEN_DIRECTORY = _OPEN | os.O_DIRECTORY
_NO_FILE = frozenset({errno.ELOOP, errno.EMLINK, errno.ENXIO})
"""What opening a link says, depending on the system, and a socket."""


class _StillWritten(Exception):
    """The file was never twice the same while it was read."""


@dataclass(frozen=True, slots=True)
class DirectoryConnector:
    """All files below `root` whose names are `wanted`. A scan that finds none although some were sent is refused,
    unless `allow_empty`: a disk that is not mounted looks just like that."""

    root: Path
    wanted: Wanted = field(default_factory=Wanted)
    bytes_max: int = limits.CONNECTOR_ITEM_BYTES_MAX
    allow_empty: bool = False
    kind: str = "directory"

    @property
    def locator(self) -> str:
        return self.root.absolute().as_uri()

    def changes(self, state: State) -> AsyncGenerator[Change, None]:
        """Raises `CONFIG_ERROR` for a root that cannot be read, or is empty against expectation."""
        return in_thread(self._scan(state))

    def _scan(self, state: State) -> Generator[Change, None, None]:
        state.begin_scan()
        walk = _Walk(self)
        yield from walk.changes(state)
        if (lost := state.saw_nothing_of()) and not self.allow_empty:
            raise MemoreeError(
                Code.CONFIG_ERROR,
                f"{self.root} holds none of the {lost} files that were sent before; is it mounted? "
                "If they are really gone, say --allow-empty to withdraw them",
            )
        for external_id in state.unseen():
            if not walk.is_out_of_sight(external_id):
                yield Gone(external_id, reason="the file was deleted, moved or excluded")


class _Walk:
    """One pass over the tree. What could not be read is remembered: nothing is known about what is there."""

    def __init__(self, connector: DirectoryConnector) -> None:
        self._root = connector.root
        self._wanted = connector.wanted
        self._bytes_max = connector.bytes_max
        self._unread: list[str] = []

    def is_out_of_sight(self, external_id: str) -> bool:
        return any(external_id.startswith(prefix) for prefix in self._unread)

    def changes(self, state: State) -> Iterator[Change]:
        try:
            root = os.open(self._root.resolve(), _OPEN_DIRECTORY)
        except OSError as error:
            raise MemoreeError(
                Code.CONFIG_ERROR, f"the directory {self._root} cannot be read: {error.strerror}"
            ) from error
        with _closing(root):
            yield from self._directory(state, root, "", depth=0)

    def _directory(self, state: State, descriptor: int, path: str, *, depth: int) -> Iterator[Change]:
        try:
            with os.scandir(descriptor) as entries:
                found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except OSError as error:
            if not path:
                raise MemoreeError(Code.CONFIG_ERROR, f"{self._root} cannot be listed: {error.strerror}") from error
            yield self._out_of_sight(path, error.strerror)
            return
        for name, is_directory in found:
            if is_hidden(name):
                continue
            if is_directory:
                yield from self._below(state, descriptor, name, f"{path}{name}/", depth=depth + 1)
            elif (external_id := external_id_of(path + name)) in self._wanted:
                yield from self._file(state, descriptor, name, external_id)

    def _below(self, state: State, parent: int, name: str, path: str, *, depth: int) -> Iterator[Change]:
        if depth > limits.CONNECTOR_DEPTH_MAX:
            yield self._out_of_sight(path, f"it is more than {limits.CONNECTOR_DEPTH_MAX} directories deep")
            return
        try:
            descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError as error:
            yield self._out_of_sight(path, error.strerror)
            return
        with _closing(descriptor):
            yield from self._directory(state, descriptor, path, depth=depth)

    def _out_of_sight(self, path: str, reason: str | None) -> Skipped:
        self._unread += prefixes_of(path)
        return Skipped(external_id_of(path), f"the directory cannot be read: {reason}")

    def _file(self, state: State, parent: int, name: str, external_id: str) -> Iterator[Change]:
        if (fault := fault_of(external_id)) is not None:
            yield Skipped(external_id[: limits.TITLE_BYTES_MAX], fault)
            return
        try:
            descriptor = os.open(name, _OPEN, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in _NO_FILE:
                state.see(external_id)
                yield Skipped(external_id, f"it cannot be read: {error.strerror}")
            return
        with _closing(descriptor):
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return
            if state.see(external_id):
                yield self._item(state, descriptor, external_id)
            else:
                yield Skipped(external_id, TWIN_REASON)

    def _item(self, state: State, descriptor: int, external_id: str) -> Change:
        before = state.sent(external_id)
        hint = _hint(os.fstat(descriptor))
        if before is not None and hint is not None and before.hint == hint:
            return Unchanged(external_id, hint)
        try:
            content, hint = self._content(descriptor)
        except _StillWritten:
            return Skipped(external_id, "it is being written")
        except OSError as error:
            return Skipped(external_id, f"it cannot be read: {error.strerror}")
        if content is None:
            return Skipped(external_id, f"it has more than {self._bytes_max} bytes")
        revision = f"blake3:{blake3(content).hexdigest()}"
        if before is not None and before.external_revision == revision:
            return Unchanged(external_id, hint)
        name = name_of(external_id)
        media_type = media_type_of(name, content)
        return Item(
            external_id=external_id,
            external_revision=revision,
            title=title_of(name, media_type, content),
            media_type=media_type,
            content=content,
            provenance={"connector": "directory", "path": external_id},
            hint=hint,
        )

    def _content(self, descriptor: int) -> tuple[bytes | None, str | None]:
        """The bytes of one moment, `None` for too many, and what recognises them. Raises `_StillWritten`."""
        for _ in range(READ_TRIES_MAX):
            before = os.fstat(descriptor)
            if before.st_size > self._bytes_max:
                return None, None
            content = _read(descriptor, before.st_size + 1)
            after = os.fstat(descriptor)
            if _identity(before) == _identity(after) and len(content) == before.st_size:
                return content, _hint(after)
        raise _StillWritten


def _read(descriptor: int, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    at = 0
    while at < bytes_max and (piece := os.pread(descriptor, bytes_max - at, at)):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


def _identity(found: os.stat_result) -> Sequence[int]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _hint(found: os.stat_result) -> str | None:
    """What tells a changed file from an unchanged one without reading it; `None` while it may still change unseen."""
    if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) < SETTLED_NANOSECONDS:
        return None
    return ":".join(map(str, _identity(found)))


@contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)

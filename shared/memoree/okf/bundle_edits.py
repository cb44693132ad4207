"""Changes to the files of a bundle that is a directory: several of them together, all of them or none.

A file is replaced as a whole, so that no reader sees half of it. Files that somebody else has changed since they were
read are left alone, and so are links and what lies outside the bundle.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from memoree.errors import Code, MemoreeError, invalid, shown


@dataclass(frozen=True, slots=True)
class FileChange:
    """To the file at `path`, which holds `before`: new bytes, or another path; paths are relative and have slashes."""

    path: str
    before: bytes
    data: bytes | None = None
    moved_to: str | None = None


def apply(root: Path, changes: Sequence[FileChange]) -> None:
    """Make all changes, or none. Raises `INVALID_REQUEST` for a link and for a path that leaves the bundle or is taken,
    `REVISION_CONFLICT` for a file that is not what it was, `INTERNAL_ERROR` for what the disk does not take."""
    inside = root.resolve()
    for change in changes:
        _check(root, inside, change)
    undo: list[Callable[[], object]] = []
    with ExitStack() as staged:
        try:
            ready = [(change, _staged(root, change, staged)) for change in changes]
            for change, temporary in ready:
                undo.append(_made(root, change, temporary))
        except OSError as error:
            for each in reversed(undo):
                each()
            raise MemoreeError(Code.INTERNAL_ERROR, f"nothing was changed: {error.strerror or error}") from error


def write_new(root: Path, path: str, data: bytes) -> None:
    """Write a file that is derived from others, in place of an older one. Raises as `apply`."""
    at, inside = root / path, root.resolve()
    if at.is_symlink() or not at.parent.resolve().is_relative_to(inside):
        invalid(f"{shown(path)} is a link or lies outside the bundle; it is left alone")
    try:
        at.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as staged:
            _temporary(at.parent, data, staged).replace(at)
    except OSError as error:
        raise MemoreeError(Code.INTERNAL_ERROR, f"{path} was not written: {error.strerror or error}") from error


def _check(root: Path, inside: Path, change: FileChange) -> None:
    at = root / change.path
    if at.is_symlink() or not at.resolve().is_relative_to(inside):
        invalid(f"{shown(change.path)} is a link or lies outside the bundle; it is left alone")
    if change.moved_to is None:
        return
    to = root / change.moved_to
    if os.path.lexists(to):
        invalid(f"{shown(change.moved_to)} exists already")
    if not to.parent.resolve().is_relative_to(inside):
        invalid(f"{shown(change.moved_to)} would lie outside the bundle")


def _staged(root: Path, change: FileChange, staged: ExitStack) -> Path | None:
    """A file with the new bytes beside the old one; for a move nothing, but its folder is there then."""
    at = root / change.path
    if at.read_bytes() != change.before:
        raise MemoreeError(Code.REVISION_CONFLICT, f"{shown(change.path)} was changed meanwhile; nothing was done")
    if change.data is None:
        assert change.moved_to is not None, "a change is of the bytes or of the path"
        (root / change.moved_to).parent.mkdir(parents=True, exist_ok=True)
        return None
    temporary = _temporary(at.parent, change.data, staged)
    shutil.copymode(at, temporary)
    return temporary


def _made(root: Path, change: FileChange, temporary: Path | None) -> Callable[[], object]:
    """Make one change; how to take it back."""
    at = root / change.path
    if change.moved_to is not None:
        to = root / change.moved_to
        at.rename(to)
        return lambda: to.rename(at)
    assert temporary is not None, "new bytes are staged"
    temporary.replace(at)
    return lambda: at.write_bytes(change.before)


def _temporary(folder: Path, data: bytes, staged: ExitStack) -> Path:
    """No walk of a bundle sees its name; it is gone at the end in any case."""
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".memoree-", suffix=".tmp")
    path = Path(name)
    staged.callback(path.unlink, missing_ok=True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o666 & ~_umask())
    return path


def _umask() -> int:
    """There is no way to ask without setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask

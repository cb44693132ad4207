"""One step from staging to the final name, which replaces nothing: neither Python nor POSIX has it (`rename` replaces
an empty directory), the systems have."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

from memoree.errors import Code, MemoreeError

AT_FDCWD = -100
RENAME_NOREPLACE = 1
"""Linux, `renameat2`."""
RENAME_EXCL = 4
"""macOS, `renamex_np`."""

_NOT_SUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})

Rename = Callable[[bytes, bytes], int]


def rename_without_replacing(source: Path, target: Path) -> None:
    """Raises `FileExistsError` when `target` is there, whatever it is; `CONFIG_ERROR` where the system or the file
    system cannot promise that; other `OSError`s as they come."""
    rename = _system_rename()
    if rename is None:
        raise _unsupported(target, sys.platform)
    if rename(os.fsencode(source), os.fsencode(target)) == 0:
        return
    number = ctypes.get_errno()
    if number in _NOT_SUPPORTED:
        raise _unsupported(target, os.strerror(number))
    raise OSError(number, os.strerror(number), str(source), None, str(target))


def _system_rename() -> Rename | None:
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "linux" and (renameat2 := getattr(libc, "renameat2", None)) is not None:
        return lambda source, target: int(renameat2(AT_FDCWD, source, AT_FDCWD, target, RENAME_NOREPLACE))
    if sys.platform == "darwin" and (renamex_np := getattr(libc, "renamex_np", None)) is not None:
        return lambda source, target: int(renamex_np(source, target, RENAME_EXCL))
    return None


def _unsupported(target: Path, why: str) -> MemoreeError:
    return MemoreeError(
        Code.CONFIG_ERROR,
        f"there is no rename here that never replaces what is at {target} ({why}); choose a directory of a local file "
        "system on Linux or macOS",
    )

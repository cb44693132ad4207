"""Where a backup is made until it has its name. Its maker keeps the directory locked, so that the next one can tell
what a killed process left from what is being made."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from memoree.errors import Code, MemoreeError
from memoree.ids import new_ulid

STAGING_PREFIX = ".memoree-backup-"
CLAIM_TRIES_MAX = 10

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def claim_staging(parent: Path) -> tuple[Path, int]:
    """A new private directory in `parent` and the descriptor that keeps it locked, which the caller closes.

    Raises `CONFIG_ERROR` where directories cannot be locked; `OSError` where none can be made.
    """
    for _ in range(CLAIM_TRIES_MAX):
        path = parent / f"{STAGING_PREFIX}{new_ulid()}"
        path.mkdir(mode=0o700)
        try:
            lock = _lock(path)
        except OSError as error:
            path.rmdir()
            raise MemoreeError(
                Code.CONFIG_ERROR, f"{parent} cannot be locked ({error}); choose a directory of a local file system"
            ) from error
        if lock is not None:
            return path, lock
    raise MemoreeError(Code.TRANSPORT_ERROR, f"others keep removing what is made in {parent}; send the request again")


def remove_abandoned(parent: Path) -> int:
    """What processes that are gone have staged in `parent`. As far as that can be done: it is nobody's duty. Returns
    how many directories are left, most of which others work on."""
    for path in parent.glob(f"{STAGING_PREFIX}*"):
        try:
            lock = _lock(path)
        except OSError:
            continue  # no directory, or another user's
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
    return sum(1 for _ in parent.glob(f"{STAGING_PREFIX}*"))


def _lock(path: Path) -> int | None:
    """A descriptor that holds the directory, or `None` when another does or has removed it meanwhile."""
    try:
        descriptor = os.open(path, _OPEN_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(path.lstat(), os.fstat(descriptor)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None

"""A local directory that belongs to one process: nobody else's leftovers are ever reused (design §5.3, §6.1)."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from memoree.ids import new_ulid


class ProcessDirectory:
    """`<root>/<pid>-<ulid>`, held by `flock` while the process lives. Directories of the dead are swept."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(root)
        self.path = root / f"{os.getpid()}-{new_ulid()}"
        self._pid = os.getpid()
        self._lock = _hold_new_lock(_lock_path(self.path))
        self.path.mkdir(mode=0o700)

    def new_subdirectory(self, name: str) -> Path:
        """A new empty directory; after a fork the copy of this object refuses to make one."""
        assert os.getpid() == self._pid, "a forked process makes a directory of its own"
        path = self.path / name
        path.mkdir(mode=0o700, parents=True)
        return path

    def remove(self) -> None:
        """What cannot be removed is left with its lock file, for a later sweep. Call it once."""
        _remove(_lock_path(self.path))
        os.close(self._lock)


def _lock_path(directory: Path) -> Path:
    return directory.with_name(directory.name + ".lock")


def _hold_new_lock(path: Path) -> int:
    """Create the lock file already locked: linked into place, so that no sweep ever sees it free."""
    staged = path.with_suffix(".new")
    lock = os.open(staged, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    staged.rename(path)
    return lock


def _sweep(root: Path) -> None:
    """Remove the directories whose process is gone."""
    for lock_path in root.glob("*.lock"):
        try:
            lock = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            _remove(lock_path)
        finally:
            os.close(lock)


def _remove(lock_path: Path) -> None:
    """The directory first: without its lock file nobody would find it any more."""
    directory = lock_path.with_suffix("")
    shutil.rmtree(directory, ignore_errors=True)
    if not directory.exists():
        lock_path.unlink(missing_ok=True)

"""The running stack of a data directory: one at a time, and how `status` and `down` find it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from memoree.errors import Code, MemoreeError
from memoree.private_file import write_private

LOCK_NAME = "up.lock"
STATE_NAME = "up.json"


@dataclass(frozen=True, slots=True)
class Instance:
    """Held while the stack runs. `publish` tells other processes where it is."""

    data_dir: Path

    @classmethod
    @contextmanager
    def hold(cls, data_dir: Path) -> Iterator[Instance]:
        """Raises `CONFIG_ERROR` when a stack runs on this directory already."""
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
                raise MemoreeError(
                    Code.CONFIG_ERROR,
                    f"a stack is running on {data_dir} already (process {owner}); "
                    "`memoree status` shows it, `memoree down` stops it",
                ) from None
            (data_dir / STATE_NAME).unlink(missing_ok=True)
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            yield cls(data_dir)
        finally:
            os.close(lock)

    def publish(self, state: Mapping[str, Any]) -> None:
        write_private(self.data_dir / STATE_NAME, orjson.dumps(state, option=orjson.OPT_APPEND_NEWLINE))


def running_pid(data_dir: Path) -> int | None:
    """The supervisor's process id, or `None` when no stack runs on the directory. Never a stale number: the lock
    says whether its owner lives."""
    try:
        lock = os.open(data_dir / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.pread(lock, 32, 0) or 0) or None
    else:
        return None
    finally:
        os.close(lock)


def published_state(data_dir: Path) -> dict[str, Any] | None:
    """What the running stack announced; `None` while it is still starting."""
    try:
        state: dict[str, Any] = orjson.loads((data_dir / STATE_NAME).read_bytes())
    except FileNotFoundError:
        return None
    return state

"""The running stack of a data directory: one at a time, and how `status` and `down` find it."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from memoree.errors import Code, MemoreeError
from memoree.private_file import write_private

DIRECTORY_MODE = 0o700
LOCK_NAME = "up.lock"
STATE_NAME = "up.json"
PROBE_SECONDS_MAX = 0.5
"""A lock held for less than this was only looked at, by `status` or `down`."""
PROBE_POLL_SECONDS = 0.005
PID_BYTES_MAX = 32


@dataclass(frozen=True, slots=True)
class Instance:
    """Held while the stack runs. `publish` tells other processes where it is."""

    data_dir: Path

    @classmethod
    @contextmanager
    def hold(cls, data_dir: Path) -> Iterator[Instance]:
        """Raises `CONFIG_ERROR` when a stack runs on this directory already, or it cannot be a stack's."""
        make_private(data_dir)
        lock = os.open(data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _locked_in_time(lock):
                owner = _pid_in(lock) or "unknown"
                raise MemoreeError(
                    Code.CONFIG_ERROR,
                    f"a stack is running on {data_dir} already (process {owner}); "
                    "`memoree status` shows it, `memoree down` stops it",
                )
            (data_dir / STATE_NAME).unlink(missing_ok=True)
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            yield cls(data_dir)
        finally:
            os.close(lock)

    def publish(self, state: Mapping[str, Any]) -> None:
        write_private(self.data_dir / STATE_NAME, orjson.dumps(state, option=orjson.OPT_APPEND_NEWLINE))


def make_private(data_dir: Path) -> None:
    """The directory exists and is this user's alone. Raises `CONFIG_ERROR` rather than to close a directory that
    holds anything but a stack."""
    try:
        data_dir.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        if stat.S_IMODE(data_dir.stat().st_mode) & ~DIRECTORY_MODE == 0:
            return
        if not (data_dir / LOCK_NAME).exists() and any(data_dir.iterdir()):
            raise MemoreeError(
                Code.CONFIG_ERROR,
                f"{data_dir} is open to other users and holds other things than a stack; choose an empty directory",
            )
        data_dir.chmod(DIRECTORY_MODE)
    except OSError as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"the data directory {data_dir} cannot be used: {error}") from error


def running_pid(data_dir: Path) -> int | None:
    """The supervisor's process id, or `None` when no stack runs on the directory. Never a stale number: the lock
    says whether its owner lives."""
    try:
        lock = os.open(data_dir / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two probes do not take each other for a stack
    except BlockingIOError:
        return _pid_in(lock)
    else:
        return None
    finally:
        os.close(lock)


def _locked_in_time(lock: int) -> bool:
    deadline = time.monotonic() + PROBE_SECONDS_MAX
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(PROBE_POLL_SECONDS)


def _pid_in(lock: int) -> int | None:
    match = re.match(rb"[1-9][0-9]*", os.pread(lock, PID_BYTES_MAX, 0))
    return int(match[0]) if match else None


def published_state(data_dir: Path) -> dict[str, Any] | None:
    """What the running stack announced; `None` while it is still starting, and for a file that is damaged."""
    try:
        state = orjson.loads((data_dir / STATE_NAME).read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    return state if isinstance(state, dict) else None

"""A long-running program of the stack under the launcher, with a bounded log (design §5.3, "Litestream").

The launcher watches a pipe: however this process ends, the program does not outlive it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from memoree.replication import launcher

LOG_BYTES_MAX = 4 * 1024 * 1024
LOG_READ_BYTES = 64 * 1024
LAST_LINES_KEPT = 15
LINE_CHARS_SHOWN_MAX = 300


class Child:
    """One run of one program. Made by `start`; ends by itself, by `terminate` or by `kill`."""

    def __init__(self, process: asyncio.subprocess.Process, lifeline: int, log: BoundedLog) -> None:
        self._process = process
        self._lifeline: int | None = lifeline
        self._log = log
        self._reading = asyncio.create_task(self._read_log())

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        log_path: Path,
        pass_fds: Sequence[int] = (),
    ) -> Child:
        """Start `argv` in `directory` with exactly this environment; its output goes to `log_path`.
        Of this process's open files it gets `pass_fds`."""
        log = BoundedLog(log_path)
        watch, lifeline = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *launcher.command_line(watch, argv),
                env=environment,
                cwd=directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=[watch, *pass_fds],
                process_group=0,
            )
        except BaseException:
            os.close(lifeline)
            log.close()
            raise
        finally:
            os.close(watch)
        return cls(process, lifeline, log)

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    @property
    def pid(self) -> int:
        """The launcher, which leads the program's process group."""
        return self._process.pid

    async def wait(self) -> int:
        """Until the program ended and its last output was read; its exit status (128 + n for signal n)."""
        status = await self._process.wait()
        await asyncio.wait({self._reading})
        return status

    async def terminate(self, grace_seconds: float) -> None:
        """Ask it to end and wait that long."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL the launcher and everything in its process group, and reap it. Idempotent."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        await self.wait()

    def last_lines(self) -> list[str]:
        """The end of what it wrote, cut to a sane length."""
        return self._log.last_lines()

    async def _read_log(self) -> None:
        assert self._process.stdout is not None, "the child was started with a pipe"
        try:
            while piece := await self._process.stdout.read(LOG_READ_BYTES):
                self._log.write(piece)
        finally:
            self._log.close()


class BoundedLog:
    """A log file and its predecessor, each of at most `LOG_BYTES_MAX` and one read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._open()
        self._tail = b""

    def write(self, piece: bytes) -> None:
        self._tail = (self._tail + piece)[-LOG_READ_BYTES:]
        self._file.write(piece)
        if self._file.tell() >= LOG_BYTES_MAX:
            self._file.close()
            self._path.replace(self._path.with_suffix(".log.1"))
            self._file = self._open()

    def last_lines(self) -> list[str]:
        lines = self._tail.decode(errors="replace").splitlines()[-LAST_LINES_KEPT:]
        return [line[:LINE_CHARS_SHOWN_MAX] for line in lines]

    def close(self) -> None:
        self._file.close()

    def _open(self) -> BinaryIO:
        return open(self._path, "ab", buffering=0, opener=lambda path, flags: os.open(path, flags, 0o600))

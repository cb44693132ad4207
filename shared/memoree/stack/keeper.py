"""Keeping one child running: started again with backoff, and said so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from memoree.stack.child import Child

RESTART_SECONDS_MIN = 0.1
RESTART_SECONDS_MAX = 5.0
LAST_LINES_SHOWN = 3
STABLE_SECONDS = 10.0
"""A child that ran this long starts over with the shortest backoff."""


class Keeper:
    """Runs `argv` again whenever it ends, until `stop`."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        log_path: Path,
        say: Callable[[str], None],
        started: Callable[[], None],
        pass_fds: Sequence[int] = (),
    ) -> None:
        """`started` is called after every start; `pid` is new then."""
        self.name = name
        self._argv = argv
        self._environment = environment
        self._directory = directory
        self._log_path = log_path
        self._say = say
        self._started = started
        self._pass_fds = pass_fds
        self.last_ending: str | None = None
        """How the child ended the last time, with its last lines; `None` if it never did."""
        self._child: Child | None = None
        self._keeping = asyncio.create_task(self._keep())

    @property
    def pid(self) -> int | None:
        """The leader of the child's process group; `None` while there is none."""
        return self._child.pid if self._child is not None and self._child.is_alive else None

    @property
    def last_lines(self) -> list[str]:
        return self._child.last_lines() if self._child is not None else []

    async def stop(self, grace_seconds: float) -> None:
        """Ask the child to end, kill it after that time, and keep nothing running any more."""
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        if self._child is not None:
            await self._child.terminate(grace_seconds)
            await self._child.kill()

    async def _keep(self) -> None:
        pause = RESTART_SECONDS_MIN
        while True:
            began = time.monotonic()
            try:
                ending = await self._run_once()
            except OSError as error:  # no process, file or descriptor to be had: nobody else would try again
                ending = f"could not be kept running: {error}"
            if time.monotonic() - began > STABLE_SECONDS:
                pause = RESTART_SECONDS_MIN
            last_words = self._last_words()
            self.last_ending = f"the {self.name} {ending}{last_words}"
            self._say(f"the {self.name} {ending}; starting it again in {pause:.1f} s{last_words}")
            await asyncio.sleep(pause)
            pause = min(pause * 2, RESTART_SECONDS_MAX)

    async def _run_once(self) -> str:
        """Until the child ends; says how it did. A child from before is gone by then."""
        if self._child is not None:
            await self._child.kill()
        self._child = await Child.start(
            self._argv,
            environment=self._environment,
            directory=self._directory,
            log_path=self._log_path,
            pass_fds=self._pass_fds,
        )
        self._started()
        return f"ended with status {await self._child.wait()}"

    def _last_words(self) -> str:
        return "".join(f"\n    {line}" for line in self.last_lines[-LAST_LINES_SHOWN:])

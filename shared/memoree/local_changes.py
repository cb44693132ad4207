"""Who waits for a later commit of a data directory, which any process may make. One look serves all who wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import apsw

from memoree import limits
from memoree.errors import MemoreeError

log = logging.getLogger(__name__)


class LocalChanges:
    """Of one directory, for one event loop. Nobody looks while nobody waits."""

    def __init__(self, newest: Callable[[], int]) -> None:
        self._newest = newest
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._looking: asyncio.Task[None] | None = None

    async def newer(self, commit_seq: int, seconds: float) -> bool:
        """Whether there is a later commit than this one, within that time."""
        woken = asyncio.get_running_loop().create_future()
        self._waiting[woken] = commit_seq
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            return bool((await asyncio.wait((woken,), timeout=seconds))[0])
        finally:
            del self._waiting[woken]

    async def _look(self) -> None:
        try:
            while self._waiting:
                try:
                    newest = await asyncio.to_thread(self._newest)
                except (MemoreeError, apsw.Error) as error:
                    log.info("looking for a later commit again: %s", error)
                else:
                    self._wake(newest)
                await asyncio.sleep(limits.LOCAL_CHANGE_LOOK_SECONDS)
        finally:
            self._looking = None

    def _wake(self, newest: int) -> None:
        for woken, commit_seq in self._waiting.items():
            if newest > commit_seq and not woken.done():
                woken.set_result(None)

    async def close(self) -> None:
        if (looking := self._looking) is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

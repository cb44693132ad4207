"""When a stream's client has fallen silent: judged by both directions together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class IdleTimer:
    """One for a whole stream. Any movement of it starts the time anew, and none passes while the stream is `busy`: a
    client that waits for us is not silent."""

    def __init__(self, seconds_max: float, busy: Callable[[], bool]) -> None:
        self._seconds_max = seconds_max
        self._busy = busy
        self._moved_at = asyncio.get_running_loop().time()

    def moved(self) -> None:
        self._moved_at = asyncio.get_running_loop().time()

    async def wait_for(self, what: Coroutine[Any, Any, Result]) -> Result:
        """What the client has to do something for, and a movement itself. Raises `TimeoutError` when nothing has moved,
        here or elsewhere, for too long since this wait began."""
        began, waiting = asyncio.get_running_loop().time(), asyncio.create_task(what)
        try:
            while not waiting.done():
                if (left := self._seconds_left(began)) <= 0:
                    raise TimeoutError
                await asyncio.wait((waiting,), timeout=left)
            self.moved()
            return waiting.result()
        finally:
            waiting.cancel()

    def _seconds_left(self, began: float) -> float:
        if self._busy():
            self.moved()
        return max(began, self._moved_at) + self._seconds_max - asyncio.get_running_loop().time()

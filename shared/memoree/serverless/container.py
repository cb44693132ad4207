"""What a function keeps between events: one event loop, and what was opened on it at the first event.

Between two events the container is frozen, for milliseconds or hours, and may be cloned: whoever uses what is kept
here checks it against the store first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Generic, Protocol, TypeVar

from memoree.stack.processes import configure_logging

Opened = TypeVar("Opened")
Result = TypeVar("Result")

SETTLING_SECONDS = 10.0
"""Kept back of an event's time, for releasing what is held and for the answer's way out."""


class Context(Protocol):
    """What of Lambda's context object is used."""

    def get_remaining_time_in_millis(self) -> int: ...


class Container(Generic[Opened]):
    """Opens on the first event, so that importing a handler stays cheap and needs no settings."""

    def __init__(self, open: Callable[[], AbstractAsyncContextManager[Opened]]) -> None:
        self._open = open
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stack = AsyncExitStack()
        self._opened: Opened

    def run(self, work: Callable[[Opened], Awaitable[Result]]) -> Result:
        """The result of `work` over what is opened. An opening that failed is tried again by the next event."""
        return self._running_loop().run_until_complete(self._run(work))

    def close(self) -> None:
        """For tests and local runs: functions are never told of their end."""
        if self._loop is None:
            return
        loop, self._loop = self._loop, None
        loop.run_until_complete(self._stack.aclose())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        asyncio.set_event_loop(None)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            configure_logging()
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        return self._loop

    async def _run(self, work: Callable[[Opened], Awaitable[Result]]) -> Result:
        if not hasattr(self, "_opened"):
            self._opened = await self._stack.enter_async_context(self._open())
        return await work(self._opened)


def seconds_to_work(context: Context) -> float:
    """How long an event may be worked on, from now: what is left of its time but `SETTLING_SECONDS`."""
    return max(0.0, context.get_remaining_time_in_millis() / 1000 - SETTLING_SECONDS)


def text_of(event: Any, *path: str) -> str | None:
    """A member of an event, `None` where there is no such text."""
    for name in path:
        event = event.get(name) if isinstance(event, dict) else None
    return event if isinstance(event, str) else None

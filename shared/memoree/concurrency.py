"""Doing the same to many things, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


async def for_each(
    items: Iterable[Item] | AsyncIterable[Item], work: Callable[[Item], Awaitable[None]], *, at_once: int
) -> None:
    """Nothing is taken from `items` before somebody has time for it. The first exception, of either, is raised when all
    the others were cancelled."""
    waiting = aiter(items if isinstance(items, AsyncIterable) else _each(items))
    turn = asyncio.Lock()

    async def take() -> None:
        while True:
            async with turn:
                try:
                    item = await anext(waiting)
                except StopAsyncIteration:
                    return
            await work(item)

    tasks = [asyncio.create_task(take()) for _ in range(at_once)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _each(items: Iterable[Item]) -> AsyncIterable[Item]:
    for item in items:
        yield item

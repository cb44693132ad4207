"""Blocking connectors among asynchronous ones: their work is done in a thread, a batch of changes at a time. A batch
ends with a `Settle`, so that what is asked for more finds everything before it remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator

from memoree import limits
from memoree.connectors import Change, Item, Settle


async def in_thread(changes: Generator[Change, None, None]) -> AsyncGenerator[Change, None]:
    """What a generator gives. It is closed when the consumer leaves, which waits for the batch under way."""
    try:
        while batch := await _finished(changes):
            for change in batch:
                yield change
    finally:
        changes.close()


async def _finished(changes: Generator[Change, None, None]) -> list[Change]:
    """A thread cannot be cancelled, and a generator that runs cannot be closed."""
    work = asyncio.ensure_future(asyncio.to_thread(_batch, changes))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def _batch(changes: Generator[Change, None, None]) -> list[Change]:
    taken: list[Change] = []
    size = 0
    for change in changes:
        taken.append(change)
        size += len(change.content) if isinstance(change, Item) else 0
        full = len(taken) >= limits.CONNECTOR_BATCH_ITEMS_MAX or size >= limits.CONNECTOR_BATCH_BYTES_MAX
        if full or isinstance(change, Settle):
            break
    return taken

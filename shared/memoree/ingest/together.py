"""Works that are under way at once, of which none suffers from another."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable


async def all_together(works: Iterable[Coroutine[object, object, object]]) -> None:
    """All at once, and each to its end: raises what went wrong, in a group, once none goes on. Cancelled, it ends when
    all of them have."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if failures:
        raise BaseExceptionGroup("some of what was under way together failed", failures)

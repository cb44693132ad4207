"""Removing many objects: every one that could not be removed is told and counted (field fault 49)."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from memoree import limits
from memoree.concurrency import for_each
from memoree.objects import ObjectStore, ObjectStoreError


@dataclass(slots=True)
class Removal:
    """`failures` are the first objects that may still be there, with the reasons; `failed` counts all of them."""

    removed: int = 0
    failed: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    def include(self, other: Removal) -> None:
        self.removed += other.removed
        self.failed += other.failed
        room = limits.REMOVAL_FAILURES_TOLD_MAX - len(self.failures)
        self.failures |= dict(list(other.failures.items())[:room])


async def remove_all(store: ObjectStore, keys: Iterable[str] | AsyncIterable[str]) -> Removal:
    """Delete the objects, none of them held up by another one's failure. Raises what `keys` does."""
    return await remove_each(keys, store.delete)


async def remove_each(keys: Iterable[str] | AsyncIterable[str], remove: Callable[[str], Awaitable[None]]) -> Removal:
    """As `remove_all`; `remove` raises `ObjectStoreError` for an object that may still be there."""
    removal = Removal()

    async def attempt(key: str) -> None:
        try:
            await remove(key)
        except ObjectStoreError as error:
            removal.include(Removal(failed=1, failures={key: str(error)}))
        else:
            removal.removed += 1

    await for_each(keys, attempt, at_once=limits.JOB_REQUESTS_AT_ONCE_MAX)
    return removal

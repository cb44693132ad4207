"""What only so many requests of a process may hold at a time, shared so that no tenant can take all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from memoree.errors import Code, MemoreeError


class Places:
    """Of one tenant at most half of the places, and the last free one only for a tenant that has none. For one event
    loop. `what` names in messages what takes the places."""

    def __init__(self, what: str, *, retry_after_seconds: float = 1.0) -> None:
        self._what = what
        self._retry_after_seconds = retry_after_seconds
        self._held: Counter[str] = Counter()

    @contextmanager
    def held(self, tenant: str, places: int) -> Iterator[None]:
        """A place of so many, for as long as the block lasts. Raises `TRANSPORT_ERROR` when there is none to be had."""
        if self._held[tenant] >= max(places // 2, 1):
            raise self._refused(f"this tenant has its share of the {self._what} that are served at once")
        left = places - self._held.total()
        if left <= 0 or (left == 1 and self._held[tenant]):
            raise self._refused(f"too many {self._what} at once")
        self._held[tenant] += 1
        try:
            yield
        finally:
            self._held[tenant] -= 1
            self._held += Counter()  # which drops the tenants that hold nothing

    def _refused(self, why: str) -> MemoreeError:
        message = f"{why}; nothing was stored, send it again"
        return MemoreeError(Code.TRANSPORT_ERROR, message, retry_after_seconds=self._retry_after_seconds)

"""The time one exchange with a server may take (machine protocol §1.6)."""

from __future__ import annotations

import time

from memoree.errors import Code, MemoreeError

CONNECT_SECONDS_MAX = 5.0
EXCHANGE_SECONDS_MAX = 60.0


class Deadline:
    """A point in time; a server that sends a byte now and then does not move it."""

    def __init__(self, seconds: float = EXCHANGE_SECONDS_MAX) -> None:
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, for the timeout of the next step. Raises `TRANSPORT_ERROR` when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise MemoreeError(Code.TRANSPORT_ERROR, f"no answer within {EXCHANGE_SECONDS_MAX:.0f} seconds")
        return left

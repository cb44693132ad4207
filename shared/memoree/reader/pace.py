"""When to look at head for something that is on its way.

Each look costs a request, and looks before their time slow down what they wait for. Writes of one deployment take
about the same time, so the first look comes shortly before that, and close ones follow.
"""

from __future__ import annotations

from collections.abc import Iterator

from memoree import limits

GROWTH = 1.15
EARLIER = 0.9
LATER = 1.035
"""Of a wait that ended with its first look nobody knows how much earlier it could have ended. At these factors a
quarter of the waits ends so; the others look again, most of them once."""


class Pace:
    """Learns the time to the first look. For waits that begin when the thing waited for does."""

    def __init__(self) -> None:
        self.first_seconds = limits.POLL_SECONDS_MIN

    def learn(self, looks: int) -> None:
        """After so many looks it was there; after none when another waiter's look showed it."""
        seconds = self.first_seconds * (EARLIER if looks <= 1 else LATER)
        self.first_seconds = min(max(seconds, limits.POLL_SECONDS_MIN), limits.POLL_SECONDS_MAX)


def pauses(first_seconds: float) -> Iterator[float]:
    """Seconds before each look."""
    yield first_seconds
    pause = limits.POLL_SECONDS_MIN
    while True:
        yield pause
        pause = min(pause * GROWTH, limits.POLL_SECONDS_MAX)

"""Clocks and randomness of a run: all of them follow from its seed and its virtual time.

Clients of the store tell the time by the host they run on, which may be wrong by minutes; the store tells its own.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from random import Random
from typing import Any
from unittest.mock import patch

from memoree import clock, ids, limits
from memoree.objects import selftest
from memoree.reader import short_reads
from simulation.loop import SimulatedLoop, current_process

BEGINNING = datetime(2026, 3, 2, 20, 41, 7, tzinfo=UTC)
HURRIED = {
    "COLLECT_DELETE_EXPIRES_SECONDS": 5,
    "COLLECT_SEND_SECONDS_MAX": 10,
    "COLLECT_RELEASE_SECONDS_MIN": 30,
}
"""The intervals of the garbage collector, a hundred times as short and more: a release comes after what was sent last
has expired."""
_BEGINNING_SECONDS = BEGINNING.timestamp()


def store_time(loop: SimulatedLoop) -> datetime:
    """As HTTP dates say it: in whole seconds."""
    return BEGINNING + timedelta(seconds=int(loop.now))


@contextmanager
def virtual_time(loop: SimulatedLoop, random: Random) -> Iterator[None]:
    """While it lasts, nothing of the program sees this machine's clocks or its source of randomness."""

    def seconds() -> float:
        return _BEGINNING_SECONDS + loop.now + current_process().clock_offset_seconds

    class HostTime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return BEGINNING + timedelta(seconds=loop.now + current_process().clock_offset_seconds)

    with (
        patch.object(time, "monotonic", loop.time),
        patch.object(time, "time", seconds),
        patch.object(time, "time_ns", lambda: int(seconds() * 1_000_000_000)),
        patch.object(os, "urandom", random.randbytes),
        patch.object(clock, "datetime", HostTime),
        patch.object(short_reads, "perf_counter", loop.time),
        patch.object(selftest, "token_hex", lambda size: random.randbytes(size).hex()),
        patch.object(ids, "_ulids", ids._Ulids()),
        patch.multiple(limits, **HURRIED),
    ):
        yield


@contextmanager
def errors_collected() -> Iterator[list[str]]:
    """What the program logs as an error, and nothing else costs anything."""
    found: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            cause = record.exc_info[1] if record.exc_info else None
            found.append(record.getMessage() + (f": {cause!r}" if cause is not None else ""))

    logger, collector = logging.getLogger("memoree"), Collector()
    before = logging.root.manager.disable, logger.propagate
    logging.disable(logging.WARNING)
    logger.addHandler(collector)
    logger.propagate = False
    try:
        yield found
    finally:
        logger.removeHandler(collector)
        logger.propagate = before[1]
        logging.disable(before[0])

"""A deadline for reading: no query may keep a thread busy for long, whatever it asks of whatever is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import apsw

from memoree.errors import invalid

STEPS_PER_CHECK = 4096
"""SQLite instructions from one look at the clock to the next: well under a millisecond of them."""


@contextmanager
def deadline(db: apsw.Connection, seconds: float) -> Iterator[None]:
    """Statements of the block end when the time is up: `INVALID_REQUEST`, since the same query would fail again.

    An interrupt from elsewhere (`apsw.InterruptError`) passes through.
    """
    ends_at = monotonic() + seconds
    handler = object()
    db.set_progress_handler(lambda: monotonic() >= ends_at, STEPS_PER_CHECK, id=handler)
    try:
        yield
    except apsw.InterruptError:
        if monotonic() < ends_at:
            raise
        invalid(f"input.query: is too expensive, it was given up after {seconds:g} seconds; ask for fewer, rarer words")
    finally:
        db.set_progress_handler(None, id=handler)

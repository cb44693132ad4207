"""The one row of counters: what no writer leaves there, and what no writer could go on from.

Most of it shows in no other table: that history is no longer protected, or that the clock has run to its end.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from memoree import clock, limits
from memoree.verification.issue import Issue
from memoree.verification.rule import Rule, breaches

_CLOCK_END = clock.stored(clock.hlc_instant(limits.HLC_MAX))


def no_instant(column: str) -> str:
    """The condition that a column holds no instant in stored form, or one that no clock can have read."""
    seconds, fraction = f"substr({column}, 1, 19)", f"substr({column}, 20)"
    return f"""({seconds} IS NOT strftime('%Y-%m-%dT%H:%M:%S', {seconds})
        OR {fraction} NOT GLOB '.{9 * "[0-9]"}Z' OR {column} > '{_CLOCK_END}')"""


RULES = (
    Rule("counters", "are gone", "SELECT 'store' WHERE NOT EXISTS (SELECT 1 FROM meta)"),
    Rule(
        "counters",
        "say that an erasure is going on, outside of which history must not be changed",
        "SELECT 'store' FROM meta WHERE erasing <> 0",
    ),
    Rule(
        "counters",
        "one of history {0}, epoch {1}, batch {2}, commit {3} is none that counting from 0 leads to",
        f"""
        SELECT 'store', history, epoch, batch, commit_seq FROM meta
        WHERE min(history, epoch, batch, commit_seq) < 0
            OR max(history, epoch, batch, commit_seq) > {limits.COUNTER_MAX}
        """,  # noqa: S608 - constants, here and below
    ),
    Rule(
        "counters",
        "the clock stands at {0}, where no clock can have been",
        f"SELECT 'store', hlc FROM meta WHERE hlc NOT BETWEEN 0 AND {limits.HLC_MAX}",  # noqa: S608
    ),
    Rule(
        "counters",
        "batch {0} counts as covered; there were {1}",
        "SELECT 'store', covered_batch, batch FROM meta WHERE covered_batch NOT BETWEEN 0 AND batch",
    ),
    Rule(
        "counters",
        "since when that batch is covered is not told by an instant",
        f"SELECT 'store' FROM meta WHERE {no_instant('covered_at')}",  # noqa: S608
    ),
)


def issues(db: apsw.Connection) -> Iterator[Issue]:
    return breaches(db, RULES)

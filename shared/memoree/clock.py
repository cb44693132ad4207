"""Instants on the wire and in the database, and the hybrid logical clock of the writer.

Stored form: UTC text of fixed width, `YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ`, so that text order is time order in SQL.
Wire form: RFC 3339 in UTC with `Z` and a fraction of 0, 3, 6 or 9 digits (machine protocol §5.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]

_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9})\d*)?(?:([Zz])|([+-])(\d{2}):(\d{2}))",
    re.ASCII,  # digits of other scripts would break the text order of stored instants
)
_HLC_COUNTER_BITS = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def utc_now() -> datetime:
    return datetime.now(UTC)


def parse_timestamp(text: str) -> str:
    """RFC 3339 with any offset to the stored form. Raises `ValueError` for anything else: a missing zone,
    a leap second (`:60` names no instant of UTC as computers count it), a year outside 0001–9999 once in UTC.
    Digits of the fraction beyond nanoseconds are dropped."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("not an RFC 3339 timestamp with a zone, such as 2026-03-02T20:40:00Z")
    year, month, day, hour, minute, second = (int(group) for group in match.groups()[:6])
    fraction = (match[7] or "").ljust(9, "0")
    instant = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    if match[9]:
        offset = timedelta(hours=int(match[10]), minutes=int(match[11]))
        if int(match[10]) > 23 or int(match[11]) > 59:
            raise ValueError("the zone offset is out of range")
        try:
            instant = instant - offset if match[9] == "+" else instant + offset
        except OverflowError:
            raise ValueError("the instant lies outside the years 0001 to 9999 in UTC") from None
    return f"{instant.replace(tzinfo=None).isoformat(timespec='seconds')}.{fraction}Z"


def stored(instant: datetime) -> str:
    """The stored form of an aware datetime."""
    utc = instant.astimezone(UTC)
    return f"{utc.replace(tzinfo=None).isoformat(timespec='microseconds')}000Z"


def wire(stored_text: str) -> str:
    """The wire form of a stored instant: the shortest fraction of 0, 3, 6 or 9 digits that is exact."""
    for end in (29, 26, 23):
        if stored_text[end - 3 : end] != "000":
            return f"{stored_text[:end]}Z"
    return f"{stored_text[:19]}Z"


def from_stored(stored_text: str) -> datetime:
    """An aware datetime, cut to microseconds."""
    return datetime.fromisoformat(f"{stored_text[:26]}+00:00")


def milliseconds(instant: datetime) -> int:
    """Whole milliseconds since the epoch. In integers: the way through a float loses one now and then."""
    return (instant - _EPOCH) // _MILLISECOND


def next_hlc(previous: int, now_ms: int) -> int:
    """A hybrid logical clock reading above `previous`: milliseconds since the epoch in the high 48 bits and a
    counter in the low 16. It follows the wall clock, and never goes back when the wall clock does."""
    return max(now_ms << _HLC_COUNTER_BITS, previous + 1)


def hlc_milliseconds(hlc: int) -> int:
    return hlc >> _HLC_COUNTER_BITS


def hlc_instant(hlc: int) -> datetime:
    return _EPOCH + hlc_milliseconds(hlc) * _MILLISECOND

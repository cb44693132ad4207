"""Instants as bundles write them: ISO 8601, in milliseconds since 1970 (OKF contract §1.3)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

DAY_MS = 86_400_000
_ISO = re.compile(
    r"(\d{4})-(\d{2})(?:-(\d{2})(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?(Z|z|[+-]\d{2}:?\d{2})?)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DATE_FIELDS = ("timestamp", "valid_from", "invalid_at", "deprecated_on", "agreed_on", "date")


def milliseconds(text: str) -> int | None:
    """A date is midnight in UTC, a time without a zone is UTC's. `None` for what is no instant."""
    match = _ISO.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        instant = datetime(
            int(year), int(month), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=_zone(zone)
        )
        return (instant - _EPOCH) // timedelta(milliseconds=1) + int(f"{fraction or 0:0<3}"[:3])
    except (ValueError, OverflowError):
        return None


def date(instant_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=instant_ms)).strftime("%Y-%m-%d")


def iso(instant_ms: int) -> str:
    """With milliseconds, as the envelopes write it."""
    return (_EPOCH + timedelta(milliseconds=instant_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _zone(written: str | None) -> timezone:
    if written is None or written in "Zz":
        return UTC
    sign = -1 if written[0] == "-" else 1
    digits = written[1:].replace(":", "")
    return timezone(sign * timedelta(hours=int(digits[:2]), minutes=int(digits[2:])))

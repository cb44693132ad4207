"""Times on the wire: RFC 3339 with any offset in, UTC out (machine protocol §5.3)."""

from __future__ import annotations

from typing import Any

import pytest

from .door import Door, Json

CLAIM: Json = {"claim_type": "fact", "statement": "s"}
TIMES: list[tuple[str, str | None]] = [
    ("2026-01-01", None),
    ("2026-01-01T00:00", None),
    ("2026-01-01T00:00Z", None),
    ("2026-01-01T00:00+05:30", None),
    ("2026-01-01T00:00:00", None),
    ("2026-01-01 00:00:00", None),
    ("2026-01-01T00:00:00+0530", None),
    ("2026-01-01T00:00:00+24:00", None),
    ("2026-02-30T00:00:00Z", None),
    ("2026-01-01T24:00:00Z", None),
    ("2026-01-01T00:60:00Z", None),
    ("2026-13-01T00:00:00Z", None),
    ("+2026-01-01T00:00:00Z", None),
    ("20260101T000000Z", None),
    ("2026-W01-1T00:00:00Z", None),
    ("２０２６-01-01T00:00:00Z", None),
    ("0001-01-01T00:00:00+00:01", None),
    ("9999-12-31T23:59:59-00:01", None),
    ("10000-01-01T00:00:00Z", None),
    ("1767225600", None),
    ("now", None),
    ("", None),
    ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
    ("2026-01-01t00:00:00z", "2026-01-01T00:00:00Z"),
    ("2026-01-01T00:00:00-00:00", "2026-01-01T00:00:00Z"),
    ("2026-01-01T05:30:00+05:30", "2026-01-01T00:00:00Z"),
    ("2025-06-18T23:30:00-07:00", "2025-06-19T06:30:00Z"),
    ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00Z"),
    ("2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.500Z"),
    ("2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00.000001Z"),
    ("2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123456789Z"),
    ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
    ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"),
]


@pytest.mark.fault_class(37)
@pytest.mark.parametrize(("sent", "stored"), TIMES)
def test_a_time_becomes_utc_or_is_refused(door: Door, sent: str, stored: str | None) -> None:
    for member in ("valid_from", "valid_until"):
        if stored is None:
            door.refused("INVALID_REQUEST", "claim.assert", CLAIM | {member: sent})
        else:
            assert door.ok("claim.assert", CLAIM | {member: sent})[member] == stored


@pytest.mark.fault_class(37)
def test_a_leap_second_becomes_an_instant_or_is_refused(door: Door) -> None:
    answer = door.call("claim.assert", CLAIM | {"valid_from": "2016-12-31T23:59:60Z"})
    if answer["ok"]:
        assert answer["result"]["valid_from"] in ("2016-12-31T23:59:59Z", "2017-01-01T00:00:00Z")
    else:
        assert answer["error"]["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("value", [1767225600, True, [], {"$gt": ""}, 1.5])
def test_a_time_is_a_string(door: Door, value: Any) -> None:
    door.refused("INVALID_REQUEST", "claim.assert", CLAIM | {"valid_from": value})

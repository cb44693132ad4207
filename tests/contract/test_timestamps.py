"""Times on the wire: RFC 3339 with any offset in, UTC out (machine protocol §5.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .door import Door, Json, ManualClock
from .workbench import Workbench

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


FIELDS: dict[str, tuple[str, Callable[[Json], str]]] = {
    "claim.assert": ("valid_from", lambda claim: claim["valid_from"]),
    "source.ingest": ("observed_at", lambda delivered: delivered["item"]["observed_at"]),
    "source.checkpoint": ("observed_at", lambda source: source["last_observed_at"]),
    "source.withdraw": ("observed_at", lambda withdrawn: withdrawn["item"]["withdrawn_at"]),
}
"""Where each operation takes a time, and where its answer shows it."""
NOW = ManualClock().now
"""What the clock of a test says until the test moves it: a time of milliseconds."""


def with_time(inputs: dict[str, Json], op: str, value: Any) -> Json:
    """A valid input of the operation with that time, and no other."""
    return {name: kept for name, kept in inputs[op].items() if name != "valid_until"} | {FIELDS[op][0]: value}


@pytest.mark.fault_class(37)
@pytest.mark.parametrize("op", FIELDS)
@pytest.mark.parametrize(("sent", "stored"), TIMES)
def test_a_time_becomes_utc_or_is_refused(
    door: Door, specimen_inputs: dict[str, Json], op: str, sent: str, stored: str | None
) -> None:
    request = with_time(specimen_inputs, op, sent)
    if stored is None:
        with door.nothing_written():
            door.refused("INVALID_REQUEST", op, request)
    else:
        assert FIELDS[op][1](door.ok(op, request)) == stored


@pytest.mark.fault_class(37)
@pytest.mark.parametrize(("sent", "stored"), TIMES)
def test_the_end_of_a_claim_is_a_time_like_its_start(door: Door, sent: str, stored: str | None) -> None:
    if stored is None:
        door.refused("INVALID_REQUEST", "claim.assert", CLAIM | {"valid_until": sent})
    else:
        assert door.ok("claim.assert", CLAIM | {"valid_until": sent})["valid_until"] == stored


@pytest.mark.fault_class(37)
@pytest.mark.parametrize("op", FIELDS)
def test_a_leap_second_becomes_an_instant_or_is_refused(door: Door, specimen_inputs: dict[str, Json], op: str) -> None:
    answer = door.call(op, with_time(specimen_inputs, op, "2016-12-31T23:59:60Z"))
    if answer["ok"]:
        assert FIELDS[op][1](answer["result"]) in ("2016-12-31T23:59:59Z", "2017-01-01T00:00:00Z")
    else:
        assert answer["error"]["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("op", FIELDS)
@pytest.mark.parametrize("value", [1767225600, True, [], {"$gt": ""}, 1.5])
def test_a_time_is_a_string(door: Door, specimen_inputs: dict[str, Json], op: str, value: Any) -> None:
    door.refused("INVALID_REQUEST", op, with_time(specimen_inputs, op, value))


@pytest.mark.parametrize("op", ["source.ingest", "source.checkpoint", "source.withdraw"])
def test_without_a_time_of_observation_it_is_the_time_of_the_commit(
    door: Door, specimen_inputs: dict[str, Json], op: str
) -> None:
    unseen = {name: value for name, value in specimen_inputs[op].items() if name != "observed_at"}
    answer = door.ok(op, unseen)
    assert FIELDS[op][1](answer) == answer.get("source", answer)["updated_at"]


@pytest.mark.fault_class(41)
@pytest.mark.parametrize(
    ("window", "is_current"),
    [
        ({"valid_from": "07.250Z"}, True),
        ({"valid_from": "07.249999999Z"}, True),
        ({"valid_from": "07.250000001Z"}, False),
        ({"valid_until": "07.250Z"}, False),
        ({"valid_until": "07.250000001Z"}, True),
        ({"valid_until": "07.249999999Z"}, False),
        ({"valid_from": "07.250Z", "valid_until": "07.250000001Z"}, True),
        ({"valid_from": "07.249999999Z", "valid_until": "07.250Z"}, False),
    ],
    ids=str,
)
def test_validity_is_exact_to_the_nanosecond(
    clock: ManualClock, bench: Workbench, window: Json, is_current: bool
) -> None:
    assert clock.now == NOW
    minute = f"{NOW:%Y-%m-%dT%H:%M}"
    bounds: Json = {name: f"{minute}:{second}" for name, second in window.items()}
    claim = bench.claim("Nanosecond words.", **bounds)
    assert bench.found("nanosecond") == ([claim["claim_id"]] if is_current else [])
    (hit,) = bench.search("nanosecond", include_historical=True)["hits"]
    assert hit["provenance"]["is_current"] is is_current


@pytest.mark.parametrize(
    ("window", "state"),
    [
        ({"valid_from": "0001-01-01T00:00:00Z"}, "current"),
        ({"valid_until": "0001-01-01T00:00:00Z"}, "expired"),
        ({"valid_from": "9999-12-31T23:59:59.999999999Z"}, "future"),
        ({"valid_until": "9999-12-31T23:59:59.999999999Z"}, "current"),
        ({"valid_from": "0001-01-01T00:00:00Z", "valid_until": "9999-12-31T23:59:59.999999999Z"}, "current"),
        ({"valid_from": "9999-12-31T23:59:59Z", "valid_until": "9999-12-31T23:59:59.000000001Z"}, "future"),
    ],
    ids=str,
)
def test_validity_reaches_from_the_first_year_to_the_last(bench: Workbench, window: Json, state: str) -> None:
    claim = bench.claim("Everlasting words.", **window)
    (hit,) = bench.search("everlasting", include_historical=True)["hits"]
    assert hit["provenance"]["temporal_state"] == state
    assert bench.found("everlasting") == ([claim["claim_id"]] if state == "current" else [])


@pytest.mark.fault_class(40)
def test_equal_statements_of_two_times_are_two_claims(door: Door, bench: Workbench) -> None:
    windows: list[Json] = [
        {"valid_from": "2026-01-01T00:00:00Z", "valid_until": "2026-04-01T00:00:00Z"},
        {"valid_from": "2026-07-01T00:00:00Z", "valid_until": "2026-10-01T00:00:00Z"},
    ]
    claims = [bench.claim("Alex is on Payments.", **window) for window in windows]
    assert claims[0]["claim_id"] != claims[1]["claim_id"]
    for claim, window in zip(claims, windows, strict=True):
        assert door.ok("claim.get", {"claim_id": claim["claim_id"]}).items() >= window.items()

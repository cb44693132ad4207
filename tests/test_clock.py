"""Instants and the hybrid logical clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree import clock

INSTANTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))


@given(INSTANTS)
def test_milliseconds_lose_nothing_but_the_fraction_below_them(instant: datetime) -> None:
    counted = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=clock.milliseconds(instant))

    assert counted == instant.replace(microsecond=instant.microsecond // 1000 * 1000)


@given(INSTANTS, INSTANTS)
def test_stored_text_orders_as_time_does(first: datetime, second: datetime) -> None:
    assert (clock.stored(first) < clock.stored(second)) == (first < second)
    assert clock.from_stored(clock.stored(first)) == first


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_the_hybrid_clock_always_goes_up_and_follows_the_wall_clock(previous_ms: int, now_ms: int) -> None:
    previous = clock.next_hlc(0, previous_ms)
    reading = clock.next_hlc(previous, now_ms)

    assert reading > previous
    assert clock.hlc_milliseconds(reading) == max(previous_ms, now_ms)
    assert clock.milliseconds(clock.hlc_instant(reading)) == max(previous_ms, now_ms)


def test_more_commits_in_one_millisecond_than_the_counter_holds_borrow_from_the_next() -> None:
    reading = clock.next_hlc(0, 1000)
    for _ in range(2**16):
        reading = clock.next_hlc(reading, 1000)

    assert clock.hlc_milliseconds(reading) == 1001


@pytest.mark.fault_class(37)
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01t00:00:00z", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00+05:30", "2025-12-31T18:30:00Z"),
        ("2026-01-01T00:00:00-00:00", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123456789Z"),
        ("2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.100Z"),
        ("2026-01-01T00:00:00.1234567891Z", "2026-01-01T00:00:00.123456789Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
    ],
)
def test_a_timestamp_with_a_zone_becomes_utc(sent: str, kept: str) -> None:
    assert clock.wire(clock.parse_timestamp(sent)) == kept


@pytest.mark.fault_class(37)
@pytest.mark.parametrize(
    "sent",
    [
        "2026-01-01",
        "2026-01-01T00:00",
        "2026-01-01T00:00Z",
        "2026-06-30T23:59:60Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+00:60",
        "2026-02-30T00:00:00Z",
        "2026-01-01T00:00:00Z\n",
        "٢٠٢٦-01-01T00:00:00Z",
    ],
)
def test_what_names_no_instant_of_utc_is_refused(sent: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        clock.parse_timestamp(sent)


def test_an_aware_instant_of_any_zone_is_stored_in_utc() -> None:
    instant = datetime(2026, 1, 1, 3, tzinfo=timezone(timedelta(hours=5)))

    assert clock.stored(instant) == "2025-12-31T22:00:00.000000000Z"

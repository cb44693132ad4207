from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree import limits
from memoree.retrieval.leads import seats, shortened


@pytest.mark.proves("retrieval-74", "machine-180")
@pytest.mark.parametrize(
    ("claims", "artifacts", "leads_max", "expected"),
    [
        (10, 10, 8, (6, 2)),
        (10, 10, 5, (3, 2)),
        (10, 10, 2, (0, 2)),
        (10, 10, 1, (0, 1)),
        (10, 1, 8, (7, 1)),
        (1, 10, 8, (1, 7)),
        (3, 0, 2, (2, 0)),
        (0, 0, 8, (0, 0)),
    ],
)
def test_artifacts_have_two_seats_of_their_own(
    claims: int, artifacts: int, leads_max: int, expected: tuple[int, int]
) -> None:
    assert seats(claims, artifacts, leads_max) == expected


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 8))
def test_no_seat_stays_empty_while_a_lead_of_either_kind_waits(claims: int, artifacts: int, leads_max: int) -> None:
    of_claims, of_artifacts = seats(claims, artifacts, leads_max)
    assert 0 <= of_claims <= claims
    assert 0 <= of_artifacts <= artifacts
    assert of_claims + of_artifacts == min(leads_max, claims + artifacts)


@pytest.mark.proves("retrieval-77")
@pytest.mark.parametrize(
    ("title", "expected"),
    [
        (
            "Billing retry handbook with a very long descriptive title indeed",
            "Billing retry handbook with a very long descr…",
        ),
        ("x" * 48, "x" * 48),
        ("x" * 49, "x" * 45 + "…"),
        ("é" * 25, "é" * 22 + "…"),
        ("👩" * 13, "👩" * 11 + "…"),
        ("", ""),
    ],
)
def test_a_long_title_is_cut_at_a_character(title: str, expected: str) -> None:
    assert shortened(title) == expected


@given(st.text())
def test_a_title_is_whole_or_fills_its_48_bytes_but_for_a_part_of_a_character(title: str) -> None:
    short = shortened(title)
    size = len(short.encode())
    assert size <= limits.PROBE_TITLE_BYTES_MAX
    if short != title:
        assert title.startswith(short.removesuffix("…"))
        assert size > limits.PROBE_TITLE_BYTES_MAX - 4

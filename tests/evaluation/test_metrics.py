"""Adding up, on numbers made by hand."""

from __future__ import annotations

import pytest

from memoree.evaluation.bounds import Bound, Held
from memoree.evaluation.judging import Counted
from memoree.evaluation.metrics import BOUNDS, percentile, precision_of, recall_of


def test_shares_are_of_everything_together() -> None:
    counts = [Counted(demanded=1, found=1, returned=5, right=1), Counted(demanded=3, found=1, returned=0, right=0)]
    assert recall_of(counts) == 0.5
    assert precision_of(counts) == 0.2


def test_there_is_no_share_of_nothing() -> None:
    counts = [Counted(demanded=0, found=0, returned=0, right=0)]
    assert recall_of(counts) is None
    assert precision_of(counts) is None


@pytest.mark.parametrize(
    ("count", "share", "value"),
    [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (20, 0.95, 19), (21, 0.95, 20), (100, 0.95, 95)],
)
def test_a_percentile_is_the_nearest_rank(count: int, share: float, value: int) -> None:
    assert percentile(list(range(count, 0, -1)), share) == value


@pytest.mark.parametrize(
    ("value", "at_least", "verdict"),
    [
        (1.0, True, "aim reached"),
        (0.9, True, "ok"),
        (0.89, True, "MISSED"),
        (0.9, False, "aim reached"),
        (1.0, False, "ok"),
        (1.1, False, "MISSED"),
    ],
)
def test_a_number_is_held_to_must_and_aim(value: float, at_least: bool, verdict: str) -> None:
    must, aim = (0.9, 1.0) if at_least else (1.0, 0.9)
    assert Held(Bound("some share", must, aim, at_least), value).verdict == verdict


def test_no_aim_is_below_its_must() -> None:
    assert all(bound.reaches(bound.aim, bound.must) for _, bound, _ in BOUNDS)

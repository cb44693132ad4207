"""What is said of an attempt that nobody has decided."""

from __future__ import annotations

import pytest

from memoree import limits
from memoree.ids import AttemptId, new_id
from memoree.service import undecided_state

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("age_seconds", "state"),
    [
        (0, "pending"),
        (limits.COMMAND_AGE_SECONDS_MAX - 1, "pending"),
        (limits.COMMAND_AGE_SECONDS_MAX + 1, "unknown"),
        (1 - limits.CLOCK_SKEW_SECONDS_MAX, "pending"),
        (-1 - limits.CLOCK_SKEW_SECONDS_MAX, "unknown"),
    ],
)
def test_an_undecided_attempt_is_pending_only_while_a_writer_may_still_apply_it(age_seconds: int, state: str) -> None:
    attempt_id = AttemptId(new_id("att", NOW_MS - age_seconds * 1000))
    assert undecided_state(attempt_id, NOW_MS) == state


def test_an_attempt_from_the_end_of_time_is_unknown() -> None:
    assert undecided_state(AttemptId("att_7ZZZZZZZZZZZZZZZZZZZZZZZZZ"), NOW_MS) == "unknown"

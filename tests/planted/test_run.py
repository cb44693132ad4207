"""The instrument itself: what counts as noticed, what as overlooked, and what as merely fallen over."""

from __future__ import annotations

import pytest

from .run import Bed, survived
from .table import SHARED, Fault

KEY = "machine-1"
FILE = "tests/contract/test_envelope.py"
TEST = f"{FILE}::test_a_request_without_a_version_is_version_one"
BED = Bed(SHARED, {KEY: [FILE]})


def fault(old: str, new: str) -> Fault:
    return Fault("sample", (KEY,), "operations/discovery.py", old, new)


def test_a_refusal_where_an_answer_is_due_is_noticed() -> None:
    never_ready = fault("    return Health(", "    view.require_commit_seq(2**60)\n    return Health(")
    assert survived(never_ready, BED.run([KEY], never_ready)) == []


def test_a_fault_that_the_tests_do_not_look_at_survives() -> None:
    elsewhere = fault("result=Health, needs_context=False", "result=Health, needs_context=True")
    outcome = BED.run([KEY], elsewhere)
    assert survived(elsewhere, outcome) == [KEY]
    assert outcome.crashed == {}


def test_a_program_that_crashes_fails_every_test_and_proves_nothing() -> None:
    crash = fault("running=view.facts.running,", "running=1 / 0,")
    outcome = BED.run([KEY], crash)
    assert survived(crash, outcome) == [KEY]
    assert list(outcome.crashed) == [TEST]


def test_nothing_fails_where_nothing_is_planted() -> None:
    outcome = BED.run([KEY])
    assert (outcome.passed, outcome.caught, outcome.crashed) == ({KEY: [TEST]}, {}, {})


def test_a_fault_that_cannot_even_be_imported_is_an_error_of_the_table() -> None:
    broken = Fault("sample", (KEY,), "errors.py", "MESSAGE_VALUE_CHARS_MAX = 120", "MESSAGE_VALUE_CHARS_MAX = = 120")
    with pytest.raises(RuntimeError, match="sample: pytest could not run"):
        BED.run([KEY], broken)

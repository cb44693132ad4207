"""Identifiers: their form, and the time in them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree import ids
from memoree.ids import AttemptId


@given(st.integers(0, 2**48 - 1))
def test_the_time_in_an_attempt_id_is_exact_to_the_millisecond(at_ms: int) -> None:
    assert ids.attempt_time_ms(AttemptId(ids.new_id("att", at_ms))) == at_ms


def test_a_new_attempt_id_carries_the_present() -> None:
    before = time.time() * 1000
    attempt_id = ids.new_attempt_id()

    assert ids.is_attempt_id(attempt_id)
    assert before - 1 <= ids.attempt_time_ms(attempt_id) <= time.time() * 1000 + 1


def test_ids_made_in_one_millisecond_differ() -> None:
    assert len({ids.new_id("art", 1000) for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "att_",
        "att_01ARZ3NDEKTSV4RRFFQ69G5FA",
        "att_01arz3ndektsv4rrffq69g5fav",
        "att_81ARZ3NDEKTSV4RRFFQ69G5FAV",
        "art_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "att_01ARZ3NDEKTSV4RRFFQ69G5FAV\n",
        "att_01ARZ3NDEKTSV4RRFFQ69G5FAI",
    ],
)
def test_what_is_no_attempt_id_is_told_apart(text: str) -> None:
    assert not ids.is_attempt_id(text)

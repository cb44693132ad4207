"""Places that are shared between tenants."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from memoree.errors import Code, MemoreeError
from memoree.http.places import Places


def taken(places: Places, stack: ExitStack, total: int, tenants: str) -> str:
    """Which of these tenants, one after the other, get a place of so many."""
    got = ""
    for tenant in tenants:
        try:
            stack.enter_context(places.held(tenant, total))
        except MemoreeError as refused:
            assert (refused.code, refused.retryable) == (Code.TRANSPORT_ERROR, True)
            assert refused.retry_after_seconds
        else:
            got += tenant
    return got


@pytest.mark.parametrize(
    ("total", "asking", "served"),
    [
        (8, "aaaaaaaab", "aaaab"),
        (8, "aaaabbbbcd", "aaaabbbc"),
        (3, "aab", "ab"),
        (2, "aabc", "ab"),
        (1, "ab", "a"),
        (0, "a", ""),
    ],
)
def test_nobody_gets_more_than_half_nor_the_last_place_beside_another(total: int, asking: str, served: str) -> None:
    with ExitStack() as stack:
        assert taken(Places("trials"), stack, total, asking) == served


def test_who_leaves_makes_room() -> None:
    places = Places("trials")
    for _ in range(3):
        with ExitStack() as stack:
            assert taken(places, stack, 4, "aaa") == "aa"

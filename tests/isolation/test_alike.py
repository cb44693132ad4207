"""What another tenant has is answered as what nobody has: in words, in headers, and in the work that is done for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import httpx
import pytest

from isolation.caller import Caller, told_by
from isolation.conftest import Town
from isolation.things import SILENT, SURFACES, Things, made_by, of_nobody

ALWAYS_OTHER = {
    "date",
    "content-length",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-request-id",
    "memoree-commit-seq",
}
CHANGING = re.compile(
    r"(?:[a-z]{2,5}_)?[0-7][0-9A-HJKMNP-TV-Z]{25}"
    r"|\d{4}-\d\d-\d\dT[\d:.]+Z"
    r'|(?<="wall_ms":)\d+|(?<="counter":)\d+|(?<="score":)[\d.e-]+|(?<="recency_bonus":)[\d.e-]+|(?<="commit_seq":)\d+|[0-9a-f]{64}|[0-9a-f]{16}-[0-9a-f]{16}'
)
"""What is new each time, such as the id of a request or of an event."""


@dataclass(frozen=True)
class Seen:
    """An answer and the work behind it, without the names that were asked for."""

    status: int
    headers: Mapping[str, str]
    told: list[str]
    touches: frozenset[tuple[str, str, str]]
    """How often head is looked at for an outcome is a matter of luck."""
    statements: Counter[str]


@pytest.fixture(scope="module")
def owner(shared_town: Town) -> Caller:
    return shared_town.callers.by_tenant["a"]


@pytest.fixture(scope="module")
def other(shared_town: Town) -> Caller:
    """One with things of its own, so that there is something to look through."""
    caller = shared_town.callers.by_tenant["A"]
    made_by(caller)
    return caller


@pytest.fixture(scope="module")
def things(owner: Caller) -> Things:
    return made_by(owner)


def seen(town: Town, caller: Caller, things: Things, surface: str) -> Seen:
    town.site.watch.take()
    answer = SURFACES[surface](caller, things)
    touches, statements = town.site.watch.take()
    return Seen(
        answer.status_code,
        {name: value for name, value in answer.headers.items() if name not in ALWAYS_OTHER},
        [alike(things, each) for each in told_by(answer)],
        frozenset((each.who, each.method, alike(things, each.key)) for each in touches),
        Counter(alike(things, each) for each in statements),
    )


def alike(things: Things, text: str) -> str:
    return CHANGING.sub("*", things.named_in(text))


@pytest.mark.proves("isolation-3")
@pytest.mark.fault_class(24)
@pytest.mark.fault_class(25)
@pytest.mark.parametrize("surface", SURFACES)
def test_what_another_tenant_has_is_asked_for_like_what_nobody_has(
    shared_town: Town, owner: Caller, other: Caller, things: Things, surface: str
) -> None:
    warmed, nobody = SURFACES[surface](owner, things), of_nobody(things)
    for _ in range(2):  # at first there is nothing to be known of either
        foreign, absent = seen(shared_town, other, things, surface), seen(shared_town, other, nobody, surface)
        assert foreign.told == absent.told
    assert (foreign.status, foreign.headers) == (absent.status, absent.headers)
    assert foreign.touches == absent.touches
    assert foreign.statements - absent.statements == absent.statements - foreign.statements == Counter()
    if surface not in SILENT:
        assert _gist(warmed, things) != _gist(SURFACES[surface](owner, nobody), nobody), "it is there for its owner"


def _gist(answer: httpx.Response, things: Things) -> tuple[int, list[str]]:
    return answer.status_code, [alike(things, each) for each in told_by(answer)]

"""Names hold a service to its word: one name, one id, and instants and ordinals in order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from .entities import Ordinal
from .model import MAYBE_TEXT, TEXT, Including, Ranked, Unordered
from .names import Mismatch, Names

ONE = "art_01ARZ3NDEKTSV4RRFFQ69G5FAV"
OTHER = "art_01BX5ZZKBKACTAV9WEVGEMMVRZ"


def differ(names: Names, expected: Any, actual: Any) -> None:
    with pytest.raises(Mismatch):
        names.match(expected, actual)


def test_a_name_is_learnt_once_and_then_stands_for_one_id() -> None:
    names = Names()
    names.match(["art~1", "art~1"], [ONE, ONE])
    assert names.translated({"at": ["memoree://artifact/art~1@arev~9#0-1"]}) == {
        "at": [f"memoree://artifact/{ONE}@arev~9#0-1"]
    }
    differ(names, "art~1", OTHER)
    differ(names, "art~2", ONE)
    names.match({"entity_id": "art~1:page"}, {"entity_id": f"{ONE}:page"})


@pytest.mark.parametrize("wrong", ["art_1", ONE.lower(), f"clm{ONE[3:]}", f"{ONE}0", ONE.replace("A", "U"), None, 7])
def test_a_new_id_has_the_form_of_its_kind(wrong: Any) -> None:
    differ(Names(), "art~1", wrong)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": None}, {}),
        ({"a": 1}, {"a": True}),
        ({"a": False}, {"a": 0}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": [1]}, {"a": [1, 1]}),
        ({"a": TEXT}, {"a": " "}),
        ({"a": TEXT}, {}),
        ({"a": MAYBE_TEXT}, {"a": ""}),
        ({"a": {}}, {"a": None}),
        (Including(a=1), {"b": 1}),
    ],
    ids=str,
)
def test_an_answer_that_differs_in_one_member_is_another_answer(expected: Any, actual: Any) -> None:
    differ(Names(), expected, actual)


def test_free_text_may_be_anything_and_some_of_it_may_be_missing() -> None:
    Names().match({"message": TEXT, "reason": MAYBE_TEXT}, {"message": "because"})
    Names().match({"message": TEXT, "reason": MAYBE_TEXT}, {"message": "because", "reason": "of that"})
    Names().match(Including(a=1), {"a": 1, "b": 2})


def test_instants_follow_the_order_of_commits() -> None:
    names = Names()
    names.match(["at~3", "at~5"], ["2026-03-02T20:41:07.250Z", "2026-03-02T20:41:07.250Z"])
    differ(names, "at~6", "2026-03-02T20:41:07.249Z")
    differ(names, "at~2", "2026-03-02T20:41:07.251Z")
    names.match("at~4", "2026-03-02T20:41:07.250Z")
    for wrong in ("2026-03-02T20:41:08", "2026-03-02T20:41:08+00:00", "2026-03-02T20:41:08.25Z", "2026-03-02"):
        differ(names, "at~7", wrong)


def test_instants_are_those_of_the_clock_when_it_is_known() -> None:
    now = datetime(2026, 3, 2, 20, 41, 7, tzinfo=UTC)
    names = Names()
    names.see_clock(now)
    differ(names, "at~1", "2026-03-02T20:41:06Z")
    differ(names, "at~1", "2026-03-02T20:41:08Z")
    names.match("at~1", "2026-03-02T20:41:07Z")
    names.see_clock(now - timedelta(seconds=5))
    names.match("at~2", "2026-03-02T20:41:07Z")
    differ(names, "at~3", "2026-03-02T20:41:08Z")


def test_ordinals_keep_their_order_whatever_the_numbers() -> None:
    names = Names()
    names.match([Ordinal(2), Ordinal(5)], [10, 40])
    assert names.translated({"before": Ordinal(5)}) == {"before": 40}
    for place, number in ((3, 10), (3, 40), (3, 41), (1, 11), (6, 39), (4, 0), (2, 11)):
        differ(names, Ordinal(place), number)
    names.match(Ordinal(3), 11)


def test_sets_are_compared_by_their_members_and_rankings_by_instant_then_id() -> None:
    names = Names()
    names.match(["art~1", "art~2", "at~1", "at~2"], [OTHER, ONE, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])
    hits = Unordered([{"entity_type": "artifact", "entity_id": f"art~{n}", "revision_id": "r"} for n in (1, 2)])
    names.match(hits, list(reversed(names.translated(list(hits)))))
    differ(names, hits, names.translated(list(hits))[:1])
    items = [{"id": "art~1", "at": "at~1"}, {"id": "art~2", "at": "at~1"}]
    names.match(Ranked(items, "at", "id", 2), names.translated([items[1], items[0]]))
    names.match(Ranked(items, "at", "id", 1), names.translated([items[1]]))
    differ(names, Ranked(items, "at", "id", 2), names.translated(items))
    later = [items[0] | {"at": "at~2"}, items[1]]
    names.match(Ranked(later, "at", "id", 2), names.translated(later))

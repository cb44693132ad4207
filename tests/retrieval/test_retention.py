"""A claim in dispute just past the page is seen all the same (retrieval §2.8, assertion 37)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.retrieval.candidates import Candidate
from memoree.retrieval.engine import cut
from memoree.retrieval.query import analyze

from .store import Json, Store

QUERY = analyze("celadon glaze")
PLAIN: Json = {"recency": {"enabled": False}}
RETENTION = "conflict_retention_v1"


def candidates(kinds: str) -> list[Candidate]:
    """One per letter: `E` an exact match, `D` one of a disputed claim, `B` both, `o` neither. Each has its place as
    its row."""
    found = []
    for number, kind in enumerate(kinds):
        candidate = Candidate("claim", number, number, 1.0, QUERY.all_mask if kind in "EB" else 1, 0)
        candidate.is_disputed = kind in "DB"
        found.append(candidate)
    return found


def page_of(kinds: str, limit: int) -> str:
    """The rows of the page; those that were retained in brackets."""
    page, _ = cut(QUERY, candidates(kinds), limit)
    return " ".join(f"[{member.revision_row}]" if member.is_retained else f"{member.revision_row}" for member in page)


@pytest.mark.proves("retrieval-37")
@pytest.mark.parametrize(
    ("kinds", "limit", "page"),
    [
        ("EooDo", 3, "0 1 [3]"),
        ("EooooD", 3, "0 1 [5]"),
        ("ooDoD", 3, "0 [4] 2"),
        ("EEooD", 2, "0 1"),
        ("EoEoD", 3, "0 [4] 2"),
        ("ooooDD", 3, "0 [5] [4]"),
        ("oooDDDDD", 3, "[5] [4] [3]"),
        ("EDoDD", 3, "0 1 [3]"),
        ("DDDD", 2, "0 1"),
        ("EoB", 2, "0 [2]"),
        ("BoD", 2, "0 [2]"),
        ("ooD", 3, "0 1 2"),
        ("oo", 3, "0 1"),
        ("oD", 1, "[1]"),
        ("ED", 1, "0"),
        ("oE", 1, "0"),
        ("", 1, ""),
    ],
)
def test_disputed_claims_take_the_last_places_that_are_neither_disputed_nor_exact(
    kinds: str, limit: int, page: str
) -> None:
    assert page_of(kinds, limit) == page


@pytest.mark.proves("retrieval-37")
@given(st.text("EDBo", max_size=30), st.integers(1, 12))
def test_a_page_keeps_its_size_its_exact_and_its_disputed_matches(kinds: str, limit: int) -> None:
    pool = candidates(kinds)
    page, more = cut(QUERY, pool, limit)
    rows = [member.revision_row for member in page]
    assert len(set(rows)) == len(rows) == min(limit, len(kinds))
    assert more is (len(kinds) > limit)
    assert all(row in rows for row, kind in enumerate(kinds[:limit]) if kind != "o")
    retained = [member.revision_row for member in page if member.is_retained]
    beyond = [row for row, kind in enumerate(kinds) if row >= limit and kind in "DB"]
    assert sorted(retained) == beyond[: kinds[:limit].count("o")]
    others = [row for row, kind in enumerate(kinds[:limit]) if kind == "o"]
    assert [row for row in others if row in rows] == others[: len(others) - len(retained)]


def contradict(store: Store, left: Json, right: Json) -> None:
    edge = {"source_type": "claim", "source_id": left["claim_id"], "relation": "contradicts", "target_type": "claim"}
    store.write("relation.put", edge | {"target_id": right["claim_id"]})


SIDES = ("The celadon glaze held, as far as anybody could tell.", "The celadon glaze ran, so it was said later.")


@pytest.fixture
def disputed(store: Store) -> Store:
    """Twenty claims that answer in part, and behind them both sides of a contradiction, which do no better."""
    contradict(store, *store.claims(f"{side} {'filler ' * 40}" for side in SIDES))
    store.claims(f"celadon glaze {number}" for number in range(20))
    return store


@pytest.mark.proves("retrieval-37")
def test_recall_shows_both_sides_of_a_contradiction_that_matches_worst(disputed: Store) -> None:
    query = "celadon glaze pressure"
    assert not any(text.startswith("The celadon") for text in disputed.qualified(query, limit=100, **PLAIN)[:20])
    answer = disputed.read("memory.recall", {"query": query, "max_claims": 10})
    shown = {claim["statement"].strip(): claim for claim in answer["claims"] if claim["status"] == "disputed"}
    assert len(answer["claims"]) == 10
    assert sorted(text.split(",")[0] for text in shown) == ["The celadon glaze held", "The celadon glaze ran"]
    assert all(RETENTION in claim["matched_by"] for claim in shown.values())
    (case,) = answer["conflicts"]
    assert {case["left_id"], case["right_id"]} == {claim["claim_id"] for claim in shown.values()}


@pytest.mark.proves("retrieval-37")
def test_recall_gives_no_place_of_an_exact_match_to_a_disputed_claim(disputed: Store) -> None:
    """Every claim has both words, and those of the contradiction rank last."""
    answer = disputed.read("memory.recall", {"query": "celadon glaze", "max_claims": 10})
    assert {claim["status"] for claim in answer["claims"]} == {"current"}
    assert answer["conflicts"] == []
    assert answer["claims_truncated"] is True


def test_sides_that_say_almost_the_same_are_both_shown(store: Store) -> None:
    """Alike as they are, one of them would repeat the other."""
    same = "The celadon glaze of kiln four is fired on a Monday morning"
    left, right = store.claims([f"{same} early.", f"{same}."])
    assert len(store.read("memory.recall", {"query": "celadon glaze"})["claims"]) == 1
    contradict(store, left, right)
    answer = store.read("memory.recall", {"query": "celadon glaze"})
    assert {claim["claim_id"] for claim in answer["claims"]} == {left["claim_id"], right["claim_id"]}
    assert len(answer["conflicts"]) == 1


def test_a_retained_hit_says_why_it_is_there_and_others_do_not(disputed: Store) -> None:
    page = disputed.search("celadon glaze pressure", limit=4, **PLAIN)["hits"]
    assert [RETENTION in hit["matched_by"] for hit in page] == [False, False, True, True]
    assert ["conflict_retention" in hit["provenance"] for hit in page] == [False, False, True, True]
    assert {hit["status"] for hit in page[2:]} == {"conflicted"}


def test_a_claim_whose_opponent_was_retracted_takes_no_place(disputed: Store) -> None:
    (case,) = disputed.read("conflict.list", {})["conflicts"]
    disputed.write("claim.retract", {"claim_id": case["source"]["claim_id"], "reason": "a misreading"})
    page = disputed.search("celadon glaze pressure", limit=4, **PLAIN)["hits"]
    assert not any(RETENTION in hit["matched_by"] for hit in page)

"""Bounded recency: it reorders a frozen set, discloses what it did, and never more (machine protocol §4.30.5)."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from .door import Json, ManualClock
from .workbench import Workbench, entity_ids

OFF = {"recency": {"enabled": False}}
SEED_MEMBERS = {
    "policy_version", "recency_enabled", "recency_eligible", "lexical_score", "recency_bonus", "lexical_position",
    "final_position", "max_promotion", "effective_at", "effective_at_basis", "evaluated_at", "decay_class",
}  # fmt: skip
ARTIFACT_CLASSES = [
    ("deploy-log", "ephemeral"), ("Session notes", "ephemeral"), ("stack-trace", "ephemeral"),
    ("observation", "ephemeral"),
    ("decision-log", "ephemeral"), ("ADR", "decision"), ("Decision", "decision"), ("policy", "constraint"),
    ("constraint", "constraint"), ("api-spec", "constraint"), ("runbook", "procedure"), ("procedure", "procedure"),
    ("memo", "general"), ("note", "general"),
]  # fmt: skip
CLAIM_CLASSES = [
    ("observation", "observation"), ("decision", "decision"), ("constraint", "constraint"),
    ("procedure", "procedure"), ("preference", "preference"), ("fact", "general"),
]  # fmt: skip
HALF_LIFE_DAYS = {
    "ephemeral": 30, "decision": 730, "constraint": 3650, "procedure": 365, "observation": 30, "preference": 180,
    "general": 180,
}  # fmt: skip
RATIO = {
    "ephemeral": 0.10, "decision": 0.025, "constraint": 0.01, "procedure": 0.04, "observation": 0.10,
    "preference": 0.06, "general": 0.05,
}  # fmt: skip


@pytest.fixture
def aged(bench: Workbench, clock: ManualClock) -> Workbench:
    """Twelve claims and four artifacts on one word: the better a claim matches, the older it is."""
    clock.now -= timedelta(days=700)
    for number in range(12):
        bench.claim("cone " * (13 - number) + f"unlike{number} " * (1 + number), claim_type="observation")
        clock.advance(days=50)
        if number % 3 == 0:
            bench.put("cone " * (12 - number) + f"other{number}", title="untitled", kind="session-log")
    clock.advance(days=1)
    return bench


@pytest.mark.proves("machine-157")
def test_without_recency_nothing_moves(aged: Workbench) -> None:
    for hit in aged.search("cone", limit=100, **OFF)["hits"]:
        ranking = hit["ranking"]
        assert ranking["recency_enabled"] is False
        assert ranking["recency_bonus"] == 0
        assert ranking["final_position"] == ranking["lexical_position"]
        assert "bounded_recency_v1" not in hit["matched_by"]


@pytest.mark.proves("machine-157", "machine-158")
@pytest.mark.parametrize("recency", [{}, OFF, {"recency": {"enabled": True}}], ids=str)
def test_every_hit_discloses_its_ranking(aged: Workbench, recency: Json) -> None:
    answer = aged.search("cone", limit=100, **recency)
    assert len(answer["hits"]) == 16
    assert [hit["ranking"]["final_position"] for hit in answer["hits"]] == list(range(1, 17))
    assert sorted(hit["ranking"]["lexical_position"] for hit in answer["hits"]) == list(range(1, 17))
    for hit in answer["hits"]:
        ranking = hit["ranking"]
        assert set(ranking) >= SEED_MEMBERS
        assert ranking["policy_version"] == "bounded_recency_v1"
        assert ranking["max_promotion"] == 2
        assert ranking["recency_enabled"] is (recency != OFF)
        assert ranking["recency_eligible"] is True
        assert ranking["evaluated_at"] == answer["hits"][0]["ranking"]["evaluated_at"]


@pytest.mark.proves("machine-158")
def test_recency_moves_something_and_nothing_rises_more_than_two_places(aged: Workbench) -> None:
    rankings = [hit["ranking"] for hit in aged.search("cone", limit=100)["hits"]]
    rises = [ranking["lexical_position"] - ranking["final_position"] for ranking in rankings]
    assert max(rises) in (1, 2), "recency moved nothing, or too far"


@pytest.mark.proves("machine-158")
def test_the_order_without_recency_is_the_relevance_order_with_it(aged: Workbench) -> None:
    on = sorted(aged.search("cone", limit=100)["hits"], key=lambda hit: hit["ranking"]["lexical_position"])
    off = aged.search("cone", limit=100, **OFF)
    assert [hit["entity_id"] for hit in on] == entity_ids(off)


@pytest.mark.proves("machine-159")
def test_recency_never_changes_who_is_in(aged: Workbench) -> None:
    for limit in range(1, 17):
        on, off = aged.search("cone", limit=limit), aged.search("cone", limit=limit, **OFF)
        assert len(on["hits"]) == limit
        assert set(entity_ids(on)) == set(entity_ids(off)), limit
        assert on["truncated"] == off["truncated"]


@pytest.mark.proves("machine-159")
@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_a_fresh_hit_just_below_the_cut_stays_out(bench: Workbench, clock: ManualClock, limit: int) -> None:
    for number in range(limit):
        bench.claim(f"cone cone cone number{number}", claim_type="observation")
    clock.advance(days=365)
    fresh = bench.claim("cone and some more", claim_type="observation")
    assert fresh["claim_id"] not in bench.found("cone", limit=limit)
    assert fresh["claim_id"] not in bench.found("cone", limit=limit, **OFF)
    assert fresh["claim_id"] in bench.found("cone", limit=limit + 1)


@pytest.mark.proves("machine-160")
def test_a_future_a_past_and_a_retracted_claim_get_no_bonus(bench: Workbench) -> None:
    bench.claim("cone one", valid_from="2030-01-01T00:00:00Z")
    bench.claim("cone two", valid_until="2020-01-01T00:00:00Z")
    bench.retract(bench.claim("cone three"))
    bench.forget(bench.put("four", title="cone four"))
    bench.revise_claim(bench.claim("cone five"), "Something else.")
    hits = bench.search("cone", include_historical=True)["hits"]
    assert len(hits) >= 5
    for hit in hits:
        assert hit["ranking"]["recency_eligible"] is False, hit["excerpt"]
        assert hit["ranking"]["recency_bonus"] == 0


@pytest.mark.proves("machine-161")
def test_a_disputed_claim_is_as_eligible_as_any_current_one(bench: Workbench) -> None:
    source, target, _ = bench.contradiction()
    hits = bench.search("cone")["hits"]
    assert {hit["entity_id"] for hit in hits} == {source["claim_id"], target["claim_id"]}
    for hit in hits:
        assert (hit["status"], hit["provenance"]["is_current"]) == ("conflicted", True)
        assert hit["ranking"]["recency_eligible"] is True
        assert hit["ranking"]["recency_bonus"] > 0


@pytest.mark.proves("machine-162")
def test_the_effective_instant_and_its_basis(bench: Workbench, clock: ManualClock) -> None:
    dated = bench.claim("cone dated", valid_from="2026-01-15T12:00:00+02:00")
    undated = bench.claim("cone undated")
    artifact = bench.put("cone artifact")
    clock.advance(days=1)
    revised_claim = bench.revise_claim(undated, "cone undated, revised")
    revised = bench.revise(artifact, "cone artifact revised")
    rankings = {hit["entity_id"]: hit["ranking"] for hit in bench.search("cone")["hits"]}
    expected = {
        dated["claim_id"]: ("2026-01-15T10:00:00Z", "valid_from"),
        undated["claim_id"]: (revised_claim["revision_created_at"], "revision_created_at"),
        artifact["artifact_id"]: (revised["revision_created_at"], "revision_created_at"),
    }
    got = {key: (ranking["effective_at"], ranking["effective_at_basis"]) for key, ranking in rankings.items()}
    assert got == expected


@pytest.mark.proves("machine-163")
def test_two_searches_at_one_state_and_instant_agree(aged: Workbench) -> None:
    first = aged.search("cone", limit=100)
    assert all(aged.search("cone", limit=100) == first for _ in range(3))


@pytest.mark.parametrize(("kind", "decay_class"), ARTIFACT_CLASSES)
def test_the_kind_of_an_artifact_sets_its_decay(bench: Workbench, kind: str, decay_class: str) -> None:
    bench.put("cone", kind=kind)
    (hit,) = bench.search("cone")["hits"]
    assert hit["ranking"]["decay_class"] == decay_class


@pytest.mark.parametrize(("claim_type", "decay_class"), CLAIM_CLASSES)
@pytest.mark.parametrize("age_days", [0, 1, 45, 1000])
def test_the_bonus_halves_with_every_half_life(
    bench: Workbench, clock: ManualClock, claim_type: str, decay_class: str, age_days: int
) -> None:
    bench.claim("cone", claim_type=claim_type)
    clock.advance(days=age_days)
    (hit,) = bench.search("cone")["hits"]
    (base,) = bench.search("cone", **OFF)["hits"]
    ranking = hit["ranking"]
    expected = base["score"] * RATIO[decay_class] * 2 ** (-age_days / HALF_LIFE_DAYS[decay_class])
    assert ranking["decay_class"] == decay_class
    assert math.isclose(ranking["recency_bonus"], expected, rel_tol=1e-6, abs_tol=1e-12)
    assert math.isclose(hit["score"], base["score"] + ranking["recency_bonus"], rel_tol=1e-6)


def test_a_hit_that_matches_more_words_is_never_passed_by_a_fresher_one(bench: Workbench, clock: ManualClock) -> None:
    better = bench.claim("cone glaze kiln", claim_type="observation")
    clock.advance(days=1000)
    fresh = bench.claim("cone glaze", claim_type="observation")
    assert bench.found("cone glaze kiln") == [better["claim_id"], fresh["claim_id"]]

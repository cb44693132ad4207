from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.retrieval.recency import PROMOTION_MAX, Standing, artifact_class, bonus, claim_class, promoted

from .store import Store

NOW = datetime(2026, 3, 5, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Build-LOG", "ephemeral"),
        ("catalog", "ephemeral"),
        ("decision-log", "ephemeral"),
        ("ADR", "decision"),
        ("inspection", "constraint"),
        ("runbook", "procedure"),
        ("note", "general"),
    ],
)
def test_the_kind_of_an_artifact_decides_its_class(kind: str, name: str) -> None:
    assert artifact_class(kind).name == name


def test_the_bonus_halves_with_every_half_life_and_is_full_at_age_zero() -> None:
    decay = claim_class("fact")
    assert bonus(1.0, decay, NOW, NOW) == pytest.approx(0.05)
    assert bonus(1.0, decay, NOW - timedelta(days=180), NOW) == pytest.approx(0.025)
    assert bonus(1.0, decay, NOW + timedelta(days=1), NOW) == pytest.approx(0.05)


@pytest.mark.parametrize(("days", "rises"), [(78, True), (79, False)])
def test_a_second_observation_passes_a_decayed_leader_while_younger_than_78_days(days: int, rises: bool) -> None:
    base = [1 / 61, 1 / 62]
    gained = bonus(base[1], claim_class("observation"), NOW - timedelta(days=days), NOW)
    order = promoted([(1, Standing((), base[0])), (2, Standing((), base[1] + gained))])
    assert order == ([2, 1] if rises else [1, 2])


@pytest.mark.proves("machine-158")
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1)), max_size=30))
def test_nobody_rises_more_than_two_places_or_past_another_kind_of_match(items: list[tuple[int, float]]) -> None:
    ranked = [(place, Standing((tier,), score)) for place, (tier, score) in enumerate(items)]
    order = promoted(ranked)
    assert sorted(order) == list(range(len(items)))
    for place, item in enumerate(order):
        assert place >= item - PROMOTION_MAX
        passed = [other for other in order[place:] if other < item]
        assert all(items[other][0] == items[item][0] and items[item][1] > items[other][1] for other in passed)


@pytest.mark.proves("machine-157", "machine-158", "machine-159")
def test_recency_reorders_the_page_and_never_changes_its_members(store: Store) -> None:
    for number in range(12):
        store.claim(f"heron {'heron ' * (number % 3)}number{number}", claim_type="observation")
        store.advance(days=9)
    for limit in range(1, 13):
        off = store.hits("heron", limit=limit, recency={"enabled": False})
        on = store.hits("heron", limit=limit)
        assert {hit["entity_id"] for hit in on} == {hit["entity_id"] for hit in off}
        for place, hit in enumerate(off, start=1):
            ranking = hit["ranking"]
            assert ranking["recency_enabled"] is False
            assert (ranking["recency_bonus"], ranking["lexical_position"], ranking["final_position"]) == (
                0,
                place,
                place,
            )
        for place, hit in enumerate(on, start=1):
            ranking = hit["ranking"]
            assert ranking["final_position"] == place >= ranking["lexical_position"] - ranking["max_promotion"]
            assert hit["score"] == pytest.approx(ranking["fusion_score"] + ranking["recency_bonus"])
    assert any(hit["ranking"]["final_position"] < hit["ranking"]["lexical_position"] for hit in on)


@pytest.mark.proves("machine-160", "machine-162")
def test_a_claim_ages_from_its_validity_and_an_artifact_from_its_revision(store: Store) -> None:
    store.claim("osprey valid", valid_from="2026-01-01T02:00:00+02:00")
    store.claim("osprey future", valid_from="2027-01-01T00:00:00Z")
    store.claim("osprey plain")
    store.artifact("osprey", "-", kind="decision")
    by_excerpt = {hit["excerpt"]: hit["ranking"] for hit in store.hits("osprey", include_historical=True)}
    assert by_excerpt["osprey valid"]["effective_at"] == "2026-01-01T00:00:00Z"
    assert by_excerpt["osprey valid"]["effective_at_basis"] == "valid_from"
    assert by_excerpt["osprey future"]["recency_eligible"] is False
    assert by_excerpt["osprey future"]["recency_bonus"] == 0
    for excerpt, decay in (("osprey plain", "general"), ("osprey", "decision")):
        assert by_excerpt[excerpt]["effective_at_basis"] == "revision_created_at"
        assert by_excerpt[excerpt]["decay_class"] == decay
        assert by_excerpt[excerpt]["effective_at"] == "2026-03-05T08:00:00Z"

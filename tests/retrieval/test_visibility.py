from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .store import ELSEWHERE, HERE, Json, Store


@pytest.mark.fault_class(36)
@pytest.mark.parametrize("kind", ["claim", "artifact"])
def test_a_match_among_a_thousand_newer_ones_of_another_project_is_found(store: Store, kind: str) -> None:
    if kind == "claim":
        store.claim("osprey nest with many more words than the others have to make it rank last")
        store.claims((f"osprey {number}" for number in range(1000)), ELSEWHERE)
    else:
        store.artifact("Old", "osprey nest with many more words than the others have to make it rank last")
        inputs = ({"kind": "note", "title": "osprey", "content": {"type": "text", "data": str(n)}} for n in range(1000))
        store.write_many("artifact.put", inputs, ELSEWHERE)
    (hit,) = store.hits("osprey", limit=1)
    assert "rank last" in hit["excerpt"]


@pytest.mark.fault_class(36)
def test_a_valid_match_among_a_thousand_expired_ones_is_found(store: Store) -> None:
    store.claim("osprey nest with many more words than the others have to make it rank last")
    expired = {"claim_type": "fact", "valid_until": "2026-01-01T00:00:00Z"}
    store.write_many("claim.assert", ({**expired, "statement": f"osprey {number}"} for number in range(1000)))
    assert len(store.hits("osprey", limit=1)) == 1
    assert len(store.hits("osprey", limit=100, include_historical=True)) == 100


def test_a_long_body_does_not_crowd_out_other_artifacts(store: Store) -> None:
    store.artifact("Handbook of the osprey", "osprey osprey words. " * 40_000)
    store.artifact("Other", "A single osprey among many other words that make this note the weaker match of the two.")
    assert [hit["title"] for hit in store.hits("osprey", limit=1)] == ["Handbook of the osprey"]
    assert store.search("osprey", limit=1)["truncated"] is True
    assert len(store.hits("osprey", limit=2)) == 2


@pytest.mark.parametrize(
    ("context", "horizon", "expected"),
    [
        (HERE, "ambient", {"here", "task a", "task b"}),
        ({**HERE, "task_id": "tsk_a"}, "ambient", {"here", "task a"}),
        ({**HERE, "component": "door"}, "ambient", {"here", "task a", "task b"}),
        (HERE, "workspace", {"here", "task a", "task b", "project"}),
        (HERE, "personal", {"here", "task a", "task b", "project", "workspace"}),
    ],
)
@pytest.mark.parametrize("kind", ["claim", "artifact"])
def test_a_horizon_shows_what_it_covers(
    store: Store, kind: str, context: Json, horizon: str, expected: set[str]
) -> None:
    owners = {
        "here": HERE,
        "task a": {**HERE, "task_id": "tsk_a"},
        "task b": {**HERE, "task_id": "tsk_b"},
        "project": ELSEWHERE,
        "workspace": {"workspace_id": "wsp_other", "project_id": "prj_kiln"},
    }
    for name, owner in owners.items():
        if kind == "claim":
            store.claim(f"osprey: {name}", owner)
        else:
            store.artifact(f"osprey: {name}", "-", owner)
    found = store.excerpts("osprey", context, horizon=horizon, reason="test")
    assert {excerpt.removeprefix("osprey: ") for excerpt in found} == expected


def test_pins_add_exactly_what_they_name(store: Store) -> None:
    first = store.artifact("Osprey one", "osprey", ELSEWHERE)
    revise = {"artifact_id": first["artifact_id"], "if_revision": first["revision_id"]}
    second = store.write(
        "artifact.revise", {**revise, "title": "Osprey two", "content": {"type": "text", "data": "-"}}, ELSEWHERE
    )
    other = store.artifact("Osprey other", "-", ELSEWHERE)

    def found(*pins: str, **input: Any) -> list[str]:
        return sorted(hit["title"] for hit in store.hits("osprey", {**HERE, "pins": list(pins)}, **input))

    assert found() == []
    assert found(first["artifact_id"]) == ["Osprey two"]
    assert found(f"memoree://artifact/{first['artifact_id']}@{first['revision_id']}") == ["Osprey one"]
    assert found(f"{first['artifact_id']}@{other['revision_id']}", "nonsense@@", "memoree://claim/x") == []
    assert found(f"{first['artifact_id']}@{second['revision_id']}", other["artifact_id"]) == [
        "Osprey other",
        "Osprey two",
    ]
    (old,) = store.hits("osprey", {**HERE, "pins": [f"{first['artifact_id']}@{first['revision_id']}"]})
    assert old["ranking"]["recency_eligible"] is False
    store.write("artifact.forget", {"artifact_id": first["artifact_id"], "reason": "done"}, ELSEWHERE)
    assert found(first["artifact_id"]) == []
    assert found(first["artifact_id"], include_historical=True) == ["Osprey two"]


@pytest.mark.proves("machine-148", "machine-149", "machine-150", "machine-152")
def test_validity_is_judged_at_one_instant_and_half_open(store: Store) -> None:
    now, earlier, later = "2026-03-05T08:00:00Z", "2026-03-05T07:59:59.999999999Z", "2026-03-05T08:00:00.000000001Z"
    bounds = {
        "starts now": {"valid_from": now},
        "starts later": {"valid_from": later},
        "ended now": {"valid_until": now},
        "ends later": {"valid_from": earlier, "valid_until": later},
    }
    for name, validity in bounds.items():
        store.claim(f"osprey {name}", **validity)
    assert sorted(store.excerpts("osprey")) == ["osprey ends later", "osprey starts now"]
    hits = store.hits("osprey", include_historical=True)
    assert {hit["excerpt"]: hit["provenance"]["temporal_state"] for hit in hits} == {
        "osprey starts now": "current",
        "osprey starts later": "future",
        "osprey ended now": "expired",
        "osprey ends later": "current",
    }
    assert {hit["provenance"]["evaluated_at"] for hit in hits} == {now}
    for hit in hits:
        provenance = hit["provenance"]
        assert {"valid_from", "valid_until"} <= provenance.keys()
        assert provenance["is_current_revision"] is True
        assert provenance["is_current"] is (provenance["temporal_state"] == "current")
        assert hit["ranking"]["recency_eligible"] is provenance["is_current"]


@pytest.mark.proves("machine-151", "machine-153")
def test_an_old_revision_is_found_only_in_history(store: Store) -> None:
    claim = store.claim("osprey first", confidence=0.5)
    store.write(
        "claim.revise",
        {"claim_id": claim["claim_id"], "if_revision": claim["revision_id"], "statement": "osprey second"},
    )
    assert store.excerpts("osprey") == ["osprey second"]
    old = next(hit for hit in store.hits("osprey", include_historical=True) if hit["excerpt"] == "osprey first")
    assert old["citation"] == f"memoree://claim/{claim['claim_id']}@{claim['revision_id']}"
    assert old["provenance"]["is_current_revision"] is False
    assert (old["title"], old["provenance"]["confidence"]) == ("fact claim", 0.5)


def forget(store: Store, title: str, body: str) -> Json:
    artifact = store.artifact(title, body)
    store.write("artifact.forget", {"artifact_id": artifact["artifact_id"], "reason": "done"})
    return artifact


def withdraw(store: Store, title: str, body: str) -> Json:
    source = store.write("source.register", {"name": title, "kind": "wiki"})["source_id"]
    item = {"source_id": source, "external_id": title}
    delivered = {"external_revision": "v1", "kind": "page", "title": title, "content": {"type": "text", "data": body}}
    artifact: Json = store.write("source.ingest", item | delivered)["artifact"]
    store.write("source.withdraw", item | {"reason": "done"})
    return artifact


@pytest.mark.proves("machine-86")
@pytest.mark.parametrize("hide", [forget, withdraw])
def test_history_finds_the_forgotten_and_the_withdrawn_by_their_titles_only(
    store: Store, hide: Callable[[Store, str, str], Json]
) -> None:
    artifact = hide(store, "Osprey plan", "the secret nest 38.101 lies north")
    for query in ("secret nest", "secrat nest", "38.101", '"secret nest"'):
        for pins in ([], [artifact["artifact_id"]]):
            assert store.hits(query, {**HERE, "pins": pins}, include_historical=True) == [], query
    for query in ("osprey", "ospray", "osprey secret nest 38.101"):
        assert store.hits(query) == []
        (hit,) = store.hits(query, include_historical=True)
        assert (hit["status"], hit["excerpt"]) == ("forgotten", "Osprey plan")
        assert hit["citation"] == f"memoree://artifact/{artifact['artifact_id']}@{artifact['revision_id']}"
        assert hit["provenance"]["retrieval_match"] == "title"
        assert "retrieval_span" not in hit["provenance"]
        assert {*hit["ranking"]["matched_terms"], *hit["ranking"]["trigram_matched_terms"]} <= {"osprey", "ospray"}


@pytest.mark.proves("machine-86")
def test_the_words_of_a_forgotten_body_count_nowhere(store: Store) -> None:
    """Not in the score, not in the order, and not across the chunks of a long body."""
    filler = "gull tern auk skua " * 800
    with_word, without = forget(store, "Osprey", filler + "secret"), forget(store, "Osprey", filler + "heron")
    hits = {hit["entity_id"]: hit for hit in store.hits("osprey secret nest", include_historical=True)}
    told, other = hits[with_word["artifact_id"]]["ranking"], hits[without["artifact_id"]]["ranking"]
    assert told["lexical_position"] > other["lexical_position"], "the newer one first"
    for name in ("lexical_score", "matched_unit_count", "lexical_coverage", "qualified", "exact_tier", "matched_terms"):
        assert told[name] == other[name], name


def test_the_forgotten_and_the_living_are_ranked_together(store: Store) -> None:
    forget(store, "Osprey plan of the northern coast and its islands", "x")
    store.artifact("Osprey", "x")
    store.artifact("Plan", "an osprey, among many other things that this body says at some length")
    titles = [hit["title"] for hit in store.hits("osprey", include_historical=True, recency={"enabled": False})]
    assert titles == ["Osprey", "Osprey plan of the northern coast and its islands", "Plan"]

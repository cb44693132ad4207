"""Which words of a question lead to the claims that anchors name: those that few anchors have (retrieval §2.4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from memoree.retrieval.projections import ANCHOR_POLICY, RARE_ANCHORS_MIN

from .store import ELSEWHERE, HERE, Json, Store

KEYS = itertools.count(1)


def anchor_input(artifact: Json, text: str, claim: Json | None = None, *, kind: str = "retrieval_anchor") -> Json:
    """An anchor of an artifact that names a claim, or nothing."""
    return {
        "artifact_id": artifact["artifact_id"],
        "revision_id": artifact["revision_id"],
        "projection_key": f"key {next(KEYS)}",
        "kind": kind,
        "text": text,
        "evidence_spans": [{"start_byte": 0, "end_byte": 4}],
        "generator": "acme-anchors",
        "generator_version": "1",
        "generator_digest": "sha256:00",
        "metadata": {"claim_id": claim["claim_id"]} if claim else {},
    }


def anchor_all(store: Store, anchors: Iterable[Json], context: Json = HERE) -> list[Json]:
    return store.write_many("projection.put", anchors, context)


def led_to(store: Store, query: str) -> list[str]:
    """The excerpts of the hits that an anchor led to, by relevance."""
    hits = store.hits(query, limit=100, recency={"enabled": False})
    return [hit["excerpt"] for hit in hits if ANCHOR_POLICY in hit["matched_by"]]


@pytest.fixture
def source(store: Store) -> Json:
    return store.artifact("untitled", "cone 6 reached")


@pytest.mark.parametrize(
    ("holders", "total", "is_rare"),
    [
        (1, 1, True), (2, 2, True), (3, 3, False), (2, 100, True), (3, 100, False), (51, 100, False),
        (3, 149, False), (3, 150, True), (4, 150, False), (4, 200, True),
    ],
)  # fmt: skip
def test_a_word_leads_to_claims_while_a_fiftieth_of_all_anchors_or_two_have_it(
    store: Store, source: Json, holders: int, total: int, is_rare: bool
) -> None:
    claims = store.claims(f"Statement {number}." for number in range(holders))
    anchor_all(store, (anchor_input(source, "marlinspike", claim) for claim in claims))
    anchor_all(store, (anchor_input(source, "windmill") for _ in range(total - holders)))
    expected = [f"Statement {number}." for number in reversed(range(holders))]
    assert led_to(store, "marlinspike") == (expected if is_rare else [])


def test_every_word_of_a_question_is_judged_by_itself(store: Store, source: Json) -> None:
    first, second = store.claims(["Statement one.", "Statement two."])
    anchor_all(store, (anchor_input(source, "windmill") for _ in range(10)))
    anchor_all(store, [anchor_input(source, "windmill harpoon", first), anchor_input(source, "marlinspike", second)])
    assert led_to(store, "windmill") == []
    assert led_to(store, "windmill harpoon") == ["Statement one."]
    assert led_to(store, "windmill harpoon marlinspike") == ["Statement two.", "Statement one."]
    assert led_to(store, '"windmill harpoon"') == ["Statement one."]
    assert led_to(store, '"harpoon windmill"') == []


def test_only_active_anchors_count(store: Store, source: Json) -> None:
    """Other projections, dropped anchors and those that were reworded are none, neither with the word nor in all."""
    claims = store.claims(["Statement one.", "Statement two."])
    anchor_all(store, (anchor_input(source, "marlinspike", claim) for claim in claims))
    anchor_all(store, (anchor_input(source, "marlinspike", kind="summary") for _ in range(5)))
    third = anchor_input(source, "marlinspike")
    (dropped,) = anchor_all(store, [third])
    assert led_to(store, "marlinspike") == []
    store.write("projection.drop", {"projection_id": dropped["projection_id"], "reason": "wrong"})
    assert led_to(store, "marlinspike") == ["Statement two.", "Statement one."]
    anchor_all(store, [third])
    assert led_to(store, "marlinspike") == []
    anchor_all(store, [third | {"text": "windmill"}])
    assert led_to(store, "marlinspike") == ["Statement two.", "Statement one."]
    many = anchor_all(store, (anchor_input(source, "windmill") for _ in range(147)))
    anchor_all(store, [third])
    assert led_to(store, "marlinspike") == ["Statement two.", "Statement one."]
    store.write("projection.drop", {"projection_id": many[0]["projection_id"], "reason": "wrong"})
    assert led_to(store, "marlinspike") == []


def test_anchors_out_of_reach_make_no_word_common(store: Store, source: Json) -> None:
    claim, foreign = store.claim("Statement one."), store.artifact("untitled", "cone 5 reached", ELSEWHERE)
    anchor_all(store, [anchor_input(source, "marlinspike", claim)])
    anchor_all(store, (anchor_input(foreign, "marlinspike", claim) for _ in range(RARE_ANCHORS_MIN)), ELSEWHERE)
    assert led_to(store, "marlinspike") == ["Statement one."]


def test_anchors_out_of_reach_make_no_word_rare(store: Store, source: Json) -> None:
    foreign = store.artifact("untitled", "cone 5 reached", ELSEWHERE)
    claims = store.claims(f"Statement {number}." for number in range(3))
    anchor_all(store, (anchor_input(source, "marlinspike", claim) for claim in claims))
    anchor_all(store, (anchor_input(foreign, "windmill") for _ in range(147)), ELSEWHERE)
    assert led_to(store, "marlinspike") == []


def test_an_anchor_of_another_project_leads_to_no_claim_of_this_one(store: Store) -> None:
    claim, foreign = store.claim("Statement one."), store.artifact("untitled", "cone 5 reached", ELSEWHERE)
    anchor_all(store, [anchor_input(foreign, "marlinspike", claim)], ELSEWHERE)
    assert led_to(store, "marlinspike") == []


def test_two_anchors_of_one_claim_are_one_candidate(store: Store, source: Json) -> None:
    claim = store.claim("Statement one.")
    anchor_all(store, (anchor_input(source, text, claim) for text in ("marlinspike", "marlinspike harpoon")))
    assert led_to(store, "marlinspike harpoon") == ["Statement one."]
    assert store.search("marlinspike harpoon")["unqualified_candidate_count"] == 1


def test_an_anchored_claim_that_matches_too_keeps_its_own_match(store: Store, source: Json) -> None:
    claim = store.claim("The harpoon is blunt.")
    query = "harpoon marlinspike windmill"
    (alone,) = store.hits(query)
    anchor_all(store, [anchor_input(source, "marlinspike", claim)])
    (hit,) = store.hits(query)
    assert hit["ranking"] == alone["ranking"]
    assert set(hit["matched_by"]) == {*alone["matched_by"], ANCHOR_POLICY}


def test_a_disputed_claim_that_an_anchor_leads_to_is_kept_on_the_page(store: Store, source: Json) -> None:
    left, right = store.claims(["It was hot.", "It was cold."])
    edge = {"source_type": "claim", "source_id": left["claim_id"], "target_type": "claim"}
    store.write("relation.put", edge | {"relation": "contradicts", "target_id": right["claim_id"]})
    store.claims(f"kiln glaze shelf {number}" for number in range(3))
    anchor_all(store, [anchor_input(source, "pencil", left)])
    hits = store.hits("kiln glaze shelf river pencil", limit=2)
    assert [(hit["excerpt"], hit["ranking"]["qualified"]) for hit in hits] == [
        ("kiln glaze shelf 2", True), ("It was hot.", False),
    ]  # fmt: skip

"""Which answer stands first (retrieval §2.5, §2.8, §4; assertions 33 to 38 and 68 to 73; fault class 31), and that
repeating words buys no place."""

from __future__ import annotations

import itertools
import math
from datetime import timedelta

import pytest

from .answers import PLAIN, recall, statements
from .door import Json, ManualClock
from .workbench import Workbench, entity_ids

RANK_CONSTANT = 60


def excerpts(answer: Json) -> list[str]:
    return [hit["excerpt"] for hit in answer["hits"]]


@pytest.mark.proves("retrieval-33")
def test_full_coverage_beats_repetition(bench: Workbench) -> None:
    repeating, covering = bench.claim("kiwi kiwi kiwi kiwi mango"), bench.claim("kiwi mango papaya")
    hits = bench.search("kiwi mango papaya", **PLAIN)["hits"]
    assert entity_ids({"hits": hits}) == [covering["claim_id"], repeating["claim_id"]]
    assert [hit["ranking"]["exact_tier"] for hit in hits] == [True, False]
    assert statements(bench, "kiwi mango papaya")[0] == "kiwi mango papaya"


@pytest.mark.proves("retrieval-34")
def test_of_equal_matches_the_newer_is_first_and_scores_are_reciprocal_ranks(bench: Workbench) -> None:
    bench.claim("emu alpha")
    bench.claim("emu bravo")
    answer = bench.search("emu", **PLAIN)
    assert excerpts(answer) == ["emu bravo", "emu alpha"]
    assert [hit["score"] for hit in answer["hits"]] == [0.016393442623, 0.016129032258]
    recalled = recall(bench, "emu", **PLAIN)["claims"]
    assert [(claim["statement"], claim["score"]) for claim in recalled] == [
        ("emu bravo", 0.016393442623),
        ("emu alpha", 0.016129032258),
    ]


@pytest.mark.proves("retrieval-34")
@pytest.mark.parametrize("kind", ["claims", "artifacts"])
def test_of_many_equal_matches_the_newest_are_on_the_page(bench: Workbench, kind: str) -> None:
    """More of them than any window of candidates that so small a page could have."""
    texts = [f"emu number{number:03}" for number in range(60)]
    for text in texts:
        if kind == "claims":
            bench.claim(text)
        else:
            bench.put(text, title="untitled")
    assert excerpts(bench.search("emu", limit=2, **PLAIN)) == texts[:-3:-1]


@pytest.mark.proves("retrieval-36")
def test_an_exact_match_is_scored_by_its_lexical_rank_alone(bench: Workbench) -> None:
    for number in range(6):
        words = "celadon glaze" if number % 2 else "celadon kiln"
        artifact = bench.put(f"{words} {'filler ' * number}", title="untitled")
        bench.project(artifact, text="celadon glaze " * (7 - number))
    hits = bench.search("celadon glaze", limit=100, **PLAIN)["hits"]
    exact = [hit for hit in hits if hit["ranking"]["exact_tier"]]
    assert len(exact) == 3
    assert exact == hits[:3]
    assert any("cited_projection_candidate_v1" in hit["matched_by"] for hit in exact)
    scores = [hit["ranking"]["lexical_score"] for hit in hits]
    assert len(set(scores)) == len(scores), "ties would leave the ranks open"
    for hit in exact:
        rank = 1 + sum(score > hit["ranking"]["lexical_score"] for score in scores)
        assert hit["ranking"]["fusion_score"] == round(1 / (RANK_CONSTANT + rank), 12)


@pytest.mark.proves("retrieval-37")
def test_a_conflicted_claim_just_outside_the_page_takes_the_last_place_that_is_not_exact(bench: Workbench) -> None:
    statements_in_order = ["kiwi mango papaya"]
    statements_in_order += ["kiwi mango" + " filler" * length for length in (1, 3, 6, 10)]
    exact, first, second, disputed, last = (bench.claim(statement) for statement in statements_in_order)
    whole = bench.search("kiwi mango papaya", **PLAIN)
    assert entity_ids(whole) == [claim["claim_id"] for claim in (exact, first, second, disputed, last)]
    bench.relate(disputed, "contradicts", bench.claim("It is otherwise."))
    page = bench.search("kiwi mango papaya", limit=3, **PLAIN)
    assert entity_ids(page) == [claim["claim_id"] for claim in (exact, first, disputed)]
    assert page["truncated"] is True
    retained = page["hits"][2]
    assert "conflict_retention_v1" in retained["matched_by"]
    assert retained["provenance"]["conflict_retention"]["policy_version"] == "conflict_retention_v1"
    assert retained["provenance"]["conflict_retention"]["reason"]
    for hit in page["hits"][:2]:
        assert "conflict_retention_v1" not in hit["matched_by"]


@pytest.mark.proves("retrieval-37")
def test_a_conflicted_claim_never_displaces_an_exact_one(bench: Workbench) -> None:
    exact = [bench.claim(f"kiwi mango number{number}")["claim_id"] for number in range(3)]
    bench.relate(bench.claim("kiwi alone"), "contradicts", bench.claim("It is otherwise."))
    assert set(bench.found("kiwi mango", limit=3, **PLAIN)) == set(exact)
    assert set(bench.found("kiwi mango", limit=2, **PLAIN)) < set(exact)


@pytest.mark.proves("retrieval-38")
def test_a_title_outweighs_a_body(bench: Workbench) -> None:
    titled = bench.put("unrelated body text here", title="Pelican rollout")
    bench.put("a long body that mentions pelican twice, for the pelican is large", title="Other")
    assert bench.found("pelican", **PLAIN)[0] == titled["artifact_id"]
    assert recall(bench, "pelican", **PLAIN)["artifact_refs"][0]["artifact_id"] == titled["artifact_id"]


# --- identifiers -----------------------------------------------------------------------------------------------------

TWINS = {
    "38.101": ["38.102", "38.1010", "138.101", "38 and 101", "101.38", "38.1.01"],
    "v1.2.3": ["v1.2.4", "v1.2", "v1.2.3.1", "v1.3.2", "v11.2.3", "1.2.3"],
    "SKU-88-4711-B": ["SKU-88-4711-C", "SKU-88-4711", "SKU-4711-88-B", "SKU-88-4711-B-2"],
    "10.0.12.7": ["10.0.12.70", "10.12.0.7", "110.0.12.7", "10.0.127"],
    "2026-03-02": ["2026-02-03", "2025-03-02", "2026-03-20", "02-03-2026"],
    "3f2504e0-4f89": ["3f2504e0-4f88", "4f89-3f2504e0", "3f2504e1-4f89"],
    "src/kiln/cone.py": ["src/kiln/cones.py", "src/cone/kiln.py", "src/kiln/cone/py", "kiln/cone.py.bak"],
    "cdm-xxc": ["cdm-xxd", "xxc-cdm", "cdm xxa xxc"],
    "kiln::fire_now": ["kiln::fire_later", "fire_now::kiln", "kiln fire and now"],
    "0x7ffe12": ["0x7ffe13", "7ffe12x0", "0x7ffe"],
    "a1b2c3d": ["a1b2c3e", "a1b2c3", "b1a2c3d"],
    "fe80::1ff:fe23": ["fe80::1ff:fe24", "fe23::1ff:fe80"],
    "ops@kiln.example": ["ops@kilns.example", "kiln@ops.example", "ops kiln"],
    "C:\\kiln\\log.txt": ["C:\\log\\kiln.txt", "C:\\kiln\\logs.txt"],
}


@pytest.mark.fault_class(31)
@pytest.mark.parametrize("identifier", TWINS)
def test_an_identifier_recalls_its_own_text_first_among_near_twins(bench: Workbench, identifier: str) -> None:
    sentence = "The note of that day mentions {} and nothing else of interest."
    twins = [sentence.format(twin) for twin in TWINS[identifier]]
    wanted = sentence.format(identifier)
    for text in [*twins[::2], wanted, *twins[1::2]]:
        bench.claim(text)
        bench.put(text, title="untitled")
    for query in (identifier, f"what about {identifier}?", f"which note mentions {identifier}"):
        answer = recall(bench, query, max_claims=1, max_artifact_refs=1)
        assert [claim["statement"] for claim in answer["claims"]] == [wanted], query
        assert [ref["excerpt"] for ref in answer["artifact_refs"]] == [wanted], query


@pytest.mark.fault_class(31)
@pytest.mark.parametrize("identifier", TWINS)
def test_an_identifier_in_a_title_is_first_among_near_twins(bench: Workbench, identifier: str) -> None:
    twins = [bench.put("body", title=f"Note on {twin}") for twin in TWINS[identifier][::2]]
    wanted = bench.put("body", title=f"Note on {identifier}")
    twins += [bench.put("body", title=f"Note on {twin}") for twin in TWINS[identifier][1::2]]
    assert bench.found(identifier, **PLAIN)[0] == wanted["artifact_id"]


# --- repeated words --------------------------------------------------------------------------------------------------

HONEST = "The celadon glaze wants iron oxide and a slow cooling kiln."
STUFFING = {
    "the words over and over": "celadon glaze " * 200,
    "the words over and over behind the same sentence": f"{HONEST} " + "celadon glaze " * 200,
    "each word in a run": "celadon " * 200 + "glaze " * 200,
    "sentences": "Celadon glaze! " * 200,
    "lines": "celadon glaze\n" * 200,
    "inflections": "celadons glazes glazing glazed celadon glaze " * 70,
    "a few repetitions before the same sentence": "celadon glaze " * 3 + HONEST,
} | {f"{count} more of each": HONEST + " celadon glaze" * count for count in (1, 2, 4, 16, 64)}


@pytest.mark.parametrize("kind", STUFFING)
@pytest.mark.parametrize("stuffed_is_newer", [True, False], ids=["newer", "older"])
def test_repeating_the_words_of_a_question_buys_no_place(bench: Workbench, kind: str, stuffed_is_newer: bool) -> None:
    stuffed = STUFFING[kind].strip()
    for text in [HONEST, stuffed] if stuffed_is_newer else [stuffed, HONEST]:
        bench.claim(text)
        bench.put(text, title="untitled")
    for number in range(8):
        bench.claim(f"Firing number {number} was logged by the night shift.")
    for options in ({}, PLAIN):
        answer = recall(bench, "celadon glaze", **options)
        assert answer["claims"][0]["statement"] == HONEST
        first = bench.door.ok("artifact.get", {"artifact_id": answer["artifact_refs"][0]["artifact_id"]})
        assert first["content"]["data"] == HONEST


def test_repeating_the_words_of_a_question_in_a_title_buys_no_place(bench: Workbench) -> None:
    honest = bench.put("It wants iron.", title="Celadon glaze")
    bench.put("It wants iron.", title=("celadon glaze " * 200).strip())
    assert recall(bench, "celadon glaze")["artifact_refs"][0]["artifact_id"] == honest["artifact_id"]


def test_repeating_one_word_does_not_stand_for_another(bench: Workbench) -> None:
    query = "celadon glaze iron cooling kiln"
    covering = bench.claim("celadon glaze iron cooling, from the notebook of the studio, page nine")
    bench.claim("celadon glaze iron " * 100)
    assert bench.found(query, **PLAIN)[0] == covering["claim_id"]


# --- recency ---------------------------------------------------------------------------------------------------------


def ladder(bench: Workbench, clock: ManualClock, ages_days: list[int], claim_type: str) -> list[str]:
    """Claims that all match the word `cone`, the earlier the better, of the given ages; their ids in that order."""
    now, found = clock.now, []
    for place, age in enumerate(ages_days):
        clock.now = now - timedelta(days=age)
        statement = "cone" + " filler" * (place + 1)
        found.append(bench.claim(statement, claim_type=claim_type)["claim_id"])
    clock.now = now
    assert bench.found("cone", **PLAIN) == found
    return found


@pytest.mark.proves("retrieval-68")
def test_a_fresh_hit_rises_two_places_and_no_more(bench: Workbench, clock: ManualClock) -> None:
    one, two, three, four, fresh = ladder(bench, clock, [365, 365, 365, 365, 0], "observation")
    hits = bench.search("cone")["hits"]
    assert entity_ids({"hits": hits}) == [one, two, fresh, three, four]
    assert hits[2]["score"] > hits[0]["score"], "it would have gone further"
    assert [claim["claim_id"] for claim in recall(bench, "cone")["claims"]] == [one, two, fresh, three, four]


@pytest.mark.proves("retrieval-69")
@pytest.mark.parametrize(("claim_type", "rises"), [("constraint", False), ("decision", True)])
def test_a_bonus_smaller_than_the_gap_moves_nothing(
    bench: Workbench, clock: ManualClock, claim_type: str, rises: bool
) -> None:
    old, fresh = ladder(bench, clock, [3650, 0], claim_type)
    hits = {hit["entity_id"]: hit["ranking"] for hit in bench.search("cone")["hits"]}
    assert hits[fresh]["recency_bonus"] > hits[old]["recency_bonus"] > 0
    assert bench.found("cone") == ([fresh, old] if rises else [old, fresh])


@pytest.mark.proves("retrieval-69")
@pytest.mark.parametrize(("claim_type", "days"), [("observation", 78.3), ("fact", 289.6), ("decision", 444.4)], ids=str)
def test_a_second_hit_leads_a_decayed_one_up_to_an_exact_age(
    bench: Workbench, clock: ManualClock, claim_type: str, days: float
) -> None:
    old, fresh = ladder(bench, clock, [20_000, 0], claim_type)
    clock.advance(days=days - 1)
    assert bench.found("cone") == [fresh, old]
    clock.advance(days=2)
    assert bench.found("cone") == [old, fresh]


@pytest.mark.proves("retrieval-70")
def test_without_recency_the_order_is_that_of_relevance(bench: Workbench, clock: ManualClock) -> None:
    relevance = ladder(bench, clock, [600, 500, 400, 300, 200, 0], "observation")
    assert bench.found("cone") != relevance
    hits = bench.search("cone", **PLAIN)["hits"]
    assert entity_ids({"hits": hits}) == relevance
    for position, hit in enumerate(hits, 1):
        assert (hit["ranking"]["recency_bonus"], hit["ranking"]["recency_enabled"]) == (0, False)
        assert hit["ranking"]["final_position"] == hit["ranking"]["lexical_position"] == position
        assert hit["score"] == hit["ranking"]["fusion_score"]
        assert "bounded_recency_v1" not in hit["matched_by"]
    recalled = recall(bench, "cone", max_claims=10, **PLAIN)["claims"]
    assert [claim["claim_id"] for claim in recalled] == relevance


@pytest.mark.proves("retrieval-71")
@pytest.mark.parametrize("window", range(1, 7))
def test_recency_never_changes_who_is_on_a_page(bench: Workbench, clock: ManualClock, window: int) -> None:
    relevance = ladder(bench, clock, [600, 500, 400, 0, 0, 0], "observation")
    expected = set(relevance[:window])
    for options in ({}, PLAIN):
        assert set(bench.found("cone", limit=window, **options)) == expected
        answer = recall(bench, "cone", max_claims=window, **options)
        assert {claim["claim_id"] for claim in answer["claims"]} == expected
        bundle = bench.door.ok("context.build", {"query": "cone", "limit": window} | options)
        assert {item["entity_id"] for item in bundle["manifest"]} == expected


@pytest.mark.proves("retrieval-72")
def test_a_fresh_hit_with_fewer_words_never_passes_an_old_one_with_more(bench: Workbench, clock: ManualClock) -> None:
    query = "cone glaze kiln shelf"
    clock.now -= timedelta(days=2000)
    old = bench.claim("cone glaze kiln plain", claim_type="observation")
    for number in range(20):
        bench.claim(f"Firing {number} was logged.")
    clock.advance(days=2000)
    pairs = itertools.combinations(("cone", "glaze", "kiln"), 2)
    fresh = [bench.claim(f"{one} {two} plain plain", claim_type="observation") for one, two in pairs]
    assert bench.found(query, **PLAIN)[0] == old["claim_id"]
    found = bench.search(query)["hits"]
    assert found[0]["entity_id"] == old["claim_id"]
    assert {hit["entity_id"] for hit in found[1:]} == {claim["claim_id"] for claim in fresh}
    assert max(hit["score"] for hit in found[1:]) > found[0]["score"], "the bonus would have lifted it"


@pytest.mark.proves("retrieval-73")
@pytest.mark.parametrize(
    ("kind", "decay_class", "ratio"),
    [
        ("deploy-log", "ephemeral", 0.10),
        ("ADR", "decision", 0.025),
        ("policy", "constraint", 0.01),
        ("runbook", "procedure", 0.04),
        ("memo", "general", 0.05),
        ("catalog", "ephemeral", 0.10),
        ("inspection", "constraint", 0.01),
    ],
)
def test_the_kind_of_an_artifact_sets_its_class(bench: Workbench, kind: str, decay_class: str, ratio: float) -> None:
    bench.put("cone", kind=kind, title="untitled")
    (hit,) = bench.search("cone")["hits"]
    assert hit["ranking"]["decay_class"] == decay_class
    assert math.isclose(hit["ranking"]["recency_bonus"] / hit["ranking"]["fusion_score"], ratio, rel_tol=1e-4)

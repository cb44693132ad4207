"""`memory.probe`: leads of what comes near and answers nothing (machine protocol §4.32, retrieval contract §5.1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .answers import PLAIN
from .door import Door, Json
from .near import QUESTION, anchor, artifacts_nearby, claims_nearby, locator, place, quoted
from .workbench import Workbench

RESULT = {
    "content_is_untrusted", "retrieval_tier", "original_query", "probe_query", "reformulation_applied", "leads",
    "available_count", "truncated",
}  # fmt: skip
ABOVE = "Shelf wash is renewed after every glaze firing. " * 50 + "\n\n"
BELOW = "The celadon kiln cooled slowly overnight. " + "Nothing else was noted. " * 20
"""Two paragraphs, each long enough for a chunk of its own."""


def probe(bench: Workbench, query: str = QUESTION, **fields: Any) -> Json:
    return bench.door.ok("memory.probe", {"query": query} | fields)


def leads(bench: Workbench, query: str = QUESTION, **fields: Any) -> list[Json]:
    found: list[Json] = probe(bench, query, **fields)["leads"]
    return found


def only_lead(bench: Workbench, query: str = QUESTION) -> Json:
    found = leads(bench, query)
    assert len(found) == 1
    return found[0]


def citations(lead: Json) -> list[str]:
    return [source["citation"] for source in lead["sources"]]


def origins(found: list[Json]) -> list[str]:
    return [source["locator_origin"] for lead in found for source in lead["sources"]]


@pytest.mark.proves("machine-179")
def test_an_answer_has_the_members_of_the_contract(bench: Workbench) -> None:
    claim, artifact = quoted(bench, "The celadon cracked.", "It cracked.")
    answer = probe(bench)
    assert set(answer) == RESULT
    assert answer == answer | {
        "content_is_untrusted": True,
        "retrieval_tier": "unqualified_candidate",
        "original_query": QUESTION,
        "probe_query": QUESTION,
        "reformulation_applied": False,
        "available_count": 1,
        "truncated": False,
    }
    assert answer["leads"] == [
        {
            "title": "Kiln firing 12",
            "sources": [{"citation": place(artifact, 0, 11), "locator_origin": "claim_exact"}],
            "evidence_locator_set_complete": True,
        }
    ]
    assert claim["claim_id"] not in json.dumps(answer)


@pytest.mark.proves("machine-179")
def test_leads_are_few_and_small_and_answer_nothing(bench: Workbench) -> None:
    for number in range(10):
        artifact = bench.put("x" * 5, title=f"Batch {number}: " + "é" * 39)
        bench.claim(f"Celadon number {number}.", evidence=[locator(artifact, n, n + 1) for n in range(5)])
    artifacts_nearby(bench, 10)
    answer = probe(bench)
    assert len(answer["leads"]) == 8
    assert (answer["available_count"], answer["truncated"]) == (20, True)
    assert all(len(lead["title"].encode()) <= 48 for lead in answer["leads"])
    assert [len(lead["sources"]) for lead in answer["leads"]] == [3] * 6 + [1] * 2
    recalled = bench.door.ok("memory.recall", {"query": QUESTION})
    assert (recalled["presence"], recalled["claims"], recalled["artifact_refs"]) == ("none", [], [])


def test_eight_leads_fit_into_three_kilobytes(bench: Workbench) -> None:
    claims_nearby(bench, 8)
    artifacts_nearby(bench, 4)
    answer = probe(bench)
    assert len(answer["leads"]) == 8
    assert len(json.dumps(answer, separators=(",", ":")).encode()) < 3 * 1024


@pytest.mark.proves("machine-180", "retrieval-74")
@pytest.mark.parametrize(
    ("claims", "artifacts", "leads_max", "shown"),
    [
        (6, 4, 5, (3, 2)),
        (6, 4, 8, (6, 2)),
        (10, 10, 8, (6, 2)),
        (10, 10, 1, (0, 1)),
        (10, 1, 8, (7, 1)),
        (1, 10, 8, (1, 7)),
        (3, 0, 2, (2, 0)),
    ],
)
def test_claims_lead_and_leave_two_places_to_artifacts(
    bench: Workbench, claims: int, artifacts: int, leads_max: int, shown: tuple[int, int]
) -> None:
    claims_nearby(bench, claims)
    artifacts_nearby(bench, artifacts)
    answer = probe(bench, max_leads=leads_max)
    assert origins(answer["leads"]) == ["claim_exact"] * shown[0] + ["artifact_exact"] * shown[1]
    assert answer["available_count"] == claims + artifacts
    assert answer["truncated"] is (claims + artifacts > leads_max)


def test_more_than_sixteen_candidates_are_not_counted_and_said_to_be_there(bench: Workbench) -> None:
    claims_nearby(bench, 17)
    answer = probe(bench)
    assert (answer["available_count"], answer["truncated"]) == (16, True)


@pytest.mark.proves("retrieval-75")
def test_what_answers_the_query_is_no_lead(bench: Workbench) -> None:
    quoted(bench, "The celadon cracked.", "It broke.")
    assert leads(bench, "celadon") == []
    quoted(bench, "The celadon was left alone.", "Left alone.", title="Near")
    assert [lead["title"] for lead in leads(bench, "celadon cracked")] == ["Near"]


@pytest.mark.proves("retrieval-76")
def test_claims_that_cite_one_revision_make_one_lead_with_the_evidence_of_the_best(bench: Workbench) -> None:
    artifact = bench.put("One crack. Two cracks.", title="Inspection")
    bench.claim("Celadon, and much more that was said of the shelf.", evidence=[locator(artifact, 0, 10)])
    bench.claim("Celadon.", evidence=[locator(artifact, 11, 22)])
    bench.claim("Celadon, and still more that was said of the shelf.", evidence=[locator(artifact, 4, 9)])
    assert citations(only_lead(bench)) == [place(artifact, 11, 22)]


def test_claims_and_artifacts_of_one_document_stay_apart_unless_they_show_the_same_bytes(bench: Workbench) -> None:
    artifact = bench.put(ABOVE + BELOW, title="Firing log")
    start, end = len(ABOVE), len(ABOVE + BELOW)
    assert citations(only_lead(bench)) == [place(artifact, start, end)]
    bench.claim("Shelves are washed for celadon, and for every other glaze.", evidence=[locator(artifact, 0, 20)])
    assert origins(leads(bench)) == ["claim_exact", "artifact_exact"]
    bench.claim("Celadon.", evidence=[locator(artifact, end - 5, end)])
    assert [citations(lead) for lead in leads(bench)] == [[place(artifact, end - 5, end)]]


def test_spans_that_only_touch_do_not_overlap(bench: Workbench) -> None:
    artifact = bench.put(ABOVE + BELOW, title="Firing log")
    start = len(ABOVE)
    bench.claim("Shelves are washed for celadon.", evidence=[locator(artifact, start - 4, start)])
    assert origins(leads(bench)) == ["claim_exact", "artifact_exact"]


@pytest.mark.proves("retrieval-77", "machine-179")
def test_a_long_title_ends_in_an_ellipsis(bench: Workbench) -> None:
    title = "Billing retry handbook with a very long descriptive title indeed"
    quoted(bench, "The celadon cracked.", "It cracked.", title=title)
    lead = only_lead(bench)
    assert lead["title"] == "Billing retry handbook with a very long descr…"
    assert len(lead["title"].encode()) == 48


@pytest.mark.proves("machine-181", "retrieval-78")
def test_evidence_without_a_span_is_pointed_at_and_cannot_be_fetched(door: Door, bench: Workbench) -> None:
    artifact = bench.put("It cracked.")
    bench.claim("The celadon cracked.", evidence=[locator(artifact)])
    lead = only_lead(bench)
    assert lead["sources"] == [{"citation": place(artifact), "locator_origin": "revision_only"}]
    assert lead["evidence_locator_set_complete"] is True
    error = door.refused("CITATION_ERROR", "citation.get", {"citation": place(artifact)}, context=None)
    assert error["details"]["citation_error"] == "range_required"


def test_a_title_that_matches_points_at_its_revision(bench: Workbench) -> None:
    artifact = bench.put("nothing of it", title="Celadon notes")
    lead = only_lead(bench)
    assert (lead["title"], lead["sources"]) == (
        "Celadon notes",
        [{"citation": place(artifact), "locator_origin": "revision_only"}],
    )


def test_the_evidence_of_a_claim_comes_in_the_order_of_the_document_and_once(bench: Workbench) -> None:
    artifact = bench.put("0123456789", title="Digits")
    evidence = [locator(artifact, 6, 8), locator(artifact, 0, 2), locator(artifact, 6, 8), locator(artifact, 0, 1)]
    bench.claim("The celadon cracked.", evidence=evidence)
    lead = only_lead(bench)
    assert citations(lead) == [place(artifact, 0, 1), place(artifact, 0, 2), place(artifact, 6, 8)]
    assert lead["evidence_locator_set_complete"] is True


@pytest.mark.proves("machine-179")
@pytest.mark.parametrize(
    ("spans", "shown"),
    [
        ([(0, 1), (1, 2), (2, 3)], 3),
        ([(0, 1), (1, 2), (2, 3), (3, 4)], 3),
        ([(0, 4096)], 1),
        ([(0, 4000), (4000, 4097)], 1),
        ([(0, 4097)], 0),
    ],
)
def test_a_lead_has_three_sources_and_4096_bytes_at_most(
    bench: Workbench, spans: list[tuple[int, int]], shown: int
) -> None:
    artifact = bench.put("x" * 5000)
    bench.claim("The celadon cracked.", evidence=[locator(artifact, *span) for span in spans])
    lead = only_lead(bench)
    assert citations(lead) == [place(artifact, *span) for span in spans[:shown]]
    assert lead["evidence_locator_set_complete"] is (shown == len(spans))


def test_a_claim_without_evidence_is_a_lead_to_nothing(bench: Workbench) -> None:
    bench.claim("The celadon cracked.", claim_type="observation")
    lead = {"title": "observation claim", "sources": [], "evidence_locator_set_complete": True}
    assert leads(bench) == [lead]


def test_forgotten_sources_give_neither_titles_nor_pointers(door: Door, bench: Workbench) -> None:
    first, second = bench.put("First crack.", title="Secret"), bench.put("Second crack.", title="Open")
    bench.claim("The celadon cracked.", evidence=[locator(first, 0, 12), locator(second, 0, 13)])
    bench.forget(first)
    lead = only_lead(bench)
    assert (lead["title"], citations(lead)) == ("Open", [place(second, 0, 13)])
    assert lead["evidence_locator_set_complete"] is False
    bench.forget(second)
    assert leads(bench) == [{"title": "fact claim", "sources": [], "evidence_locator_set_complete": False}]
    assert door.ok("citation.get", {"citation": place(first, 0, 12)}, context=None)["content"] == "First crack."


def test_only_what_is_current_leads_anywhere(bench: Workbench) -> None:
    artifacts = artifacts_nearby(bench, 2)
    bench.forget(artifacts[0])
    bench.revise(artifacts[1], "nothing of it", title="Jar 1")
    bench.retract(bench.claim("A celadon retracted."))
    old = bench.claim("A celadon superseded.")
    bench.relate(bench.claim("Its successor."), "supersedes", old)
    bench.claim("A celadon to come.", valid_from="2199-01-01T00:00:00Z")
    bench.claim("A celadon of old.", valid_until="2001-01-01T00:00:00Z")
    bench.revise_claim(bench.claim("A celadon revised."), "Now without it.")
    assert probe(bench) == probe(bench) | {"leads": [], "available_count": 0, "truncated": False}


def test_a_probe_never_looks_beyond_its_horizon(door: Door, bench: Workbench) -> None:
    sibling = {"context": door.here(project_id="prj_sibling")}
    bench.claim("The celadon cracked.", how=sibling)
    assert leads(bench) == []
    door.refused("INVALID_REQUEST", "memory.probe", {"query": QUESTION, "horizon": "workspace"})
    wide = door.succeeded("memory.probe", {"query": QUESTION, "horizon": "workspace", "reason": "compare"})
    assert len(wide["result"]["leads"]) == 1
    assert wide["context"]["broadened"] is True


def test_the_original_question_only_travels_along(bench: Workbench) -> None:
    quoted(bench, "The celadon cracked.", "It cracked.")
    answer = probe(bench, original_query="what became of the vase?")
    assert (answer["original_query"], answer["probe_query"]) == ("what became of the vase?", QUESTION)
    assert answer["reformulation_applied"] is True
    assert len(answer["leads"]) == 1
    assert probe(bench, original_query=QUESTION)["reformulation_applied"] is False
    assert probe(bench, "vase windmill orchestra glacier", original_query=QUESTION)["leads"] == []


@pytest.mark.proves("machine-179")
def test_inputs_beyond_their_bounds_are_refused(door: Door) -> None:
    bad: list[Json] = [
        *({"max_leads": count} for count in (0, 9, 2**32)),
        *({"original_query": text} for text in ("", " \n", "é" * 4097)),
        {"include_historical": True},
        {"query": "???"},
    ]
    for fields in bad:
        door.refused("INVALID_REQUEST", "memory.probe", {"query": "cone"} | fields)
    door.refused("INDEX_NOT_READY", "memory.probe", {"query": "cone", "min_commit_seq": 2**40})
    for count in (1, 8):
        door.ok("memory.probe", {"query": "cone", "max_leads": count, "original_query": "é" * 4096})


def test_claims_that_an_anchor_names_lead_before_better_matches(bench: Workbench) -> None:
    claim, artifact = quoted(bench, "Backoff doubles.", "Backoff doubles each time.", title="Anchored")
    claims_nearby(bench, 10)
    assert "Anchored" not in [lead["title"] for lead in leads(bench)]
    anchor(bench, artifact, claim, "orchestra")
    shown = leads(bench, max_leads=3)
    assert shown[0]["title"] == "Anchored"


def test_recency_reorders_leads_and_never_changes_which_are_shown(bench: Workbench) -> None:
    claims_nearby(bench, 10)
    artifacts_nearby(bench, 10)
    for count in range(1, 9):
        fresh, plain = leads(bench, max_leads=count), leads(bench, max_leads=count, **PLAIN)
        assert sorted(map(json.dumps, fresh)) == sorted(map(json.dumps, plain))

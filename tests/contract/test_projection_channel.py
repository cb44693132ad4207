"""Derived text leads to what it is about: projections to their artifact, anchors to a claim. Neither answers a
question, and neither is shown in the place of what it is about (retrieval §2.4, machine assertion 205)."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import apsw
import pytest

from memoree.data_directory import DATABASE_NAME

from .answers import PLAIN, presence, recall
from .door import Door, EmbeddedDoor, Json
from .near import anchor
from .workbench import Workbench, body_of, entity_ids, span_of

PROJECTION, ANCHOR = "cited_projection_candidate_v1", "write_time_anchor_candidate_v1"
BEST_FUSION_SCORE = round(0.75 / 61, 12)
"""Of the first projection with nothing else to its credit."""
WORD = "marlinspike"
"""A word that no body and no statement of this file has."""


def only_hit(bench: Workbench, query: str = WORD, *, how: Json | None = None, **fields: object) -> Json:
    hits = bench.search(query, how=how, **fields)["hits"]
    assert len(hits) == 1, f"{query!r} finds {len(hits)}"
    found: Json = hits[0]
    return found


def spans(*bounds: tuple[int, int]) -> list[Json]:
    return [{"start_byte": start, "end_byte": end} for start, end in bounds]


def preview(hit: Json) -> str:
    shown: str = hit["provenance"]["derived_projection"]["matched_text_preview"]
    return shown


# --- what a projection adds ------------------------------------------------------------------------------------------


@pytest.mark.proves("machine-205")
def test_a_projection_leads_to_its_artifact_and_says_where_it_came_from(bench: Workbench) -> None:
    artifact = bench.put("cone 6 reached at 21:40", title="untitled", provenance={"kiln": 4})
    cited = spans((5, 6), (7, 14))
    projection = bench.project(artifact, text=f"the {WORD} of the firing", evidence_spans=cited)
    status, hit = bench.search(WORD)["projection"], only_hit(bench)
    assert (status["state"], status["candidate_count"]) == ("ready", 1)
    assert (hit["entity_id"], hit["title"], hit["excerpt"]) == (artifact["artifact_id"], "untitled", "6")
    assert span_of(hit) == (5, 6)
    provenance = hit["provenance"]
    assert provenance["kiln"] == 4
    assert "retrieval_match" not in provenance
    assert {name: provenance["retrieval_span"][name] for name in cited[0]} == cited[0]
    told = provenance["derived_projection"]
    assert told.pop("projection_score") > 0
    assert told == {
        "projection_id": projection["projection_id"],
        "kind": "summary",
        "generator": "acme-summariser",
        "generator_version": "3",
        "generator_digest": "sha256:00ff",
        "candidate_only": True,
        "matched_text_preview": f"the {WORD} of the firing",
        "evidence_spans": cited,
    }
    assert {PROJECTION, "artifact_citation_span_v1"} <= set(hit["matched_by"])
    assert not {"fts5_bm25", ANCHOR} & set(hit["matched_by"])
    found = hit["ranking"]
    assert (found["qualified"], found["matched_unit_count"], found["lexical_score"]) == (False, 0, 0)
    assert found["fusion_score"] == BEST_FUSION_SCORE


def test_a_search_that_no_projection_matches_says_so(bench: Workbench) -> None:
    bench.project(bench.put("cone 6 reached at 21:40"))
    answer = bench.search("cone")
    assert (answer["projection"]["state"], answer["projection"]["candidate_count"]) == ("no_candidates", 0)
    assert PROJECTION not in answer["hits"][0]["matched_by"]
    assert "derived_projection" not in answer["hits"][0]["provenance"]


@pytest.mark.proves("machine-205")
def test_an_artifact_found_by_its_own_words_keeps_its_own_place(bench: Workbench) -> None:
    """Also where it is found by too few of them, or by misspelled ones: the projection adds its rank and its record."""
    body = "The celadon glaze cracked overnight."
    bench.project(bench.put(body, title="untitled"), text=f"celadon {WORD} report", evidence_spans=spans((0, 3)))
    asked = {"celadon glaze": True, f"celadon {WORD} saffron": False, f"seladon {WORD}": False, "seladon glase": True}
    for query, qualified in asked.items():
        answer = bench.search(query, **PLAIN)
        (hit,) = answer["hits"]
        assert (hit["excerpt"], span_of(hit)) == (body, (0, len(body))), query
        assert hit["ranking"]["qualified"] is qualified, query
        is_projected = query != "seladon glase"
        assert (PROJECTION in hit["matched_by"]) is is_projected, query
        assert answer["projection"]["candidate_count"] == is_projected
        if is_projected:
            assert preview(hit) == f"celadon {WORD} report"


def test_a_projection_raises_a_weak_match_by_its_rank(bench: Workbench) -> None:
    lower, raised = bench.put("celadon, saffron and more", title="untitled"), bench.put("celadon", title="untitled")
    query = f"celadon {WORD} tenmoku"
    alone = {hit["entity_id"]: hit["ranking"]["fusion_score"] for hit in bench.search(query, **PLAIN)["hits"]}
    bench.project(lower, text=WORD)
    together = {hit["entity_id"]: hit["ranking"]["fusion_score"] for hit in bench.search(query, **PLAIN)["hits"]}
    assert together[lower["artifact_id"]] == round(alone[lower["artifact_id"]] + 0.75 / 61, 12)
    assert together[raised["artifact_id"]] == alone[raised["artifact_id"]]
    assert bench.found(query, **PLAIN)[0] == lower["artifact_id"]


@pytest.mark.proves("machine-205")
def test_the_best_projection_of_a_revision_stands_for_it(bench: Workbench) -> None:
    artifact = bench.put("cone 6 reached at 21:40", title="untitled")
    texts = (f"{WORD} alone", f"{WORD} and celadon", f"{WORD} in a long text about something else " * 3, "celadon")
    for number, words in enumerate(texts):
        bench.project(artifact, projection_key=str(number), text=words, evidence_spans=spans((number, number + 1)))
    hit = only_hit(bench, f"{WORD} celadon")
    assert bench.search(f"{WORD} celadon")["projection"]["candidate_count"] == 1
    assert preview(hit) == f"{WORD} and celadon"
    assert span_of(hit) == (1, 2)
    assert PROJECTION in hit["matched_by"]


def test_better_projections_lead_and_of_equal_ones_that_of_the_newest_revision(bench: Workbench) -> None:
    equal = [bench.put(f"batch {number}", title="untitled") for number in range(3)]
    for artifact in (equal[1], equal[0], equal[2]):
        bench.project(artifact, text=WORD)
    weaker = bench.put("batch 4", title="untitled")
    bench.project(weaker, text=f"{WORD} " + "among many other words of another matter " * 4)
    expected = [equal[2], equal[1], equal[0], weaker]
    assert bench.found(WORD, **PLAIN) == [artifact["artifact_id"] for artifact in expected]


def test_of_more_equal_projections_than_are_looked_at_the_newest_revision_leads(bench: Workbench) -> None:
    for number in range(20):
        artifact = bench.put(f"batch {number}", title="untitled")
        bench.project(artifact, text=WORD)
    assert bench.found(WORD, limit=1, **PLAIN) == [artifact["artifact_id"]]


def test_a_projection_is_found_as_texts_are(bench: Workbench) -> None:
    """Inflected, in phrases, inside of unspaced runs, in any case; by no misspelling."""
    artifact = bench.put("cone 6 reached at 21:40", title="untitled")
    bench.project(artifact, text="Glazers charged the SLOW lane; 设备清单记录 is kept")
    for query in ("charging", "glazer", '"slow lane"', "slow-lane", "设备", "单"):
        assert preview(only_hit(bench, query)).startswith("Glazers"), query
    for query in ("备设", "slo", "glazzers"):
        assert bench.search(query)["hits"] == [], query


# --- the excerpt of what only a projection finds ---------------------------------------------------------------------

LONG = "".join(f"{number:05d} " for number in range(4_000))
"""24 000 bytes, every six of them different: chunks end inside of it, and it is too long to be stored inline."""
SHORT = LONG[:9_000]


@pytest.mark.proves("machine-205")
@pytest.mark.parametrize(
    ("body", "start", "end"),
    [
        (SHORT, 0, 1_024), (SHORT, 4_000, 4_200), (SHORT, 8_100, 8_300), (SHORT, 8_999, 9_000),
        (LONG, 3_900, 4_900), (LONG, 8_000, 9_000), (LONG, 19_000, 20_024), (LONG, 23_999, 24_000),
        ("é" * 4_000, 4_000, 4_200), ("窑" * 3_000, 3_999, 4_200), ("a\r\n\r\n# b\n\nc", 1, 9), ("x", 0, 1),
    ],
    ids=lambda value: f"{len(value)} characters" if isinstance(value, str) else str(value),
)  # fmt: skip
def test_the_excerpt_is_the_bytes_of_the_first_span_wherever_it_lies(
    bench: Workbench, body: str, start: int, end: int
) -> None:
    artifact = bench.put(body, title="untitled")
    last = len(body.encode())
    later = spans((end, end + 1)) if end < last else []
    bench.project(artifact, text=WORD, evidence_spans=spans((start, end)) + later)
    hit = only_hit(bench)
    assert span_of(hit) == (start, end)
    assert hit["excerpt"].encode() == body.encode()[start:end] == bench.bytes_at(hit)
    fetched = bench.door.ok("citation.get", {"citation": hit["citation"]})
    assert (fetched["content"], fetched["truncated"]) == (hit["excerpt"], False)


@pytest.mark.proves("machine-205")
@pytest.mark.parametrize(
    ("body", "span", "fields"),
    [
        ("👩🏽‍💻 naïve", (1, 3), {}),
        ("ééé", (0, 3), {}),
        ("ééé", (1, 4), {}),
        (b"\xff\xd8\xff\xe0" * 4, (0, 16), {"media_type": "image/jpeg"}),
        (b"plain bytes", (0, 5), {"media_type": "application/octet-stream"}),
        (b"caf\xe9 with a stray byte", (0, 3), {"media_type": "text/plain"}),
    ],
    ids=["inside a character", "ends in one", "starts in one", "an image", "of no text type", "of no valid text"],
)
def test_where_the_first_span_is_no_text_the_title_is_shown(
    bench: Workbench, body: str | bytes, span: tuple[int, int], fields: Json
) -> None:
    artifact = bench.put(body, title="Night at the kiln", **fields)
    bench.project(artifact, text=WORD, evidence_spans=spans(span))
    hit = only_hit(bench)
    assert (hit["excerpt"], span_of(hit)) == ("Night at the kiln", None)
    assert hit["citation"] == f"memoree://artifact/{artifact['artifact_id']}@{artifact['revision_id']}"
    assert hit["provenance"]["retrieval_match"] == "title"
    assert "retrieval_span" not in hit["provenance"]
    assert "artifact_citation_span_v1" not in hit["matched_by"]
    assert hit["provenance"]["derived_projection"]["evidence_spans"] == spans(span)
    assert body_of(bench.get(artifact["artifact_id"])) == (body.encode() if isinstance(body, str) else body)


@pytest.mark.proves("machine-205")
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (f"{WORD} {'x' * 500}", f"{WORD} {'x' * 500}"),
        (f"{WORD} {'x' * 501}", f"{WORD} {'x' * 500}"),
        (f"{WORD} {'é' * 251}", f"{WORD} {'é' * 250}"),
        (f"{WORD}: {'é' * 250}", f"{WORD}: {'é' * 249}"),
        (f"{WORD}: {'👩' * 125}", f"{WORD}: {'👩' * 124}"),
    ],
    ids=["512 bytes", "513 bytes", "514 bytes", "a character of two bytes at the end", "one of four bytes"],
)
def test_a_preview_is_cut_to_512_bytes_at_a_character(bench: Workbench, words: str, shown: str) -> None:
    bench.project(bench.put(), text=words)
    assert preview(only_hit(bench)) == shown
    assert len(shown.encode()) <= 512


# --- projections that lead nowhere -----------------------------------------------------------------------------------


def dropped(bench: Workbench) -> None:
    projection = bench.project(bench.put(title="untitled"), text=WORD)
    bench.door.ok("projection.drop", {"projection_id": projection["projection_id"], "reason": "wrong"})


def reworded(bench: Workbench) -> None:
    artifact = bench.put(title="untitled")
    bench.project(artifact, text=WORD)
    bench.project(artifact, text="something else")


def of_an_old_revision(bench: Workbench) -> None:
    artifact = bench.put(title="untitled")
    bench.project(artifact, text=WORD)
    bench.revise(artifact, "cone 5")


def of_a_forgotten_artifact(bench: Workbench) -> None:
    artifact = bench.put(title="untitled")
    bench.project(artifact, text=WORD)
    bench.forget(artifact)


def of_a_withdrawn_page(bench: Workbench) -> None:
    source = bench.source()
    bench.project(bench.ingest(source, title="untitled")["artifact"], text=WORD)
    bench.withdraw(source)


def of_another_project(bench: Workbench) -> None:
    away = {"context": bench.door.here(project_id="prj_glaze")}
    bench.project(bench.put(how=away, title="untitled"), text=WORD, how=away)


def of_another_task(bench: Workbench) -> None:
    away = {"context": bench.door.here(task_id="tsk_other")}
    bench.project(bench.put(how=away, title="untitled"), text=WORD, how=away)


@pytest.mark.fault_class(14)
@pytest.mark.proves("machine-205")
@pytest.mark.parametrize("historical", [False, True], ids=["now", "in history"])
@pytest.mark.parametrize(
    "hide",
    [
        dropped, reworded, of_an_old_revision, of_a_forgotten_artifact, of_a_withdrawn_page, of_another_project,
        of_another_task,
    ],
)  # fmt: skip
def test_a_projection_that_is_out_of_reach_leads_nowhere(bench: Workbench, hide: Any, historical: bool) -> None:
    hide(bench)
    task = {"context": bench.door.here(task_id="tsk_here")}
    answer = bench.search(WORD, how=task, include_historical=historical)
    assert (answer["hits"], answer["projection"]["state"]) == ([], "no_candidates")


def test_a_revived_projection_leads_to_its_artifact_again(bench: Workbench) -> None:
    artifact = bench.put(title="untitled")
    for _ in range(2):
        projection = bench.project(artifact, text=WORD)
        assert bench.found(WORD) == [artifact["artifact_id"]]
        bench.door.ok("projection.drop", {"projection_id": projection["projection_id"], "reason": "wrong"})
        assert bench.found(WORD) == []


def test_the_projections_of_a_pinned_artifact_count_for_its_current_revision(door: Door, bench: Workbench) -> None:
    away = {"context": door.here(project_id="prj_glaze")}
    old = bench.put("cone 6 reached", how=away, title="untitled")
    bench.project(old, text=f"{WORD} before", how=away)
    head = bench.revise(old, "cone 5 reached", how=away)
    bench.project(head, text=f"{WORD} after", how=away)
    pinned = only_hit(bench, how={"context": door.here(pins=[old["artifact_id"]])})
    assert (pinned["revision_id"], preview(pinned)) == (head["revision_id"], f"{WORD} after")
    exact = {"context": door.here(pins=[f"{old['artifact_id']}@{old['revision_id']}"])}
    assert bench.search(WORD, how=exact)["hits"] == []


ANSWER = ("presence", "claims", "artifact_refs", "conflicts")


# --- a channel that fails --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["DROP TABLE projection_fts", "DELETE FROM projection_fts_data"])
def test_without_the_index_of_projections_the_other_channels_answer_as_ever(
    empty_store: EmbeddedDoor, bench: Workbench, damage: str
) -> None:
    bench.claim("The celadon glaze held.")
    for number in range(3):
        bench.put(f"The celadon glaze cracked {number} times.", title="untitled")
    other = bench.put("unrelated", title="untitled")
    queries = ("celadon glaze", "celadon saffron", "seladon", "unrelated", WORD)
    before = {query: bench.search(query)["hits"] for query in queries}
    recalled = recall(bench, "celadon glaze")
    bench.project(other, text=f"{WORD} celadon")
    with closing(apsw.Connection(str(empty_store.data_dir / DATABASE_NAME))) as db:
        db.execute(damage)
    for query in queries:
        answer = bench.search(query)
        assert (answer["projection"]["state"], answer["projection"]["candidate_count"]) == ("error", 0)
        assert answer["projection"]["reason"]
        assert answer["hits"] == before[query], query
    after = recall(bench, "celadon glaze")
    assert {name: after[name] for name in ANSWER} == {name: recalled[name] for name in ANSWER}


# --- anchors ---------------------------------------------------------------------------------------------------------


def found_by_anchor(bench: Workbench, query: str = WORD, *, how: Json | None = None) -> list[str]:
    hits = bench.search(query, how=how, limit=100, **PLAIN)["hits"]
    return entity_ids({"hits": [hit for hit in hits if ANCHOR in hit["matched_by"]]})


@pytest.mark.proves("retrieval-32")
def test_an_anchor_leads_to_the_claim_it_names_and_to_nothing_else(bench: Workbench) -> None:
    claim, artifact = bench.claim("It was hot."), bench.put("cone 6", title="untitled")
    anchor(bench, artifact, claim, WORD)
    status, hit = bench.search(WORD)["projection"], only_hit(bench)
    assert status["state"] == "no_candidates"
    assert (hit["entity_id"], hit["excerpt"], hit["citation"]) == (
        claim["claim_id"], "It was hot.", f"memoree://claim/{claim['claim_id']}@{claim['revision_id']}",
    )  # fmt: skip
    assert ANCHOR in hit["matched_by"]
    assert not {"fts5_bm25", PROJECTION} & set(hit["matched_by"])
    found = hit["ranking"]
    assert (found["qualified"], found["fusion_score"], found["matched_unit_count"]) == (False, 0, 0)


@pytest.mark.proves("retrieval-32")
def test_what_an_anchor_names_is_a_candidate_everywhere_and_an_answer_nowhere(bench: Workbench) -> None:
    claim = bench.claim("It was hot.")
    anchor(bench, bench.put("cone 6", title="untitled"), claim, WORD)
    answer = recall(bench, WORD, max_candidate_claims=5, max_candidate_artifact_refs=5)
    assert (answer["presence"], answer["claims"], answer["artifact_refs"]) == ("none", [], [])
    assert [candidate["claim_id"] for candidate in answer["candidate_claims"]] == [claim["claim_id"]]
    assert ANCHOR in answer["candidate_claims"][0]["matched_by"]
    assert (answer["candidate_artifact_refs"], answer["unqualified_claim_candidates"]) == ([], 1)
    bundle = bench.door.ok("context.build", {"query": WORD})
    assert bundle["manifest"] == []
    assert "It was hot." not in bundle["rendered_markdown"]
    assert bench.door.ok("memory.retrieve", {"query": WORD})["presence"] == "none"


@pytest.mark.fault_class(14)
@pytest.mark.proves("retrieval-32")
def test_an_anchor_leads_to_claims_in_reach_only(door: Door, bench: Workbench) -> None:
    away = {"context": door.here(project_id="prj_glaze")}
    artifact = bench.put("cone 6", title="untitled")
    anchor(bench, artifact, bench.claim("It was cold.", how=away), WORD)
    assert found_by_anchor(bench) == []
    foreign = {"query": WORD, "horizon": "workspace", "reason": "looking further", "limit": 100}
    (hit,) = door.ok("search", foreign)["hits"]
    assert hit["excerpt"] == "It was cold."
    retracted = bench.claim("It was warm.")
    anchor(bench, artifact, retracted, f"{WORD} warm")
    assert found_by_anchor(bench) == [retracted["claim_id"]]
    bench.retract(retracted)
    assert found_by_anchor(bench) == []


def test_an_anchor_leads_to_the_current_revision_of_its_claim(bench: Workbench) -> None:
    claim = bench.claim("It was hot.")
    anchor(bench, bench.put("cone 6", title="untitled"), claim, WORD)
    revised = bench.revise_claim(claim, "It was cold.")
    for historical in (False, True):
        hit = only_hit(bench, include_historical=historical)
        assert (hit["revision_id"], hit["excerpt"]) == (revised["revision_id"], "It was cold.")


@pytest.mark.parametrize(
    "metadata",
    [
        {}, {"claim_id": None}, {"claim_id": 17}, {"claim_id": 1.5}, {"claim_id": True}, {"claim_id": ""},
        {"claim_id": ["{claim}"]}, {"claim_id": {"id": "{claim}"}}, {"claim_id": "clm_nobody"},
        {"claim_id": "{artifact}"}, {"claim_id": "{claim} "}, {"claim_id": '"'}, {"claim": "{claim}"},
        {"x": {"claim_id": "{claim}"}},
    ],
    ids=str,
)  # fmt: skip
def test_an_anchor_that_names_no_claim_leads_nowhere_and_harms_nobody(bench: Workbench, metadata: Json) -> None:
    claim, artifact = bench.claim("It was hot."), bench.put("cone 6", title="untitled")
    sound = bench.claim("It was cold.")
    anchor(bench, artifact, sound, WORD)
    names = {"{claim}": claim["claim_id"], "{artifact}": artifact["artifact_id"]}
    bench.project(artifact, kind="retrieval_anchor", projection_key="odd", text=WORD, metadata=_filled(metadata, names))
    assert found_by_anchor(bench) == [sound["claim_id"]]
    assert presence(bench, WORD) == "none"


def _filled(value: Any, names: dict[str, str]) -> Any:
    """The value with every name in braces replaced, at any depth."""
    if isinstance(value, dict):
        return {key: _filled(member, names) for key, member in value.items()}
    if isinstance(value, list):
        return [_filled(member, names) for member in value]
    for name, meant in names.items():
        value = value.replace(name, meant) if isinstance(value, str) else value
    return value


def test_anchored_candidates_lead_those_that_do_not_qualify(bench: Workbench) -> None:
    query = "celadon glaze tenmoku"
    exact, answering = bench.claim("celadon glaze tenmoku"), bench.claim("celadon tenmoku and no more")
    weak, weaker = bench.claim("celadon"), bench.claim("celadon, long ago and far away from here")
    source = bench.put("tenmoku, long ago, far away from here and in another kiln", title="untitled")
    unrelated = bench.claim("It was hot.")
    relevance = bench.found(query, **PLAIN)
    answers = [exact["claim_id"], answering["claim_id"]]
    assert relevance == [*answers, weak["claim_id"], source["artifact_id"], weaker["claim_id"]]
    anchor(bench, source, weaker, "glaze")
    anchor(bench, source, unrelated, "glaze again")
    led = [source["artifact_id"], weaker["claim_id"], unrelated["claim_id"]]
    hits = bench.search(query, **PLAIN)["hits"]
    assert entity_ids({"hits": hits}) == [*answers, *led, weak["claim_id"]]
    assert [ANCHOR in hit["matched_by"] for hit in hits] == [False, False, True, True, True, False]
    candidates = recall(bench, query, max_candidate_claims=5)["candidate_claims"]
    assert [each["claim_id"] for each in candidates] == [weaker["claim_id"], unrelated["claim_id"], weak["claim_id"]]


def test_an_anchored_answer_gains_nothing(bench: Workbench) -> None:
    better, anchored = bench.claim("celadon glaze tenmoku"), bench.claim("celadon tenmoku and no more")
    before = bench.search("celadon glaze tenmoku", **PLAIN)["hits"]
    assert entity_ids({"hits": before}) == [better["claim_id"], anchored["claim_id"]]
    anchor(bench, bench.put("cone 6", title="untitled"), anchored, "celadon")
    assert bench.search("celadon glaze tenmoku", **PLAIN)["hits"] == before

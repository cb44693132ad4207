"""Nothing that is gone, not yet valid or not in scope shows on any retrieval surface (retrieval §2.1, assertions 60 to
63 and 66; fault classes 14, 24, 36, 39, 40, 41, 62).

The measure is an answer from a project where the thing never was: whatever is hidden must leave the same answer, down
to counts, hints and candidates."""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Callable
from typing import Any, Final

import pytest

from .answers import PLAIN, RETRIEVAL, available, presence, recall, statements
from .door import Door, Json, ManualClock
from .workbench import Workbench, body_of, entity_ids, projection_input

REASON: Final[Json] = {"reason": "compare with the other studio"}
WIDE: Final[dict[str, Json]] = {
    "search": {"limit": 100},
    "memory.recall": {
        "max_claims": 10,
        "max_artifact_refs": 20,
        "max_candidate_claims": 5,
        "max_candidate_artifact_refs": 5,
        "max_excerpt_bytes": 1024,
    },
    "memory.probe": {},
    "memory.retrieve": {"max_claims": 10, "max_artifact_refs": 20, "max_excerpt_bytes": 1024},
    "context.build": {"limit": 100, "max_bytes": 1 << 20},
}
"""The input with which each operation shows as much as it can."""

SENTENCE = "The marlinspike hangs beside the bollardkey on the quarterdeck."
QUESTIONS = [
    SENTENCE,
    "marlinspike",
    "marlinspike bollardkey unheard-of",
    '"marlinspike hangs beside"',
    "marlinspyke bolardkey qarterdeck",
    "where is the marlinspike, zebra, ladder, anvil, hammer and tongs?",
]
ID = re.compile(r"\b[a-z]+_[0-9A-HJKMNP-TV-Z]{26}\b")


def answered(bench: Workbench, op: str, query: str, *, how: Json | None = None, **fields: Any) -> Json:
    """The widest answer of one operation, without what tells the time."""
    answer = bench.door.ok(op, {"query": query} | WIDE[op] | fields, **(how or {}))
    answer.get("authority", {}).pop("retrieved_at", None)
    return answer


def everything(bench: Workbench, query: str, *, how: Json | None = None, **fields: Any) -> dict[str, Json]:
    """The widest answer of every operation there is."""
    return {op: answered(bench, op, query, how=how, **fields) for op in available(bench)}


def ids_in(answers: Any) -> set[str]:
    return set(ID.findall(json.dumps(answers)))


def check_nothing_shows(bench: Workbench, *, how: Json | None = None, **fields: Any) -> None:
    """Every answer to every question is that of a project in which nothing was ever stored."""
    context = (how or {}).get("context", bench.door.context)
    never = {"context": context | {"project_id": "prj_never"}}
    for question in QUESTIONS:
        here, nowhere = everything(bench, question, how=how, **fields), everything(bench, question, how=never, **fields)
        for op in here:
            assert here[op] == nowhere[op], (op, question)
            assert ids_in(here[op]) == set(), (op, question)


def test_every_retrieval_operation_is_there(bench: Workbench) -> None:
    assert available(bench) == list(RETRIEVAL)


def test_the_questions_find_the_sentence_where_it_may_be_found(bench: Workbench) -> None:
    """Otherwise the tests of this file would see nothing anyway."""
    artifact, claim = bench.put(SENTENCE, title="untitled"), bench.claim(SENTENCE)
    for question in QUESTIONS:
        shown = everything(bench, question)
        assert {artifact["artifact_id"], claim["claim_id"]} <= ids_in(shown["search"]), question
        assert {artifact["artifact_id"], claim["claim_id"]} <= ids_in(shown["memory.recall"]), question


# --- gone ------------------------------------------------------------------------------------------------------------


def forgotten(bench: Workbench) -> None:
    bench.forget(bench.put(SENTENCE, title=SENTENCE))


def withdrawn(bench: Workbench) -> None:
    source = bench.source()
    bench.ingest(source, body=SENTENCE, title=SENTENCE)
    bench.withdraw(source)


def revised_artifact(bench: Workbench) -> None:
    bench.revise(bench.put(SENTENCE, title=SENTENCE), "other content", title="Other name")


def redelivered(bench: Workbench) -> None:
    source = bench.source()
    bench.ingest(source, body=SENTENCE, title=SENTENCE)
    bench.ingest(source, external_revision="v10", body="other content", title="Other name")


def retracted(bench: Workbench) -> None:
    bench.retract(bench.claim(SENTENCE))


def superseded(bench: Workbench) -> None:
    old = bench.claim(SENTENCE)
    bench.relate(bench.claim("It is kept elsewhere."), "supersedes", old)


def revised_claim(bench: Workbench) -> None:
    bench.revise_claim(bench.claim(SENTENCE), "It is kept elsewhere.")


def expired(bench: Workbench) -> None:
    bench.claim(SENTENCE, valid_until="2026-01-01T00:00:00Z")


def future(bench: Workbench) -> None:
    bench.claim(SENTENCE, valid_from="2099-01-01T00:00:00Z")


def retracted_from_a_conflict(bench: Workbench) -> None:
    claim = bench.claim(SENTENCE)
    bench.relate(claim, "contradicts", bench.claim("It is kept elsewhere."))
    bench.retract(claim)


def projected_and_forgotten(bench: Workbench) -> None:
    artifact = bench.put(SENTENCE, title=SENTENCE)
    bench.project(artifact, text=SENTENCE)
    bench.forget(artifact)


def projected_and_revised(bench: Workbench) -> None:
    artifact = bench.put("other body", title="Other name")
    bench.project(artifact, text=SENTENCE)
    bench.revise(artifact, "other content")


def dropped_projection(bench: Workbench) -> None:
    projection = bench.project(bench.put("other body", title="Other name"), text=SENTENCE)
    bench.door.ok("projection.drop", {"projection_id": projection["projection_id"], "reason": "wrong"})


def anchored_and_forgotten(bench: Workbench) -> None:
    anchor(bench, artifact := bench.put("other body", title="Other name"), bench.claim("It is kept elsewhere."))
    bench.forget(artifact)


def anchor(bench: Workbench, artifact: Json, claim: Json) -> None:
    """Make the claim reachable by the sentence, as an adapter does that wrote both."""
    fields: Json = {"kind": "retrieval_anchor", "text": SENTENCE, "metadata": {"claim_id": claim["claim_id"]}}
    bench.door.ok("projection.put", projection_input(artifact) | fields)


def of_another_task(bench: Workbench) -> None:
    there = {"context": bench.door.here(task_id="tsk_other")}
    bench.put(SENTENCE, title=SENTENCE, how=there)
    bench.claim(SENTENCE, how=there)


def of_another_project(bench: Workbench) -> None:
    there = {"context": bench.door.here(project_id="prj_sibling")}
    left, right = bench.claim(SENTENCE, how=there), bench.claim(f"Not so: {SENTENCE}", how=there)
    bench.relate(left, "contradicts", right, how=there)
    bench.project(bench.put(SENTENCE, title=SENTENCE, how=there), text=SENTENCE, how=there)


def of_another_workspace(bench: Workbench) -> None:
    there = {"context": bench.door.here(workspace_id=f"{bench.door.context['workspace_id']}_other")}
    bench.put(SENTENCE, title=SENTENCE, how=there)
    bench.claim(SENTENCE, how=there)


GONE: list[Callable[[Workbench], None]] = [
    forgotten, withdrawn, revised_artifact, redelivered, retracted, superseded, revised_claim, expired, future,
    retracted_from_a_conflict, projected_and_forgotten, projected_and_revised, dropped_projection,
    anchored_and_forgotten,
]  # fmt: skip
OUT_OF_SCOPE: list[Callable[[Workbench], None]] = [of_another_task, of_another_project, of_another_workspace]


@pytest.mark.fault_class(14)
@pytest.mark.parametrize("hide", GONE, ids=lambda hide: hide.__name__)
def test_what_is_gone_leaves_no_trace_on_any_surface(
    door: Door, bench: Workbench, hide: Callable[[Workbench], None]
) -> None:
    hide(bench)
    check_nothing_shows(bench, min_commit_seq=door.last_commit_seq() if door.owns_store else 0)


@pytest.mark.fault_class(14)
@pytest.mark.parametrize("hide", GONE, ids=lambda hide: hide.__name__)
def test_a_wider_horizon_brings_nothing_back_that_is_gone(bench: Workbench, hide: Callable[[Workbench], None]) -> None:
    hide(bench)
    for question in QUESTIONS:
        for op, answer in everything(bench, question, horizon="workspace", **REASON).items():
            assert ids_in(answer) == set(), (op, question)
            assert (
                "quarterdeck" not in json.dumps(answer).replace(json.dumps(question)[1:-1], "") or "quarter" in question
            )


@pytest.mark.proves("retrieval-61")
@pytest.mark.fault_class(24)
@pytest.mark.parametrize("hide", OUT_OF_SCOPE, ids=lambda hide: hide.__name__)
def test_what_is_out_of_scope_leaves_no_trace_on_any_surface(
    door: Door, bench: Workbench, hide: Callable[[Workbench], None]
) -> None:
    hide(bench)
    check_nothing_shows(bench, how={"context": door.here(task_id="tsk_here")})


@pytest.mark.fault_class(41)
def test_a_claim_shows_until_its_last_instant_and_from_its_first(bench: Workbench, clock: ManualClock) -> None:
    claim = bench.claim(SENTENCE, valid_from="2026-03-02T21:41:07.250Z", valid_until="2026-03-02T22:41:07.250Z")
    check_nothing_shows(bench)
    clock.advance(hours=1)
    for op in ("search", "memory.recall", "memory.retrieve", "context.build"):
        assert claim["claim_id"] in ids_in(answered(bench, op, SENTENCE)), op
    clock.advance(minutes=59, seconds=59)
    assert presence(bench, SENTENCE) == "claims"
    clock.advance(seconds=1)
    check_nothing_shows(bench)


@pytest.mark.fault_class(14)
@pytest.mark.parametrize("end", ["retract", "supersede"])
def test_an_anchor_never_brings_a_claim_back(bench: Workbench, end: str) -> None:
    kept, gone = bench.claim("It is kept elsewhere."), bench.claim("It was kept elsewhere.")
    for claim in (kept, gone):
        anchor(bench, bench.put("other body", title="Other name"), claim)
    assert {kept["claim_id"], gone["claim_id"]} <= ids_in(everything(bench, "marlinspike"))
    if end == "retract":
        bench.retract(gone)
    else:
        bench.relate(kept, "supersedes", gone)
    for question in QUESTIONS:
        assert gone["claim_id"] not in ids_in(everything(bench, question)), question
    assert kept["claim_id"] in ids_in(everything(bench, "marlinspike"))


# --- evidence and conflicts of what is gone --------------------------------------------------------------------------


def cited(artifact: Json, **span: int) -> list[Json]:
    return [{"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]} | span]


def withdraw_evidence(bench: Workbench) -> Json:
    source = bench.source()
    delivered = bench.ingest(source, body=SENTENCE, title="untitled")
    artifact: Json = delivered["artifact"]
    bench.claim("The celadon glaze cracked.", evidence=cited(artifact, start_byte=0, end_byte=len(SENTENCE)))
    bench.claim("The celadon glaze held.", evidence=cited(artifact))
    bench.withdraw(source)
    return artifact


def forget_evidence(bench: Workbench) -> Json:
    artifact = bench.put(SENTENCE, title="untitled")
    bench.claim("The celadon glaze cracked.", evidence=cited(artifact, start_byte=0, end_byte=len(SENTENCE)))
    bench.claim("The celadon glaze held.", evidence=cited(artifact))
    bench.forget(artifact)
    return artifact


@pytest.mark.fault_class(14)
@pytest.mark.parametrize("hide", [forget_evidence, withdraw_evidence], ids=lambda hide: hide.__name__)
@pytest.mark.parametrize(
    "question", ["celadon glaze", "celadon kiln of the marlinspike", "celadon, ladder, anvil, hammer and tongs"]
)
def test_the_text_of_gone_evidence_shows_nowhere_while_its_locator_stays(
    bench: Workbench, hide: Callable[[Workbench], Json], question: str
) -> None:
    artifact = hide(bench)
    shown = everything(bench, question)
    for op, answer in shown.items():
        assert not re.search("quarterdeck|bollardkey|hangs", json.dumps(answer)), op
    if question == "celadon glaze":
        evidence = [item for claim in shown["memory.recall"]["claims"] for item in claim["evidence"]]
        assert {item["revision_id"] for item in evidence} == {artifact["revision_id"]}
        assert not any("excerpt" in item for item in evidence)
    exact = {"citation": f"memoree://artifact/{artifact['artifact_id']}@{artifact['revision_id']}#0-{len(SENTENCE)}"}
    assert bench.door.ok("citation.get", exact, context=None)["content"] == SENTENCE


def test_a_conflict_ends_on_every_surface_with_the_retraction_of_a_side(bench: Workbench) -> None:
    left, right = bench.claim("The celadon glaze cracked."), bench.claim("The celadon glaze held.")
    edge = bench.relate(left, "contradicts", right)
    open_case = {"left_id": left["claim_id"], "right_id": right["claim_id"], "relation_id": edge["relation_id"]}
    shown = everything(bench, "celadon glaze")
    for op in ("memory.recall", "memory.retrieve", "context.build"):
        assert shown[op]["conflicts"] == [open_case], op
    bench.retract(right)
    shown = everything(bench, "celadon glaze")
    assert not {right["claim_id"], edge["relation_id"]} & ids_in(shown)
    for op in ("memory.recall", "memory.retrieve", "context.build"):
        assert shown[op]["conflicts"] == [], op


@pytest.mark.fault_class(39)
def test_unrelated_claims_are_no_contradiction_on_any_surface(bench: Workbench) -> None:
    bench.claim("Alex works at A.")
    bench.claim("Sam works at B.")
    bench.claim("Alex works at C.")
    shown = everything(bench, "works")
    assert len(shown["memory.recall"]["claims"]) == 3
    assert {claim["status"] for claim in shown["memory.recall"]["claims"]} == {"current"}
    for op in ("memory.recall", "memory.retrieve", "context.build"):
        assert shown[op]["conflicts"] == [], op


@pytest.mark.fault_class(40)
def test_equal_statements_of_separate_periods_are_two_claims(bench: Workbench, clock: ManualClock) -> None:
    spring = bench.claim("Alex on Payments", valid_from="2026-01-01T00:00:00Z", valid_until="2026-04-01T00:00:00Z")
    summer = bench.claim("Alex on Payments", valid_from="2026-07-01T00:00:00Z", valid_until="2026-10-01T00:00:00Z")
    for months, expected in ((0, spring), (3, None), (3, summer), (4, None)):
        clock.advance(days=30 * months)
        found = [claim["claim_id"] for claim in recall(bench, "Alex Payments")["claims"]]
        assert found == ([expected["claim_id"]] if expected else []), clock.now


# --- scope and history -----------------------------------------------------------------------------------------------


@pytest.mark.proves("retrieval-60")
def test_a_broader_horizon_shows_more_and_needs_a_reason_everywhere(door: Door, bench: Workbench) -> None:
    here, there = bench.claim("A narwhal here."), {"context": door.here(project_id="prj_sibling")}
    sibling = bench.claim("A narwhal there.", how=there)
    assert statements(bench, "narwhal") == ["A narwhal here."]
    wide = recall(bench, "narwhal", horizon="workspace", **REASON)
    assert wide["searched_horizons"] == ["workspace"]
    assert {claim["claim_id"] for claim in wide["claims"]} == {here["claim_id"], sibling["claim_id"]}
    for op in available(bench):
        for reason in ({}, {"reason": ""}, {"reason": " \t"}):
            door.refused("INVALID_REQUEST", op, {"query": "narwhal", "horizon": "workspace"} | reason)


@pytest.mark.proves("retrieval-61")
def test_a_task_sees_its_own_and_the_shared_and_a_project_sees_all(door: Door, bench: Workbench) -> None:
    for task in ("tsk_a", "tsk_b", None):
        where = {"context": door.here(task_id=task)}
        bench.claim(f"A narwhal of {task}.", how=where)
        bench.put(f"A narwhal of {task}.", title="untitled", how=where)
    for task, seen in (("tsk_a", {"tsk_a", None}), ("tsk_c", {None}), (None, {"tsk_a", "tsk_b", None})):
        answer = recall(bench, "narwhal", how={"context": door.here(task_id=task)})
        expected = {f"A narwhal of {name}." for name in seen}
        assert {claim["statement"] for claim in answer["claims"]} == expected
        assert {ref["excerpt"] for ref in answer["artifact_refs"]} == expected


@pytest.mark.proves("retrieval-62")
def test_a_pin_adds_exactly_its_revision_to_every_surface(door: Door, bench: Workbench) -> None:
    there = {"context": door.here(workspace_id=f"{door.context['workspace_id']}_other")}
    old = bench.put("narwhal first", title="untitled", how=there)
    current = bench.revise(old, "narwhal second", how=there)
    other = bench.put("narwhal third", title="untitled", how=there)
    exact = {"context": door.here(pins=[f"{old['artifact_id']}@{old['revision_id']}"])}
    mixed = {"context": door.here(pins=[f"{other['artifact_id']}@{old['revision_id']}"])}
    bare = {"context": door.here(pins=[old["artifact_id"]])}
    for op in ("search", "memory.recall", "memory.retrieve", "context.build"):
        revisions = {
            name: {found for found in ids_in(answered(bench, op, "narwhal", how=how)) if found.startswith("arev_")}
            for name, how in (("exact", exact), ("mixed", mixed), ("bare", bare))
        }
        assert revisions == {"exact": {old["revision_id"]}, "mixed": set(), "bare": {current["revision_id"]}}, op


@pytest.mark.proves("retrieval-63")
def test_history_is_shown_by_search_and_says_where_each_claim_stands(bench: Workbench) -> None:
    bench.claim("narwhal now")
    bench.claim("narwhal later", valid_from="2099-01-01T00:00:00Z")
    bench.claim("narwhal then", valid_until="2026-01-01T00:00:00Z")
    assert [hit["excerpt"] for hit in bench.search("narwhal")["hits"]] == ["narwhal now"]
    hits = {hit["excerpt"]: hit for hit in bench.search("narwhal", include_historical=True)["hits"]}
    states = {text: hit["provenance"]["temporal_state"] for text, hit in hits.items()}
    assert states == {"narwhal now": "current", "narwhal later": "future", "narwhal then": "expired"}
    later = hits["narwhal later"]["ranking"]
    assert (later["recency_eligible"], later["recency_bonus"]) == (False, 0)
    for op in ("memory.recall", "memory.probe", "memory.retrieve"):
        bench.door.refused("INVALID_REQUEST", op, {"query": "narwhal", "include_historical": False})


@pytest.mark.proves("retrieval-66")
def test_a_state_that_does_not_exist_yet_is_refused_by_every_operation(door: Door, bench: Workbench) -> None:
    written = bench.claim("narwhal")["commit_seq"]
    ahead = door.last_commit_seq() + 1_000_000
    for op in available(bench):
        assert bench.door.ok(op, {"query": "narwhal", "min_commit_seq": written})
        error = door.refused("INDEX_NOT_READY", op, {"query": "narwhal", "min_commit_seq": ahead})
        assert error["retryable"] is True
        assert error["details"]["requested_commit_seq"] == ahead
        assert written <= error["details"]["current_commit_seq"] < ahead


@pytest.mark.fault_class(24, 28)
@pytest.mark.parametrize("seed", range(3))
def test_every_operation_answers_within_the_scope_of_its_caller(door: Door, bench: Workbench, seed: int) -> None:
    chance = random.Random(seed)
    words = ["celadon", "glaze", "kiln", "cone", "shelf"]
    places: list[Json] = [
        door.here(project_id=f"prj_{project}", task_id=task) for project in "ab" for task in ("tsk_1", "tsk_2", None)
    ]
    owner: dict[str, Json] = {}
    for _ in range(40):
        place = chance.choice(places)
        text, how = " ".join(chance.choices(words, k=3)), {"context": place}
        if chance.random() < 0.5:
            artifact = bench.put(text, title=chance.choice(words), how=how)
            owner |= {artifact["artifact_id"]: place, artifact["revision_id"]: place}
            if chance.random() < 0.5:
                bench.project(artifact, text=chance.choice(words), how=how)
        else:
            claim = bench.claim(text, how=how)
            owner |= {claim["claim_id"]: place, claim["revision_id"]: place}
    shown = set()
    for place in places:
        for query in (*words, "celadon glaze kiln", "seladon", '"glaze kiln"', "cone shelf ladder anvil hammer tongs"):
            for op, answer in everything(bench, query, how={"context": place}).items():
                found = ids_in(answer) & set(owner)
                shown |= found
                assert all(may_see(place, owner[entity]) for entity in found), (op, query, place)
    assert shown == set(owner), "some row was never in scope, which proves nothing"


def may_see(asker: Json, owner: Json) -> bool:
    tasks = {asker.get("task_id"), owner.get("task_id")} - {None}
    return bool(asker["project_id"] == owner["project_id"]) and len(tasks) <= 1


@pytest.mark.fault_class(36)
def test_scope_and_validity_filter_before_the_windows_are_cut(door: Door, bench: Workbench, clock: ManualClock) -> None:
    wanted = bench.claim("cone and glaze with many more words beside them", valid_until="2026-06-01T00:00:00Z")
    kept = bench.put("cone and glaze with many more words beside them", title="untitled")
    clock.advance(days=30)
    for number in range(100):
        bench.claim(f"cone glaze {number}", how={"context": door.here(project_id="prj_sibling")})
        bench.claim(f"cone glaze {number}", valid_from="2027-01-01T00:00:00Z")
        bench.put(f"cone glaze {number}", title="cone", how={"context": door.here(task_id="tsk_other")})
    answer = recall(
        bench, "cone glaze", max_claims=1, max_artifact_refs=1, how={"context": door.here(task_id="tsk_here")}
    )
    assert [claim["claim_id"] for claim in answer["claims"]] == [wanted["claim_id"]]
    assert [ref["artifact_id"] for ref in answer["artifact_refs"]] == [kept["artifact_id"]]
    assert (answer["claims_truncated"], answer["artifact_refs_truncated"]) == (False, False)


def check_latest(bench: Workbench, artifact: Json, word: str, former: str) -> None:
    hits = bench.search(word, limit=3, **PLAIN)["hits"]
    assert entity_ids({"hits": hits}) == [artifact["artifact_id"]]
    assert hits[0]["excerpt"].encode() == bench.bytes_at(hits[0])
    assert body_of(bench.get(artifact["artifact_id"])).decode() == hits[0]["excerpt"]
    assert recall(bench, word)["artifact_refs"][0]["revision_id"] == artifact["revision_id"]
    assert presence(bench, former) == "none"


def edit_search_and_read(bench: Workbench, rounds: int) -> None:
    """Random edits of a handful of artifacts, each searched for and read right after."""
    chance = random.Random(62)
    artifacts: list[tuple[Json, str]] = []
    for _ in range(rounds):
        word = "".join(chance.choices(string.ascii_lowercase, k=12))
        body = f"{'filler é ' * chance.randrange(40)}{word}{' 漢字' * chance.randrange(40)}"
        if len(artifacts) < 5 or chance.random() < 0.1:
            artifacts.append((bench.put(body, title="untitled"), word))
            continue
        at = chance.randrange(len(artifacts))
        artifact, former = artifacts[at]
        artifacts[at] = (bench.revise(artifact, body), word)
        check_latest(bench, artifacts[at][0], word, former)


@pytest.mark.fault_class(62)
def test_every_search_finds_and_every_read_returns_the_latest_edit(bench: Workbench) -> None:
    edit_search_and_read(bench, 60)


@pytest.mark.nightly
@pytest.mark.fault_class(62)
def test_a_thousand_edits_are_each_found_at_once(bench: Workbench) -> None:
    edit_search_and_read(bench, 1_000)

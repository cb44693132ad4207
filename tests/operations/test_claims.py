from __future__ import annotations

from typing import Any

import pytest

from memoree import limits
from memoree.errors import MemoreeError
from memoree.operations.execute import outcome_of

from .bench import LAB, Bench, dump

SAMPLE = "👩🏽‍💻 naïve 漢字\r\n"


def whole(artifact: dict[str, Any]) -> dict[str, Any]:
    return {"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}


def span(artifact: dict[str, Any], start: int, end: int) -> dict[str, Any]:
    return whole(artifact) | {"start_byte": start, "end_byte": end}


@pytest.mark.proves("machine-92", "machine-96")
def test_an_assertion_comes_back_as_it_was_made(bench: Bench) -> None:
    artifact = bench.put()
    context = LAB | {"task_id": "tsk_glaze", "pins": ["art_elsewhere"]}
    wanted = {
        "claim_type": "decision",
        "statement": "We fire at cone 6.",
        "confidence": 0.8,
        "evidence": [span(artifact, 0, 4), whole(artifact), span(artifact, 0, 4)],
        "valid_from": "2026-03-02t21:40:00.1234+01:00",
        "valid_until": "2036-03-02T20:40:00Z",
        "actor": "agent/kiln",
    }
    record = bench.write("claim.assert", wanted, context=context)
    assert record["claim_id"].startswith("clm_")
    assert record["revision_id"].startswith("crev_")
    assert record == wanted | {
        "claim_id": record["claim_id"],
        "revision_id": record["revision_id"],
        "revision_number": 1,
        "status": "active",
        "valid_from": "2026-03-02T20:40:00.123400Z",
        "context": LAB | {"task_id": "tsk_glaze", "pins": []},
        "created_at": "2026-03-02T20:41:07.250Z",
        "revision_created_at": "2026-03-02T20:41:07.250Z",
        "revision_commit_seq": 2,
        "commit_seq": 2,
        "created": True,
    }
    found = bench.read("claim.get", {"claim_id": record["claim_id"]}, context=None)
    assert found == {name: value for name, value in record.items() if name not in ("commit_seq", "created")}


@pytest.mark.proves("machine-95")
def test_every_span_inside_the_bytes_is_evidence_and_no_other(bench: Bench) -> None:
    body = SAMPLE.encode()
    artifact = bench.put(SAMPLE)
    inside = [(start, end) for end in range(1, len(body) + 1) for start in range(end)]
    calls = [
        bench.request(
            "claim.assert",
            {"claim_type": "fact", "statement": f"{start}-{end}", "evidence": [span(artifact, start, end)]},
        )
        for start, end in inside
    ]
    for attempt, (start, end) in zip(bench.commit(calls), inside, strict=True):
        claim_id = outcome_of(bench.db, attempt).result["claim_id"]
        assert bench.read("claim.get", {"claim_id": claim_id})["evidence"] == [span(artifact, start, end)]
    outside = [(0, 0), (len(body), len(body)), (3, 2), (0, len(body) + 1), (len(body), len(body) + 1), (0, 2**64 - 1)]
    for start, end in outside:
        with bench.refused_without_a_trace("INVALID_REQUEST"):
            bench.claim(evidence=[span(artifact, start, end)])


@pytest.mark.proves("machine-95")
@pytest.mark.parametrize("half", [{"start_byte": 0}, {"end_byte": 1}, {"start_byte": -1, "end_byte": 1}])
def test_half_a_span_or_a_negative_one_is_refused(bench: Bench, half: dict[str, int]) -> None:
    artifact = bench.put()
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        bench.claim(evidence=[whole(artifact) | half])


@pytest.mark.proves("machine-95")
def test_evidence_must_be_a_revision_of_the_artifact_it_names(bench: Bench) -> None:
    first, second = bench.put(), bench.put()
    for revision_id in ("arev_unknown", first["revision_id"] + "\0", second["revision_id"]):
        with bench.refused_without_a_trace("NOT_FOUND"):
            bench.claim(evidence=[whole(first), whole(first) | {"revision_id": revision_id}])


@pytest.mark.proves("machine-98")
def test_a_claim_may_cite_old_forgotten_and_foreign_revisions(bench: Bench) -> None:
    foreign = bench.write(
        "artifact.put",
        {"kind": "log", "title": "t", "content": {"type": "text", "data": "x"}},
        context={"workspace_id": "wsp_other", "project_id": "prj_other"},
    )
    old = bench.put()
    bench.revise(old)
    forgotten = bench.put()
    bench.write("artifact.forget", {"artifact_id": forgotten["artifact_id"], "reason": "draft"})
    evidence = [whole(foreign), whole(old), whole(forgotten)]
    assert bench.claim(evidence=evidence)["evidence"] == evidence


@pytest.mark.proves("machine-97")
def test_as_many_locators_as_allowed_cost_as_many_queries_as_one(bench: Bench) -> None:
    artifacts = [bench.put(f"body {n}") for n in range(4)]

    def selects(count: int) -> int:
        statements: list[str] = []

        def trace(_cursor: object, sql: str, _bindings: object) -> bool:
            statements.append(sql)
            return True

        bench.db.exec_trace = trace
        bench.claim(evidence=[span(artifacts[n % 4], 0, 1 + n % 6) for n in range(count)])
        bench.db.exec_trace = None
        return sum(sql.lstrip().startswith("SELECT") for sql in statements)

    assert selects(limits.EVIDENCE_ITEMS_MAX) == selects(1)
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        bench.claim(evidence=[whole(artifacts[0])] * (limits.EVIDENCE_ITEMS_MAX + 1))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"claim_type": "rumour"}, marks=pytest.mark.proves("machine-93")),
        pytest.param({"confidence": -0.1}, marks=pytest.mark.proves("machine-94")),
        pytest.param({"confidence": 1.1}, marks=pytest.mark.proves("machine-94")),
        {"confidence": True},
        {"statement": " \n"},
        {"statement": "é" * (limits.STATEMENT_BYTES_MAX // 2 + 1)},
        {"evidence": None},
        {"actor": " "},
        {"valid_from": "2026-03-02"},
        {"valid_from": "2026-03-02T20:40:00"},
        {"valid_from": "2026-02-30T20:40:00Z"},
        {"valid_from": "2026-03-02T20:40:60Z"},
        {"valid_from": "2026-03-02T20:40:00.٣Z"},
        {"valid_from": 0},
        pytest.param(
            {"valid_from": "2026-03-02T20:40:00Z", "valid_until": "2026-03-02T21:40:00+01:00"},
            marks=pytest.mark.proves("machine-99"),
        ),
    ],
)
def test_an_assertion_out_of_bounds_is_refused(bench: Bench, fields: dict[str, Any]) -> None:
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        bench.claim(**fields)


@pytest.mark.proves("machine-94")
@pytest.mark.parametrize("confidence", [0, 1, 0.1 + 0.2])
def test_confidence_is_kept_exactly(bench: Bench, confidence: float) -> None:
    record = bench.claim(confidence=confidence)
    assert bench.read("claim.get", {"claim_id": record["claim_id"]})["confidence"] == confidence


@pytest.mark.proves("machine-100", "machine-101", "machine-111")
def test_a_revision_replaces_statement_confidence_evidence_and_actor(bench: Bench) -> None:
    artifact = bench.put()
    first = bench.claim(confidence=0.8, evidence=[whole(artifact)], actor="a", valid_from="2026-03-02T20:40:00Z")
    second = bench.revise_claim(first)
    assert (second["revision_number"], second["evidence"]) == (2, [])
    assert not {"confidence", "actor"} & set(second)
    assert second["valid_from"] == first["valid_from"]
    old = bench.read("claim.get", {"claim_id": first["claim_id"], "revision_id": first["revision_id"]})
    assert (old["statement"], old["evidence"], old.get("actor")) == (first["statement"], [whole(artifact)], "a")
    with bench.refused_without_a_trace("REVISION_CONFLICT"):
        bench.revise_claim(first)


@pytest.mark.proves("machine-102")
def test_the_validity_of_a_claim_cannot_be_revised(bench: Bench) -> None:
    claim = bench.claim()
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        bench.revise_claim(claim, valid_until="2036-03-02T20:40:00Z")


def test_revising_tests_evidence_then_the_revision_then_the_status(bench: Bench) -> None:
    claim = bench.claim()
    bench.write("claim.retract", {"claim_id": claim["claim_id"], "reason": "faulty"})
    stale = claim | {"revision_id": "crev_stale"}
    missing = [{"artifact_id": "art_x", "revision_id": "arev_x"}]
    with bench.refused_without_a_trace("NOT_FOUND"):
        bench.revise_claim(stale, evidence=missing)
    with bench.refused_without_a_trace("REVISION_CONFLICT"):
        bench.revise_claim(stale)
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        bench.revise_claim(claim)


@pytest.mark.proves("machine-103")
def test_a_superseded_claim_can_be_retracted_but_not_revised(bench: Bench) -> None:
    claim = bench.claim()
    bench.db.execute("UPDATE claims SET status = 'superseded', sys_to = 99")
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        bench.revise_claim(claim)
    retracted = bench.write("claim.retract", {"claim_id": claim["claim_id"], "reason": "faulty"})
    assert retracted["status"] == "retracted"
    assert list(bench.db.execute("SELECT sys_to FROM claims")) == [(99,)]


def test_a_conflicted_claim_stays_conflicted_when_it_is_revised(bench: Bench) -> None:
    claim = bench.claim()
    bench.db.execute("UPDATE claims SET status = 'conflicted'")
    assert bench.revise_claim(claim)["status"] == "conflicted"


@pytest.mark.proves("machine-104", "machine-108")
def test_a_retraction_shows_on_every_revision_and_changes_none(bench: Bench) -> None:
    artifact = bench.put()
    first = bench.claim(confidence=0.8, actor="a", evidence=[whole(artifact)])
    second = bench.revise_claim(first, confidence=0.5)
    retracted = bench.write("claim.retract", {"claim_id": first["claim_id"], "reason": "faulty"})
    assert (retracted["status"], retracted.get("retraction_reason")) == ("retracted", "faulty")
    assert (retracted["revision_number"], retracted["revision_commit_seq"], retracted["commit_seq"]) == (2, 3, 4)
    lifecycle = {"status": "retracted", "retraction_reason": "faulty"}
    page = bench.read("claim.history", {"claim_id": first["claim_id"]}, context=None)
    bare = [
        {name: value for name, value in record.items() if name not in ("commit_seq", "created")}
        for record in (second, first)
    ]
    assert page == {"revisions": [record | lifecycle for record in bare], "truncated": False}


@pytest.mark.proves("machine-105")
def test_retracting_twice_is_refused(bench: Bench) -> None:
    claim = bench.claim()
    bench.write("claim.retract", {"claim_id": claim["claim_id"], "reason": "faulty"})
    with bench.refused_without_a_trace("INVALID_REQUEST"):
        bench.write("claim.retract", {"claim_id": claim["claim_id"], "reason": "faulty"})


@pytest.mark.proves("machine-106")
def test_a_sibling_project_can_neither_revise_nor_retract(bench: Bench) -> None:
    claim = bench.claim()
    sibling = LAB | {"project_id": "prj_glaze"}
    with bench.refused_without_a_trace("SCOPE_VIOLATION"):
        bench.write("claim.retract", {"claim_id": claim["claim_id"], "reason": "r"}, context=sibling)
    change = {"claim_id": claim["claim_id"], "if_revision": claim["revision_id"], "statement": "s"}
    with bench.refused_without_a_trace("SCOPE_VIOLATION"):
        bench.write("claim.revise", change, context=sibling)


@pytest.mark.proves("machine-107")
def test_history_pages_from_the_newest_to_the_oldest(bench: Bench) -> None:
    claim = bench.claim()
    bench.revise_claim(bench.revise_claim(claim))
    wanted = {"claim_id": claim["claim_id"], "limit": 2}
    page = bench.read("claim.history", wanted)
    assert [revision["revision_number"] for revision in page["revisions"]] == [3, 2]
    assert (page["truncated"], page.get("next_before_revision_number")) == (True, 2)
    rest = bench.read("claim.history", wanted | {"before_revision_number": 2})
    assert [revision["revision_number"] for revision in rest["revisions"]] == [1]
    for cursor in (1, 0, -5):
        empty = bench.read("claim.history", wanted | {"before_revision_number": cursor})
        assert empty == {"revisions": [], "truncated": False}


@pytest.mark.proves("machine-110")
@pytest.mark.parametrize("cursor", [{}, {"before_revision_number": 0}])
def test_the_history_of_an_unknown_claim_is_not_found(bench: Bench, cursor: dict[str, int]) -> None:
    with pytest.raises(MemoreeError) as refusal:
        bench.read("claim.history", {"claim_id": "clm_unknown"} | cursor)
    assert refusal.value.code == "NOT_FOUND"


@pytest.mark.proves("machine-53")
def test_replays_answer_the_first_outcome_after_the_claim_moved_on(bench: Bench) -> None:
    first = bench.claim()
    change = {"claim_id": first["claim_id"], "if_revision": first["revision_id"], "statement": "second"}
    calls = [
        bench.request("claim.revise", change),
        bench.request("claim.retract", {"claim_id": first["claim_id"], "reason": "faulty"}),
    ]
    outcomes = [outcome_of(bench.db, attempt).result for attempt in bench.commit(calls)]
    before = dump(bench.db)
    repeats = [outcome_of(bench.db, attempt).result for attempt in bench.commit(calls)]
    assert repeats == [outcome | {"created": False} for outcome in outcomes]
    assert dump(bench.db) == before


@pytest.mark.fault_class(35)
def test_a_nul_is_text_like_any_other(bench: Bench) -> None:
    context = {"workspace_id": "w\0", "project_id": "p\0", "task_id": "\0"}
    wanted = {"claim_type": "fact", "statement": "\0a\0b", "actor": "\0"}
    record = bench.write("claim.assert", wanted, context=context)
    retracted = bench.write("claim.retract", {"claim_id": record["claim_id"], "reason": "\0"}, context=context)
    assert (retracted["statement"], retracted["actor"], retracted["retraction_reason"]) == ("\0a\0b", "\0", "\0")
    assert retracted["context"] == context | {"pins": []}

"""Claims: assert, get, revise, history, retract (machine protocol §4.11–4.15, §6.1)."""

from __future__ import annotations

from typing import Any

import pytest

from .door import Door, Json, ManualClock
from .protocol import KIB
from .workbench import Workbench

RECORD = {
    "claim_id", "revision_id", "revision_number", "claim_type", "status", "statement", "evidence", "context",
    "created_at", "revision_created_at", "revision_commit_seq",
}  # fmt: skip
ACKNOWLEDGEMENT = RECORD | {"commit_seq", "created"}
TYPES = ["fact", "decision", "constraint", "preference", "procedure", "observation"]
BODY = "żółw i cone 6"
CLAIM: Json = {"claim_type": "fact", "statement": "s"}


@pytest.fixture
def cited(bench: Workbench) -> Json:
    artifact = bench.put(BODY)
    return {"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}


@pytest.mark.proves("machine-92")
def test_an_asserted_claim_is_active_and_read_back_as_it_was(door: Door, bench: Workbench, cited: Json) -> None:
    claim: Json = {
        "claim_type": "observation",
        "statement": "  Firing 12 reached cone 6. \n",
        "confidence": 0.8,
        "evidence": [cited | {"start_byte": 0, "end_byte": 4}, cited],
        "valid_from": "2026-03-02T20:40:00Z",
        "valid_until": "2036-03-02T20:40:00Z",
        "actor": "agent/kiln",
    }
    made = door.ok("claim.assert", claim)
    assert made["claim_id"].startswith("clm_") and len(made["claim_id"]) == 30
    assert made["revision_id"].startswith("crev_") and len(made["revision_id"]) == 31
    assert (made["status"], made["revision_number"]) == ("active", 1)
    assert made["revision_commit_seq"] == made["commit_seq"]
    record = door.ok("claim.get", {"claim_id": made["claim_id"]}, context=None)
    assert record == {name: value for name, value in made.items() if name not in ("commit_seq", "created")}
    assert {name: record[name] for name in claim} == claim
    assert record["context"] == door.context | {"pins": []}


@pytest.mark.proves("machine-92")
def test_members_without_a_value_are_left_out(door: Door, bench: Workbench) -> None:
    made = bench.claim()
    assert set(made) == ACKNOWLEDGEMENT
    assert made["evidence"] == []
    assert set(door.ok("claim.get", {"claim_id": made["claim_id"]})) == RECORD
    nulls = CLAIM | {"confidence": None, "valid_from": None, "valid_until": None, "actor": None}
    assert set(door.ok("claim.assert", nulls)) == ACKNOWLEDGEMENT


@pytest.mark.proves("machine-93")
@pytest.mark.parametrize("claim_type", ["Fact", "opinion", "", None, 1, ["fact"], {"$ne": ""}])
def test_an_unknown_claim_type_is_refused(door: Door, claim_type: Any) -> None:
    door.refused("INVALID_REQUEST", "claim.assert", {"claim_type": claim_type, "statement": "s"})


@pytest.mark.parametrize("claim_type", TYPES)
def test_every_claim_type_is_kept(bench: Workbench, claim_type: str) -> None:
    assert bench.claim(claim_type=claim_type)["claim_type"] == claim_type


@pytest.mark.proves("machine-94")
@pytest.mark.parametrize("confidence", [-0.1, 1.1, -1e-9, 1.0000001, 2, -1, "0.5", True, [0.5], 1e308])
def test_a_confidence_outside_0_to_1_is_refused(door: Door, bench: Workbench, confidence: Any) -> None:
    claim = bench.claim()
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "claim.assert", CLAIM | {"confidence": confidence})
        change = {"claim_id": claim["claim_id"], "if_revision": claim["revision_id"], "statement": "s"}
        door.refused("INVALID_REQUEST", "claim.revise", change | {"confidence": confidence})


@pytest.mark.proves("machine-94")
@pytest.mark.parametrize("confidence", [0, 1, 0.0, 1.0, 0.1, 5e-324, 0.30000000000000004])
def test_a_confidence_from_0_to_1_is_kept_exactly(bench: Workbench, confidence: float) -> None:
    assert bench.claim(confidence=confidence)["confidence"] == confidence


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_confidence_that_is_no_finite_number_is_refused(door: Door, literal: str) -> None:
    body = (
        '{"request_id":"r","op":"claim.assert","idempotency_key":"k","context":{"workspace_id":"w","project_id":"p"},'
        f'"input":{{"claim_type":"fact","statement":"s","confidence":{literal}}}}}'
    )
    assert door.send(body.encode())["error"]["code"] == "INVALID_REQUEST"


@pytest.mark.proves("machine-95")
@pytest.mark.parametrize("op", ["claim.assert", "claim.revise"])
@pytest.mark.parametrize(
    ("code", "locator"),
    [
        ("NOT_FOUND", {"revision_id": "arev_unknown"}),
        ("NOT_FOUND", {"artifact_id": "art_unknown"}),
        ("INVALID_REQUEST", {"start_byte": 0}),
        ("INVALID_REQUEST", {"end_byte": 4}),
        ("INVALID_REQUEST", {"start_byte": 0, "end_byte": None}),
        ("INVALID_REQUEST", {"start_byte": 2, "end_byte": 2}),
        ("INVALID_REQUEST", {"start_byte": 3, "end_byte": 2}),
        ("INVALID_REQUEST", {"start_byte": 0, "end_byte": len(BODY.encode()) + 1}),
        ("INVALID_REQUEST", {"start_byte": 0, "end_byte": 2**63}),
        ("INVALID_REQUEST", {"start_byte": -1, "end_byte": 4}),
        ("INVALID_REQUEST", {"start_byte": 0.0, "end_byte": 4}),
        ("INVALID_REQUEST", {"start_byte": "0", "end_byte": "4"}),
        ("INVALID_REQUEST", {"start_byte": False, "end_byte": True}),
        ("INVALID_REQUEST", {"artifact_id": ""}),
        ("INVALID_REQUEST", {"revision_id": "r" * 257}),
    ],
    ids=str,
)
def test_evidence_that_names_no_bytes_is_refused(
    door: Door, specimen_inputs: dict[str, Any], cited: Json, op: str, code: str, locator: Json
) -> None:
    with door.nothing_written():
        door.refused(code, op, specimen_inputs[op] | {"evidence": [cited, cited | locator]})


@pytest.mark.proves("machine-95")
def test_evidence_with_a_revision_of_another_artifact_is_not_found(door: Door, bench: Workbench, cited: Json) -> None:
    other = bench.put()
    mixed = cited | {"revision_id": other["revision_id"]}
    door.refused("NOT_FOUND", "claim.assert", CLAIM | {"evidence": [mixed]})


@pytest.mark.proves("machine-95", "machine-96")
@pytest.mark.parametrize(
    "span",
    [
        {},
        {"start_byte": 0, "end_byte": len(BODY.encode())},
        {"start_byte": 1, "end_byte": 2},
        {"start_byte": None, "end_byte": None},
    ],
    ids=str,
)
def test_evidence_up_to_the_end_or_of_the_whole_revision_is_accepted(bench: Workbench, cited: Json, span: Json) -> None:
    kept = cited | {name: value for name, value in span.items() if value is not None}
    assert bench.claim(evidence=[cited | span])["evidence"] == [kept]


def test_a_span_of_an_empty_revision_names_no_bytes(door: Door, bench: Workbench) -> None:
    empty = bench.put("")
    whole = {"artifact_id": empty["artifact_id"], "revision_id": empty["revision_id"]}
    assert bench.claim(evidence=[whole])["evidence"] == [whole]
    door.refused("INVALID_REQUEST", "claim.assert", CLAIM | {"evidence": [whole | {"start_byte": 0, "end_byte": 1}]})


@pytest.mark.proves("machine-97")
def test_a_claim_holds_at_most_128_locators(door: Door, bench: Workbench, cited: Json) -> None:
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "claim.assert", CLAIM | {"evidence": [cited] * 129})
    locators = [cited | {"start_byte": 0, "end_byte": 1 + number % 10} for number in range(128)]
    claim = bench.claim(evidence=locators)
    assert claim["evidence"] == locators
    change = {"claim_id": claim["claim_id"], "if_revision": claim["revision_id"], "statement": "s"}
    door.refused("INVALID_REQUEST", "claim.revise", change | {"evidence": [cited] * 129})


@pytest.mark.proves("machine-98")
def test_evidence_may_stand_in_another_project_and_be_forgotten(door: Door, bench: Workbench) -> None:
    there = {"context": door.here(workspace_id="wsp_elsewhere")}
    foreign = bench.put("foreign", how=there)
    cited = {"artifact_id": foreign["artifact_id"], "revision_id": foreign["revision_id"]}
    assert bench.claim(evidence=[cited])["evidence"] == [cited]
    bench.forget(foreign, how=there)
    assert bench.claim(evidence=[cited])["evidence"] == [cited]


@pytest.mark.proves("machine-99")
@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.000000001Z", "2026-01-01T00:00:00.000000001Z"),
        ("2026-01-01T00:00:00-01:00", "2026-01-01T00:30:00Z"),
    ],
)
def test_a_window_must_end_after_it_begins(door: Door, start: str, end: str) -> None:
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "claim.assert", CLAIM | {"valid_from": start, "valid_until": end})


@pytest.mark.parametrize(
    "window",
    [
        {"valid_from": "2026-01-01T00:00:00Z", "valid_until": "2026-01-01T00:00:00.000000001Z"},
        {"valid_until": "2001-01-01T00:00:00Z"},
        {"valid_from": "2999-01-01T00:00:00Z"},
    ],
    ids=str,
)
def test_any_other_window_is_accepted_also_in_the_past_or_future(bench: Workbench, window: Json) -> None:
    claim = bench.claim(**window)
    assert claim["status"] == "active"
    assert {name: claim[name] for name in window} == window


@pytest.mark.parametrize("op", ["claim.assert", "claim.revise"])
@pytest.mark.parametrize("unit", ["x", "é", "👩"])
def test_a_statement_is_at_most_128_kib(door: Door, specimen_inputs: dict[str, Any], op: str, unit: str) -> None:
    longest = unit * (128 * KIB // len(unit.encode()))
    with door.nothing_written():
        door.refused("INVALID_REQUEST", op, specimen_inputs[op] | {"statement": longest + "x"})
    assert door.ok(op, specimen_inputs[op] | {"statement": longest})["statement"] == longest


@pytest.mark.parametrize("op", ["claim.assert", "claim.revise"])
@pytest.mark.parametrize("statement", ["", " ", "\u2003\n", None, 7, ["s"]], ids=ascii)
def test_a_blank_statement_is_refused(door: Door, specimen_inputs: dict[str, Any], op: str, statement: Any) -> None:
    with door.nothing_written():
        door.refused("INVALID_REQUEST", op, specimen_inputs[op] | {"statement": statement})


@pytest.mark.proves("machine-100", "machine-111")
def test_a_revision_never_changes_what_came_before(door: Door, bench: Workbench, cited: Json) -> None:
    first = bench.claim("Old statement.", confidence=0.5, evidence=[cited], actor="one")
    second = bench.revise_claim(first, "New statement.", confidence=0.9, actor="two")
    assert second["revision_number"] == 2
    assert second["claim_id"] == first["claim_id"]
    assert second["created_at"] == first["created_at"]
    assert second["revision_commit_seq"] == second["commit_seq"] == first["commit_seq"] + 1
    wanted = {"claim_id": first["claim_id"]}
    old = door.ok("claim.get", wanted | {"revision_id": first["revision_id"]}, context=None)
    assert old == {name: value for name, value in first.items() if name not in ("commit_seq", "created")}
    assert door.ok("claim.get", wanted, context=None)["statement"] == "New statement."


@pytest.mark.proves("machine-100")
def test_a_stale_revision_is_a_conflict_that_names_the_head(door: Door, bench: Workbench) -> None:
    first = bench.claim()
    head = bench.revise_claim(first)
    change = {"claim_id": first["claim_id"], "if_revision": first["revision_id"], "statement": "s"}
    with door.nothing_written():
        error = door.refused("REVISION_CONFLICT", "claim.revise", change)
    assert error["details"] == {
        "entity_type": "claim",
        "entity_id": first["claim_id"],
        "current_revision": head["revision_id"],
        "requested_revision": first["revision_id"],
    }


@pytest.mark.proves("machine-101")
def test_a_revision_replaces_evidence_confidence_and_actor(bench: Workbench, cited: Json) -> None:
    first = bench.claim(evidence=[cited], confidence=0.5, actor="one")
    second = bench.revise_claim(first)
    assert second["evidence"] == []
    assert {"confidence", "actor"}.isdisjoint(second)
    assert bench.revise_claim(second, evidence=[cited])["evidence"] == [cited]


@pytest.mark.proves("machine-102")
@pytest.mark.parametrize(
    "fixed",
    [{"valid_until": "2030-01-01T00:00:00Z"}, {"valid_from": "2030-01-01T00:00:00Z"}, {"claim_type": "fact"}],
    ids=str,
)
def test_type_and_window_are_fixed_at_assertion(door: Door, bench: Workbench, fixed: Json) -> None:
    claim = bench.claim(valid_from="2026-01-01T00:00:00Z", valid_until="2027-01-01T00:00:00Z")
    change = {"claim_id": claim["claim_id"], "if_revision": claim["revision_id"], "statement": "s"}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "claim.revise", change | fixed)
    revised = door.ok("claim.revise", change)
    assert {name: revised[name] for name in ("claim_type", "valid_from", "valid_until")} == {
        name: claim[name] for name in ("claim_type", "valid_from", "valid_until")
    }


@pytest.mark.proves("machine-103")
def test_a_retracted_claim_is_not_revised(door: Door, bench: Workbench) -> None:
    claim = bench.claim()
    bench.retract(claim)
    change = {"claim_id": claim["claim_id"], "if_revision": claim["revision_id"], "statement": "s"}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "claim.revise", change)


@pytest.mark.proves("machine-104")
def test_retracting_keeps_the_history_and_records_the_reason(door: Door, bench: Workbench) -> None:
    claim = bench.revise_claim(bench.claim())
    gone = bench.retract(claim, "the thermocouple was faulty")
    assert set(gone) == ACKNOWLEDGEMENT | {"retraction_reason"}
    assert gone["status"] == "retracted"
    assert gone["retraction_reason"] == "the thermocouple was faulty"
    assert gone["revision_id"] == claim["revision_id"]
    assert gone["revision_commit_seq"] == claim["commit_seq"]
    assert gone["commit_seq"] == claim["commit_seq"] + 1
    revisions = door.ok("claim.history", {"claim_id": claim["claim_id"]})["revisions"]
    assert [revision["revision_number"] for revision in revisions] == [2, 1]
    assert bench.found("cone") == []


@pytest.mark.proves("machine-105")
@pytest.mark.parametrize("reason", [None, "", "  ", 7, "é" * 32_768 + "r"], ids=lambda reason: repr(reason)[:8])
def test_retracting_needs_a_reason(door: Door, bench: Workbench, reason: Any) -> None:
    claim_id = bench.claim()["claim_id"]
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "claim.retract", {"claim_id": claim_id, "reason": reason})
        door.refused("INVALID_REQUEST", "claim.retract", {"claim_id": claim_id})
    assert door.ok("claim.retract", {"claim_id": claim_id, "reason": "é" * 32_768})["status"] == "retracted"


@pytest.mark.proves("machine-105")
def test_retracting_twice_is_refused(door: Door, bench: Workbench) -> None:
    claim = bench.claim()
    bench.retract(claim)
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "claim.retract", {"claim_id": claim["claim_id"], "reason": "again"})


@pytest.mark.proves("machine-106")
def test_only_the_owning_context_retracts(door: Door, bench: Workbench) -> None:
    claim = bench.claim()
    wanted = {"claim_id": claim["claim_id"], "reason": "not mine"}
    with door.nothing_written():
        door.refused("NO_AMBIENT_CONTEXT", "claim.retract", wanted, context=None)
        door.refused("SCOPE_VIOLATION", "claim.retract", wanted, context=door.here(project_id="prj_sibling"))
    assert door.ok("claim.get", {"claim_id": claim["claim_id"]})["status"] == "active"


@pytest.mark.fault_class(17)
def test_a_claim_that_resembles_a_retracted_one_is_untouched(door: Door, bench: Workbench) -> None:
    one = bench.claim("Firing 12 reached cone 6 at 21:40.")
    two = bench.claim("Firing 12 reached cone 6 at 21:41.")
    bench.retract(one)
    assert door.ok("claim.get", {"claim_id": two["claim_id"]})["status"] == "active"
    assert bench.found("firing cone") == [two["claim_id"]]


@pytest.mark.fault_class(8)
def test_equal_statements_under_two_keys_are_two_claims(bench: Workbench) -> None:
    assert bench.claim("Twice.")["claim_id"] != bench.claim("Twice.")["claim_id"]


@pytest.mark.fault_class(39)
def test_unrelated_statements_do_not_contradict_each_other(door: Door, bench: Workbench) -> None:
    claims = [
        bench.claim("Alex works at A."),
        bench.claim("Sam works at B."),
        bench.claim("Alex works at B."),
    ]
    for claim in claims:
        assert door.ok("claim.get", {"claim_id": claim["claim_id"]})["status"] == "active"
    assert set(bench.found("works")) == {claim["claim_id"] for claim in claims}


@pytest.mark.proves("machine-107")
def test_history_pages_from_the_newest_to_the_oldest(door: Door, bench: Workbench) -> None:
    head = bench.claim()
    for _ in range(2):
        head = bench.revise_claim(head)
    wanted = {"claim_id": head["claim_id"], "limit": 2}
    page = door.ok("claim.history", wanted)
    assert [revision["revision_number"] for revision in page["revisions"]] == [3, 2]
    assert (page["truncated"], page.get("next_before_revision_number")) == (True, 2)
    rest = door.ok("claim.history", wanted | {"before_revision_number": 2})
    assert [revision["revision_number"] for revision in rest["revisions"]] == [1]
    assert rest["truncated"] is False
    assert "next_before_revision_number" not in rest
    exact = door.ok("claim.history", wanted | {"limit": 3})
    assert len(exact["revisions"]) == 3 and exact["truncated"] is False


@pytest.mark.proves("machine-107")
@pytest.mark.parametrize("cursor", [1, 0, -1, -(2**63)])
def test_a_history_cursor_at_or_below_one_gives_an_empty_last_page(door: Door, bench: Workbench, cursor: int) -> None:
    wanted = {"claim_id": bench.claim()["claim_id"], "before_revision_number": cursor}
    assert door.ok("claim.history", wanted) == {"revisions": [], "truncated": False}


@pytest.mark.parametrize("cursor", [1.5, "2", True, [2], 2**63, 10**30], ids=repr)
@pytest.mark.parametrize("kind", ["claim", "artifact"])
def test_a_history_cursor_is_a_64_bit_integer(door: Door, bench: Workbench, kind: str, cursor: Any) -> None:
    entity = bench.claim() if kind == "claim" else bench.put()
    wanted = {f"{kind}_id": entity[f"{kind}_id"], "before_revision_number": cursor}
    door.refused("INVALID_REQUEST", f"{kind}.history", wanted)


@pytest.mark.parametrize("limit", [0, 101])
def test_a_history_page_holds_1_to_100_revisions(door: Door, bench: Workbench, limit: int) -> None:
    wanted = {"claim_id": bench.claim()["claim_id"]}
    door.refused("INVALID_REQUEST", "claim.history", wanted | {"limit": limit})
    door.ok("claim.history", wanted | {"limit": 1})
    door.ok("claim.history", wanted | {"limit": 100})


@pytest.mark.proves("machine-108", "machine-111")
def test_after_a_retraction_every_revision_shows_it_and_keeps_its_own_words(
    door: Door, bench: Workbench, clock: ManualClock
) -> None:
    first = bench.claim("First.", confidence=0.1, actor="one", valid_from="2026-01-01T00:00:00Z")
    clock.advance(minutes=1)
    second = bench.revise_claim(first, "Second.", confidence=0.2, actor="two")
    bench.retract(second, "faulty")
    revisions = door.ok("claim.history", {"claim_id": first["claim_id"]})["revisions"]
    for revision, made in zip(revisions, (second, first), strict=True):
        assert revision["status"] == "retracted"
        assert revision["retraction_reason"] == "faulty"
        assert revision["valid_from"] == "2026-01-01T00:00:00Z"
        for name in (
            "statement",
            "confidence",
            "actor",
            "revision_commit_seq",
            "revision_created_at",
            "revision_id",
        ):
            assert revision[name] == made[name], name
    old = {"claim_id": first["claim_id"], "revision_id": first["revision_id"]}
    assert door.ok("claim.get", old) == revisions[1]


@pytest.mark.proves("machine-109")
def test_a_foreign_claim_is_readable_from_any_context_and_none(door: Door, bench: Workbench) -> None:
    claim = bench.claim(how={"context": door.here(project_id="prj_sibling")})
    for context in (None, door.context, door.here(workspace_id="wsp_elsewhere", task_id="tsk_1")):
        page = door.ok("claim.history", {"claim_id": claim["claim_id"]}, context=context)
        assert page["revisions"][0]["statement"] == claim["statement"]
        assert door.ok("claim.get", {"claim_id": claim["claim_id"]}, context=context)["status"] == "active"


@pytest.mark.proves("machine-110")
def test_an_unknown_claim_is_not_found_with_or_without_a_cursor(door: Door, bench: Workbench) -> None:
    unknown = {"claim_id": "clm_unknown"}
    door.refused("NOT_FOUND", "claim.get", unknown)
    door.refused("NOT_FOUND", "claim.history", unknown)
    for cursor in (-1, 0, 1, 2):
        door.refused("NOT_FOUND", "claim.history", unknown | {"before_revision_number": cursor})
    one, two = bench.claim(), bench.claim()
    mixed = {"claim_id": one["claim_id"], "revision_id": two["revision_id"]}
    door.refused("NOT_FOUND", "claim.get", mixed)

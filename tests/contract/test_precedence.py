"""Which error is reported when a request has several faults (machine protocol §1.3 and the orders of §4)."""

from __future__ import annotations

from typing import Any

import pytest

from .door import Door, Json
from .protocol import MIB, MUTATIONS, NEEDS_CONTEXT, OPERATIONS
from .workbench import Workbench, raw, text

ENVELOPE_FAULTS: dict[str, Json] = {
    "an unknown envelope member": {"surplus": 1},
    "another version": {"v": 2},
    "an empty request id": {"request_id": ""},
    "no key": {"key": None},
    "an unknown input member": {"input": {"surplus": 1}},
    "no context": {"context": None},
}
"""In the order of §1.3. Each is laid over a valid request."""

WINS = [
    ("UNSUPPORTED_VERSION", ["another version", "an empty request id"]),
    ("UNSUPPORTED_VERSION", ["another version", "an unknown input member"]),
    ("UNSUPPORTED_VERSION", ["another version", "an empty request id", "an unknown input member"]),
    ("INVALID_REQUEST", ["an unknown envelope member", "another version"]),
    ("INVALID_REQUEST", ["an empty request id", "an unknown input member"]),
]
WINS_WITH_CONTEXT = [
    ("UNSUPPORTED_VERSION", ["another version", "no context"]),
    ("UNSUPPORTED_VERSION", ["another version", "an unknown input member", "no context"]),
    ("INVALID_REQUEST", ["an empty request id", "no context"]),
    ("INVALID_REQUEST", ["an unknown envelope member", "no context"]),
]
WINS_FOR_MUTATIONS = [
    ("UNSUPPORTED_VERSION", ["another version", "no key"]),
    ("UNSUPPORTED_VERSION", ["another version", "no key", "no context"]),
    ("INVALID_REQUEST", ["no key", "no context"]),
    ("INVALID_REQUEST", ["no key", "an unknown input member", "no context"]),
    ("NO_AMBIENT_CONTEXT", ["an unknown input member", "no context"]),
]


def send_with_faults(door: Door, code: str, op: str, valid: Any, faults: list[str]) -> None:
    how: Json = {"input": valid}
    for fault in faults:
        how |= ENVELOPE_FAULTS[fault]
    with door.nothing_written():
        door.refused(code, op, **how)


@pytest.mark.proves("machine-3")
@pytest.mark.parametrize(
    ("code", "faults"), WINS, ids=lambda value: "+".join(value) if isinstance(value, list) else value
)
@pytest.mark.parametrize("op", OPERATIONS)
def test_the_earliest_fault_wins(
    door: Door, specimen_inputs: dict[str, Any], op: str, code: str, faults: list[str]
) -> None:
    send_with_faults(door, code, op, specimen_inputs[op], faults)


@pytest.mark.parametrize(
    ("code", "faults"),
    WINS_WITH_CONTEXT,
    ids=lambda value: "+".join(value) if isinstance(value, list) else value,
)
@pytest.mark.parametrize("op", NEEDS_CONTEXT)
def test_the_earliest_fault_wins_over_a_missing_context(
    door: Door, specimen_inputs: dict[str, Any], op: str, code: str, faults: list[str]
) -> None:
    send_with_faults(door, code, op, specimen_inputs[op], faults)


@pytest.mark.proves("machine-15", "machine-16")
@pytest.mark.parametrize(
    ("code", "faults"),
    WINS_FOR_MUTATIONS,
    ids=lambda value: "+".join(value) if isinstance(value, list) else value,
)
@pytest.mark.parametrize("op", MUTATIONS)
def test_a_mutation_reports_key_then_context_then_input(
    door: Door, specimen_inputs: dict[str, Any], op: str, code: str, faults: list[str]
) -> None:
    send_with_faults(door, code, op, specimen_inputs[op], faults)


@pytest.mark.proves("machine-16")
@pytest.mark.parametrize(
    "malformed",
    [{"query": "cone", "surplus": 1}, {}, {"query": 7}, {"query": "cone", "recency": {"on": True}}],
)
def test_search_reports_malformed_input_before_a_missing_context(door: Door, malformed: Json) -> None:
    door.refused("INVALID_REQUEST", "search", malformed, context=None)


@pytest.mark.proves("machine-16")
def test_search_reports_a_missing_context_before_a_missing_reason(door: Door) -> None:
    broad = {"query": "cone", "horizon": "workspace"}
    door.refused("NO_AMBIENT_CONTEXT", "search", broad, context=None)
    door.refused("INVALID_REQUEST", "search", broad)


@pytest.mark.parametrize(
    "fault",
    [
        {"query": ""},
        {"limit": 0},
        {"horizon": "personal"},
        {"horizon": "personal", "reason": " "},
        {"reason": "r" * 65_537},
    ],
    ids=str,
)
def test_search_judges_its_input_before_the_visible_commit(door: Door, fault: Json) -> None:
    ahead = {"query": "cone", "min_commit_seq": door.last_commit_seq() + 1_000_000}
    door.refused("INDEX_NOT_READY", "search", ahead)
    door.refused("INVALID_REQUEST", "search", ahead | fault)


BIG = raw(b"\0" * (8 * MIB + 1))
USED_KEY = "already/used"


@pytest.fixture
def used_key(bench: Workbench) -> str:
    """A key that another request has used in the default namespace and in the sibling project."""
    bench.put(how={"key": USED_KEY})
    bench.put(how={"key": USED_KEY, "context": sibling(bench.door)})
    return USED_KEY


def sibling(door: Door) -> Json:
    return door.here(project_id="prj_sibling")


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("INVALID_REQUEST", {"title": " "}),
        ("INVALID_REQUEST", {"media_type": "text"}),
        ("INVALID_REQUEST", {"content": {"type": "base64", "data": "!"}}),
        ("CONTENT_TOO_LARGE", {"content": BIG}),
        ("INVALID_REQUEST", {"content": BIG, "title": " "}),
        ("INVALID_REQUEST", {"content": BIG, "actor": " "}),
        ("INVALID_REQUEST", {"content": BIG, "provenance": {"p": "x" * 65_536}}),
    ],
    ids=["title", "media type", "base64", "size", "size+title", "size+actor", "size+provenance"],
)
def test_put_judges_fields_then_content_then_the_key(door: Door, used_key: str, code: str, fault: Json) -> None:
    put = {"kind": "note", "title": "fresh", "content": text("fresh")}
    door.refused("IDEMPOTENCY_CONFLICT", "artifact.put", put, key=used_key)
    with door.nothing_written():
        door.refused(code, "artifact.put", put | fault, key=used_key)


def test_revise_judges_in_the_order_of_the_contract(door: Door, bench: Workbench, used_key: str) -> None:
    artifact = bench.put()
    bench.revise(artifact)  # from here on the first revision is stale
    stale = {
        "artifact_id": artifact["artifact_id"],
        "if_revision": artifact["revision_id"],
        "content": text("x"),
    }
    unknown = stale | {"artifact_id": "art_unknown"}
    away = sibling(door)
    forgotten = bench.put()
    bench.forget(forgotten)
    gone = {"artifact_id": forgotten["artifact_id"], "if_revision": "arev_stale", "content": text("x")}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "artifact.revise", unknown | {"title": "t" * 4097, "content": BIG})
        door.refused("CONTENT_TOO_LARGE", "artifact.revise", unknown | {"content": BIG})
        door.refused("NOT_FOUND", "artifact.revise", unknown, key=used_key)
        door.refused("SCOPE_VIOLATION", "artifact.revise", stale, key=used_key, context=away)
        door.refused("IDEMPOTENCY_CONFLICT", "artifact.revise", stale, key=used_key)
        door.refused("IDEMPOTENCY_CONFLICT", "artifact.revise", gone, key=used_key)
        door.refused("SCOPE_VIOLATION", "artifact.revise", gone, context=away)
        door.refused("INVALID_REQUEST", "artifact.revise", gone)
        door.refused("REVISION_CONFLICT", "artifact.revise", stale)


def test_forget_judges_in_the_order_of_the_contract(door: Door, bench: Workbench, used_key: str) -> None:
    artifact = bench.put()
    bench.forget(artifact)
    again = {"artifact_id": artifact["artifact_id"], "reason": "once more"}
    unknown = again | {"artifact_id": "art_unknown"}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "artifact.forget", unknown | {"reason": " "}, key=used_key)
        door.refused("NOT_FOUND", "artifact.forget", unknown, key=used_key, context=sibling(door))
        door.refused("SCOPE_VIOLATION", "artifact.forget", again, key=used_key, context=sibling(door))
        door.refused("IDEMPOTENCY_CONFLICT", "artifact.forget", again, key=used_key)
        door.refused("INVALID_REQUEST", "artifact.forget", again)


def test_assert_judges_fields_then_the_key_then_the_evidence(door: Door, bench: Workbench, used_key: str) -> None:
    artifact = bench.put("four")
    missing = {"artifact_id": artifact["artifact_id"], "revision_id": "arev_unknown"}
    outside = {"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}
    outside |= {"start_byte": 0, "end_byte": 5}
    claim = {"claim_type": "fact", "statement": "s"}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "claim.assert", claim | {"evidence": [missing] * 129}, key=used_key)
        door.refused("INVALID_REQUEST", "claim.assert", claim | {"statement": " ", "evidence": [missing]})
        door.refused("INVALID_REQUEST", "claim.assert", claim | {"confidence": 2, "evidence": [missing]})
        door.refused("INVALID_REQUEST", "claim.assert", claim | {"actor": " ", "evidence": [missing]})
        door.refused("IDEMPOTENCY_CONFLICT", "claim.assert", claim | {"evidence": [missing]}, key=used_key)
        door.refused("IDEMPOTENCY_CONFLICT", "claim.assert", claim | {"evidence": [outside]}, key=used_key)
        door.refused("NOT_FOUND", "claim.assert", claim | {"evidence": [missing]})
        door.refused("INVALID_REQUEST", "claim.assert", claim | {"evidence": [outside]})


@pytest.mark.proves("machine-103")
def test_revising_a_claim_judges_in_the_order_of_the_contract(door: Door, bench: Workbench, used_key: str) -> None:
    claim = bench.claim()
    head = bench.revise_claim(claim)
    bench.retract(claim)
    stale = {"claim_id": claim["claim_id"], "if_revision": claim["revision_id"], "statement": "s"}
    current = stale | {"if_revision": head["revision_id"]}
    unknown = stale | {"claim_id": "clm_unknown"}
    missing = {"evidence": [{"artifact_id": "art_unknown", "revision_id": "arev_unknown"}]}
    away = sibling(door)
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "claim.revise", unknown | {"statement": " "}, key=used_key)
        door.refused("NOT_FOUND", "claim.revise", unknown | missing, key=used_key, context=away)
        door.refused("SCOPE_VIOLATION", "claim.revise", stale | missing, key=used_key, context=away)
        door.refused("IDEMPOTENCY_CONFLICT", "claim.revise", stale | missing, key=used_key)
        door.refused("NOT_FOUND", "claim.revise", stale | missing)
        door.refused("REVISION_CONFLICT", "claim.revise", stale)
        door.refused("INVALID_REQUEST", "claim.revise", current)


def test_retract_judges_in_the_order_of_the_contract(door: Door, bench: Workbench, used_key: str) -> None:
    claim = bench.claim()
    bench.retract(claim)
    again = {"claim_id": claim["claim_id"], "reason": "once more"}
    unknown = again | {"claim_id": "clm_unknown"}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "claim.retract", unknown | {"reason": ""}, key=used_key)
        door.refused("NOT_FOUND", "claim.retract", unknown, key=used_key, context=sibling(door))
        door.refused("SCOPE_VIOLATION", "claim.retract", again, key=used_key, context=sibling(door))
        door.refused("IDEMPOTENCY_CONFLICT", "claim.retract", again, key=used_key)
        door.refused("INVALID_REQUEST", "claim.retract", again)

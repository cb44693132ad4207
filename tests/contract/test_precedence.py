"""Which error is reported when a request has several faults (machine protocol §1.3 and the orders of §4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from .door import Door, Json
from .protocol import CATALOGUE, MIB, MUTATIONS, OPERATIONS
from .workbench import Workbench, raw, text

USED_KEY = "already/used"
BIG = raw(b"\0" * (8 * MIB + 1))
TOGETHER_MAX = 3


@dataclass(frozen=True)
class Fault:
    """What is wrong with a request, and the code it gets when nothing else is. Laid over its input and its envelope."""

    name: str
    code: str
    input: Json = field(default_factory=dict)
    how: Json = field(default_factory=dict)

    def combines_with(self, other: Fault) -> bool:
        return self.input.keys().isdisjoint(other.input) and self.how.keys().isdisjoint(other.how)


def faults_before_the_store(op: str) -> Iterator[Fault]:
    """Steps 1 to 8 of the processing order (§1.3)."""
    row = next(row for row in CATALOGUE if row.name == op)
    malformed = Fault("an unknown input member", "INVALID_REQUEST", {"surplus": 1})
    yield Fault("an unknown envelope member", "INVALID_REQUEST", how={"surplus": 1})
    yield Fault("another version", "UNSUPPORTED_VERSION", how={"v": 2})
    yield Fault("an empty request id", "INVALID_REQUEST", how={"request_id": ""})
    if row.mutating:
        yield Fault("no key", "INVALID_REQUEST", how={"key": None})
    if row.horizon:
        yield malformed
    if row.needs_context:
        yield Fault("no context", "NO_AMBIENT_CONTEXT", how={"context": None})
    if row.horizon:
        yield Fault("no reason", "INVALID_REQUEST", {"horizon": "workspace", "reason": " "})
    else:
        yield malformed


UNKNOWN_MEMBER = {
    "artifact.revise": "artifact_id",
    "artifact.forget": "artifact_id",
    "claim.revise": "claim_id",
    "claim.retract": "claim_id",
    "source.get": "source_id",
    "source.ingest": "source_id",
    "source.checkpoint": "source_id",
    "source.withdraw": "source_id",
    "projection.put": "artifact_id",
    "projection.list": "artifact_id",
    "projection.drop": "projection_id",
    "feedback.get": "feedback_id",
    "relation.list": "entity_id",
}
"""Where an operation names the entity that must exist and be in scope."""


class Situation:
    """Entities in all the states that operations refuse, and the faults that lead to them."""

    def __init__(self, bench: Workbench, valid: Json) -> None:
        self.bench = bench
        self.valid = valid
        self.away = {"context": bench.door.here(workspace_id="wsp_elsewhere")}
        bench.put(how={"key": USED_KEY})
        bench.put(how={"key": USED_KEY} | self.away)

    def faults(self, op: str) -> list[Fault]:
        """Everything an operation can be refused for, in the order of §1.3 and of its part of §4."""
        return [*faults_before_the_store(op), *self._fields(op), *self._store(op)]

    def _fields(self, op: str) -> Iterator[Fault]:
        if op in ("artifact.put", "artifact.revise", "source.ingest"):
            yield Fault("a blank title", "INVALID_REQUEST", {"title": " "})
            yield Fault("bad content", "INVALID_REQUEST", {"content": {"type": "base64", "data": "!"}})
        if op == "claim.assert":
            yield Fault("an empty window", "INVALID_REQUEST", {"valid_until": self.valid["valid_from"]})
        if op == "relation.put":
            yield Fault("large metadata", "INVALID_REQUEST", {"metadata": {"m": "x" * 65_536}})
            ends = dict.fromkeys(("source_id", "target_id"), self.valid["target_id"])
            yield Fault("itself", "INVALID_REQUEST", ends)
        if op == "projection.put":
            yield Fault("no span", "INVALID_REQUEST", {"evidence_spans": []})
        if op == "feedback.record":
            yield Fault("a query without a word", "INVALID_REQUEST", {"query": "?!"})

    def _store(self, op: str) -> Iterator[Fault]:
        used_key = Fault("a used key", "IDEMPOTENCY_CONFLICT", how={"key": USED_KEY})
        if op == "relation.put":
            yield Fault("an unknown source", "NOT_FOUND", {"source_id": "clm_absent"})
        if op in UNKNOWN_MEMBER:
            yield Fault("an unknown entity", "NOT_FOUND", {UNKNOWN_MEMBER[op]: "absent"})
        if op == "projection.put":
            yield Fault("an unknown revision", "NOT_FOUND", {"revision_id": "arev_absent"})
        if op in UNKNOWN_MEMBER or op == "relation.put":
            yield Fault("a foreign context", "SCOPE_VIOLATION", how=self.away)
        if op == "relation.put":
            yield Fault("an unknown target", "NOT_FOUND", {"target_id": "clm_absent_too"})
        if op == "source.withdraw":
            yield Fault("an unknown item", "NOT_FOUND", {"external_id": "page-0"})
        if op == "projection.put":
            yield from self._projected()
        if op in MUTATIONS:
            yield used_key
        yield from getattr(self, "_" + op.replace(".", "_"), lambda: ())()

    def _projected(self) -> Iterator[Fault]:
        artifact = self.bench.put()
        old = artifact | {}
        self.bench.revise(artifact)
        gone = self.bench.put()
        self.bench.forget(gone)
        yield Fault("a forgotten artifact", "INVALID_REQUEST", id_and_revision(gone))
        yield Fault("an old revision", "REVISION_CONFLICT", id_and_revision(old))
        yield Fault("a span past the end", "INVALID_REQUEST", {"evidence_spans": [{"start_byte": 0, "end_byte": 999}]})

    def _artifact_revise(self) -> Iterator[Fault]:
        gone = self.bench.put()
        self.bench.forget(gone)
        yield Fault("a forgotten artifact", "INVALID_REQUEST", {"artifact_id": gone["artifact_id"]})
        yield Fault("a stale revision", "REVISION_CONFLICT", {"if_revision": "arev_stale"})

    def _artifact_forget(self) -> Iterator[Fault]:
        gone = self.bench.put()
        self.bench.forget(gone)
        yield Fault("a forgotten artifact", "INVALID_REQUEST", {"artifact_id": gone["artifact_id"]})

    def _claim_assert(self) -> Iterator[Fault]:
        yield Fault("unknown evidence", "NOT_FOUND", {"evidence": [UNKNOWN_EVIDENCE]})

    def _claim_revise(self) -> Iterator[Fault]:
        ended = self.bench.claim()
        self.bench.retract(ended)
        yield Fault("unknown evidence", "NOT_FOUND", {"evidence": [UNKNOWN_EVIDENCE]})
        yield Fault("a stale revision", "REVISION_CONFLICT", {"if_revision": "crev_stale"})
        head = {"claim_id": ended["claim_id"], "if_revision": ended["revision_id"]}
        yield Fault("a terminal claim", "INVALID_REQUEST", head)

    def _claim_retract(self) -> Iterator[Fault]:
        ended = self.bench.claim()
        self.bench.retract(ended)
        yield Fault("a retracted claim", "INVALID_REQUEST", {"claim_id": ended["claim_id"]})

    def _relation_put(self) -> Iterator[Fault]:
        ends = {name: {"claim_id": self.valid[name]} for name in ("source_id", "target_id")}
        self.bench.relate(ends["source_id"], "supports", ends["target_id"])
        same = {"relation": "supports", "target_id": self.valid["target_id"]}
        yield Fault("an edge with other metadata", "INVALID_REQUEST", same)
        artifact = {"target_type": "artifact", "target_id": self.bench.put()["artifact_id"]}
        yield Fault("an artifact that is contradicted", "INVALID_REQUEST", artifact)

    def _source_ingest(self) -> Iterator[Fault]:
        source = {"source_id": self.valid["source_id"]}
        self.bench.ingest(source, "page-7", kind="leaflet")
        orphan = self.bench.ingest(source, "page-8")
        self.bench.forget(orphan["artifact"])
        page = {"external_id": "page-7"}
        yield Fault("an orphaned item", "INTEGRITY_ERROR", {"external_id": "page-8"})
        yield Fault("the same revision with other bytes", "REVISION_CONFLICT", page | {"external_revision": "v9"})
        yield Fault("another kind", "INVALID_REQUEST", page | {"external_revision": "v10"})


UNKNOWN_EVIDENCE = {"artifact_id": "art_absent", "revision_id": "arev_absent"}


def id_and_revision(artifact: Json) -> Json:
    return {"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}


@pytest.mark.proves("machine-3", "machine-15", "machine-16", "machine-103")
@pytest.mark.parametrize("op", OPERATIONS)
def test_of_several_faults_the_earliest_in_the_stated_order_is_reported(
    door: Door, bench: Workbench, specimen_inputs: dict[str, Any], op: str
) -> None:
    valid = specimen_inputs[op]
    faults = Situation(bench, valid).faults(op)
    with door.nothing_written():
        for together in combinations_of(faults):
            how: Json = {"input": valid}
            for fault in together:
                how = how | fault.how | {"input": how["input"] | fault.input}
            answer = door.call(op, **how)
            found = "success" if answer["ok"] else answer["error"]["code"]
            assert found == together[0].code, [fault.name for fault in together]


def combinations_of(faults: list[Fault]) -> Iterator[tuple[Fault, ...]]:
    """Each fault by itself, then every two and three of them that one request can have, in the order of the list."""
    for count in range(1, TOGETHER_MAX + 1):
        for together in itertools.combinations(faults, count):
            if all(one.combines_with(other) for one, other in itertools.combinations(together, 2)):
                yield together


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

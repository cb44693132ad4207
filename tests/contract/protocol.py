"""The tables of machine protocol v1 that the tests are generated from. Written from the contract, not from the code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Operation:
    """One row of the operation catalogue, §0.3."""

    name: str
    mutating: bool = False
    side_effecting: bool = False
    needs_context: bool = False
    horizon: bool = False


def _row(name: str, columns: str) -> Operation:
    return Operation(name, "M" in columns, "S" in columns, "C" in columns, "H" in columns)


CATALOGUE = tuple(
    _row(*row.split(":"))
    for row in (
        "context.resolve:C", "capabilities:", "instructions:", "schema:", "artifact.put:MSC", "artifact.get:",
        "citation.get:", "artifact.revise:MSC", "artifact.history:", "artifact.forget:MSC", "claim.assert:MSC",
        "claim.get:", "claim.history:", "claim.revise:MSC", "claim.retract:MSC", "relation.put:MSC",
        "relation.list:CH", "source.register:MSC", "source.get:C", "source.ingest:MSC", "source.checkpoint:MSC",
        "source.withdraw:MSC", "projection.put:MSC", "projection.list:C", "projection.drop:MSC",
        "feedback.record:MSC", "feedback.get:C", "feedback.list:C", "feedback.export:C", "conflict.list:CH",
        "search:CH", "memory.recall:CH", "memory.probe:CH", "memory.retrieve:CH", "context.build:CH", "doctor:",
        "verify:", "backup.create:S",
    )
)  # fmt: skip

MUTATING = frozenset(operation.name for operation in CATALOGUE if operation.mutating)
CALLER_SIDE_ONLY = ("remember", "checkpoint", "pending")
EMPTY_INPUT = ("capabilities", "schema", "doctor", "verify", "context.resolve")
FREE_FORM = ("provenance", "metadata")

HTTP_STATUS = {
    "INVALID_REQUEST": 400, "UNSUPPORTED_VERSION": 400, "NO_AMBIENT_CONTEXT": 400, "UNAUTHENTICATED": 401,
    "FORBIDDEN": 403, "SCOPE_VIOLATION": 403, "NOT_FOUND": 404, "REVISION_CONFLICT": 409,
    "IDEMPOTENCY_CONFLICT": 409, "CONTENT_TOO_LARGE": 413, "CITATION_ERROR": 422, "RATE_LIMITED": 429,
    "WRITE_PENDING": 202, "INDEX_NOT_READY": 503, "TRANSPORT_ERROR": 503, "CONFIG_ERROR": 500,
    "INTEGRITY_ERROR": 500, "REASONER_ERROR": 500, "INTERNAL_ERROR": 500,
}  # fmt: skip
"""The statuses of `POST /v1/call`, one per error code."""


@dataclass(frozen=True)
class ReportedBound:
    """A number of §8 and the operation whose presence makes it owed (None: always)."""

    field: str
    value: int
    owed_with: str | None = None


REPORTED_BOUNDS = (
    ReportedBound("max_frame_bytes", 24 * MIB),
    ReportedBound("max_artifact_bytes", 8 * MIB),
    ReportedBound("max_encoded_content_bytes", 12 * MIB),
    ReportedBound("max_query_bytes", 8192),
    ReportedBound("max_title_bytes", 4096),
    ReportedBound("max_claim_statement_bytes", 128 * KIB),
    ReportedBound("max_metadata_bytes", 64 * KIB),
    ReportedBound("max_evidence_items", 128),
    ReportedBound("max_search_items", 100),
    ReportedBound("max_history_items", 100),
    ReportedBound("max_recall_claims", 10, "memory.recall"),
    ReportedBound("max_recall_artifact_refs", 20, "memory.recall"),
    ReportedBound("max_recall_candidate_claims", 5, "memory.recall"),
    ReportedBound("max_recall_candidate_artifact_refs", 5, "memory.recall"),
    ReportedBound("max_recall_excerpt_bytes", 1024, "memory.recall"),
    ReportedBound("max_recall_evidence_excerpts_per_claim", 4, "memory.recall"),
    ReportedBound("max_probe_items", 8, "memory.probe"),
    ReportedBound("max_probe_title_bytes", 48, "memory.probe"),
    ReportedBound("max_retrieve_leads", 8, "memory.retrieve"),
    ReportedBound("max_retrieve_references", 9, "memory.retrieve"),
    ReportedBound("max_retrieve_evidence_bytes", 12_288, "memory.retrieve"),
    ReportedBound("max_citation_bytes", 1024, "citation.get"),
    ReportedBound("max_citation_fetch_bytes", 8192, "citation.get"),
    ReportedBound("max_relation_list_items", 100, "relation.list"),
    ReportedBound("max_conflict_list_items", 100, "conflict.list"),
    ReportedBound("max_source_items", 100, "source.register"),
    ReportedBound("max_projection_items", 100, "projection.list"),
    ReportedBound("max_feedback_items", 100, "feedback.list"),
)

ARTIFACT_RECORD = {
    "artifact_id", "revision_id", "revision_number", "kind", "title", "media_type", "blob_hash", "size_bytes",
    "status", "context", "provenance", "created_at", "revision_created_at", "revision_commit_seq",
}  # fmt: skip
ARTIFACT_ACKNOWLEDGEMENT = ARTIFACT_RECORD | {"commit_seq", "created"}
"""Members of an artifact record that are always present, §4.0.3, and of an acknowledgement, §4.0.5."""

CONTENT = {"type": "text", "data": "cone 6 reached at 21:40"}
EVIDENCE = [{"artifact_id": "{artifact}", "revision_id": "{artifact_revision}", "start_byte": 0, "end_byte": 4}]
COMPLETE_INPUTS: Mapping[str, dict[str, Any]] = {
    "capabilities": {},
    "schema": {},
    "doctor": {},
    "verify": {},
    "backup.create": {"destination": "{destination}"},
    "context.resolve": {},
    "instructions": {"format": "json"},
    "artifact.put": {
        "kind": "log",
        "title": "Kiln firing 12",
        "media_type": "text/plain",
        "content": CONTENT,
        "provenance": {"pyrometer": {"serial": 7}},
        "actor": "agent/kiln",
    },
    "artifact.get": {"artifact_id": "{artifact}", "revision_id": "{artifact_revision}", "include_content": True},
    "citation.get": {"citation": "memoree://artifact/{artifact}@{artifact_revision}#0-6", "max_bytes": 16},
    "artifact.revise": {
        "artifact_id": "{artifact}",
        "if_revision": "{artifact_revision}",
        "title": "Kiln firing 12, corrected",
        "media_type": "text/plain",
        "content": CONTENT,
        "provenance": {"pyrometer": {"serial": 8}},
        "actor": "agent/kiln",
    },
    "artifact.history": {"artifact_id": "{artifact}", "limit": 10, "before_revision_number": 5},
    "artifact.forget": {"artifact_id": "{artifact}", "reason": "the owner asked for removal"},
    "claim.assert": {
        "claim_type": "observation",
        "statement": "Firing 12 reached cone 6.",
        "confidence": 0.8,
        "evidence": EVIDENCE,
        "valid_from": "2026-03-02T20:40:00Z",
        "valid_until": "2036-03-02T20:40:00Z",
        "actor": "agent/kiln",
    },
    "claim.get": {"claim_id": "{claim}", "revision_id": "{claim_revision}"},
    "claim.history": {"claim_id": "{claim}", "limit": 10, "before_revision_number": 5},
    "claim.revise": {
        "claim_id": "{claim}",
        "if_revision": "{claim_revision}",
        "statement": "Firing 12 reached cone 5.5.",
        "confidence": 0.6,
        "evidence": EVIDENCE,
        "actor": "agent/kiln",
    },
    "claim.retract": {"claim_id": "{claim}", "reason": "the thermocouple was faulty"},
    "relation.put": {
        "source_type": "claim",
        "source_id": "{claim}",
        "relation": "contradicts",
        "target_type": "claim",
        "target_id": "{other_claim}",
        "metadata": {"noticed_by": "night shift"},
    },
    "relation.list": {
        "entity_type": "claim",
        "entity_id": "{claim}",
        "direction": "outgoing",
        "relation": "contradicts",
        "horizon": "workspace",
        "reason": "compare with the other studio",
        "limit": 10,
        "before_commit_seq": 1_000_000,
    },
    "source.register": {
        "name": "Studio wiki",
        "kind": "wiki_adapter",
        "locator": "https://wiki.example/studio",
        "metadata": {"shelf": {"row": 2}},
        "actor": "agent/kiln",
    },
    "source.get": {"source_id": "{source}"},
    "source.ingest": {
        "source_id": "{source}",
        "external_id": "page-4",
        "external_revision": "v9",
        "kind": "wiki_page",
        "title": "Glaze recipes",
        "media_type": "text/plain",
        "content": CONTENT,
        "provenance": {"page": {"views": 3}},
        "observed_at": "2026-03-02T20:40:00Z",
        "cursor": "c-118",
        "actor": "agent/kiln",
    },
    "source.checkpoint": {
        "source_id": "{source}",
        "health": "degraded",
        "cursor": "c-120",
        "message": "2 pages skipped",
        "observed_at": "2026-03-02T20:40:00Z",
        "actor": "agent/kiln",
    },
    "source.withdraw": {
        "source_id": "{source_of_item}",
        "external_id": "page-4",
        "reason": "page deleted in the wiki",
        "observed_at": "2026-03-02T20:40:00Z",
        "actor": "agent/kiln",
    },
    "projection.put": {
        "artifact_id": "{artifact}",
        "revision_id": "{artifact_revision}",
        "projection_key": "summary",
        "kind": "summary",
        "text": "green iron glaze",
        "evidence_spans": [{"start_byte": 0, "end_byte": 4}, {"start_byte": 4, "end_byte": 6}],
        "generator": "acme-summariser",
        "generator_version": "3",
        "generator_digest": "sha256:00ff",
        "metadata": {"temperature": {"celsius": 0}},
        "actor": "agent/kiln",
    },
    "projection.list": {"artifact_id": "{artifact}", "revision_id": "{artifact_revision}", "limit": 10},
    "projection.drop": {
        "projection_id": "{projection}",
        "reason": "the summariser was withdrawn",
        "actor": "agent/kiln",
    },
    "feedback.record": {
        "query": "which cone did firing 12 reach",
        "outcome": "useful",
        "retain_query": True,
        "citations": ["memoree://artifact/{artifact}@{artifact_revision}#0-4"],
        "note": "the first hit was right",
        "actor": "agent/kiln",
    },
    "feedback.get": {"feedback_id": "{feedback}"},
    "feedback.list": {"limit": 10, "before_commit_seq": 1_000_000},
    "feedback.export": {"limit": 10, "before_commit_seq": 1_000_000},
    "conflict.list": {
        "horizon": "workspace",
        "reason": "compare with the other studio",
        "include_stale": True,
        "limit": 10,
        "before_case_sequence": 1_000_000,
    },
    "search": {
        "query": "cone 6 firing",
        "horizon": "workspace",
        "reason": "compare with the other studio",
        "limit": 3,
        "include_historical": True,
        "min_commit_seq": 0,
        "recency": {"enabled": False},
    },
    "memory.recall": {
        "query": "how hot did firing 12 get",
        "horizon": "workspace",
        "reason": "compare with the other studio",
        "max_claims": 4,
        "max_artifact_refs": 2,
        "max_excerpt_bytes": 200,
        "max_candidate_claims": 5,
        "max_candidate_artifact_refs": 5,
        "min_commit_seq": 0,
        "recency": {"enabled": False},
    },
    "context.build": {
        "query": "cone 6 firing",
        "horizon": "workspace",
        "reason": "compare with the other studio",
        "limit": 3,
        "max_bytes": 2048,
        "include_historical": True,
        "min_commit_seq": 0,
        "recency": {"enabled": False},
    },
    "memory.probe": {
        "query": "peak temperature last bake",
        "original_query": "how hot did firing 12 get",
        "horizon": "workspace",
        "reason": "compare with the other studio",
        "max_leads": 4,
        "min_commit_seq": 0,
        "recency": {"enabled": False},
    },
    "memory.retrieve": {
        "query": "how hot did firing 12 get",
        "reformulation": "firing 12 cone reached",
        "horizon": "workspace",
        "reason": "compare with the other studio",
        "max_claims": 4,
        "max_artifact_refs": 2,
        "max_excerpt_bytes": 200,
        "max_recovery_leads": 4,
        "max_recovery_bytes": 4096,
        "min_commit_seq": 0,
        "recency": {"enabled": False},
        "profile": True,
    },
}
"""For every operation an input that is valid and spells out every member it knows. What stands
in braces is an entity that a running test makes and puts there."""

OPERATIONS = tuple(o.name for o in CATALOGUE if o.name in COMPLETE_INPUTS)
"""Every operation, in the order of the catalogue."""
NEEDS_CONTEXT = tuple(o.name for o in CATALOGUE if o.needs_context and o.name in OPERATIONS)
MUTATIONS = tuple(o.name for o in CATALOGUE if o.mutating and o.name in OPERATIONS)
READS = tuple(o.name for o in CATALOGUE if not o.side_effecting and o.name in OPERATIONS)
CONTEXT_FREE = tuple(op for op in READS if op not in NEEDS_CONTEXT)
HORIZON = tuple(o.name for o in CATALOGUE if o.horizon and o.name in OPERATIONS)

"""The tables of machine protocol v1 that the tests are generated from. Written from the contract, not from the code."""

from __future__ import annotations

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
EMPTY_INPUT = ("capabilities", "schema", "doctor", "context.resolve")
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

SPECIMEN_IDS = {
    "artifact_id": "art_SPECIMEN", "artifact_revision": "arev_SPECIMEN",
    "claim_id": "clm_SPECIMEN", "claim_revision": "crev_SPECIMEN",
}  # fmt: skip
"""Placeholders for the generation of test ids; a running test puts the ids of real entities in their place."""


def complete_inputs(ids: dict[str, str]) -> dict[str, dict[str, Any]]:
    """For every operation of this slice an input that is valid and spells out every member it knows. `ids` holds an
    artifact and a claim of the default context with their current revisions."""
    content = {"type": "text", "data": "cone 6 reached at 21:40"}
    evidence = [
        {
            "artifact_id": ids["artifact_id"],
            "revision_id": ids["artifact_revision"],
            "start_byte": 0,
            "end_byte": 4,
        }
    ]
    return {
        "capabilities": {},
        "schema": {},
        "doctor": {},
        "context.resolve": {},
        "instructions": {"format": "json"},
        "artifact.put": {
            "kind": "log",
            "title": "Kiln firing 12",
            "media_type": "text/plain",
            "content": content,
            "provenance": {"pyrometer": {"serial": 7}},
            "actor": "agent/kiln",
        },
        "artifact.get": {
            "artifact_id": ids["artifact_id"],
            "revision_id": ids["artifact_revision"],
            "include_content": True,
        },
        "artifact.revise": {
            "artifact_id": ids["artifact_id"],
            "if_revision": ids["artifact_revision"],
            "title": "Kiln firing 12, corrected",
            "media_type": "text/plain",
            "content": content,
            "provenance": {"pyrometer": {"serial": 8}},
            "actor": "agent/kiln",
        },
        "artifact.history": {
            "artifact_id": ids["artifact_id"],
            "limit": 10,
            "before_revision_number": 5,
        },
        "artifact.forget": {"artifact_id": ids["artifact_id"], "reason": "the owner asked for removal"},
        "claim.assert": {
            "claim_type": "observation",
            "statement": "Firing 12 reached cone 6.",
            "confidence": 0.8,
            "evidence": evidence,
            "valid_from": "2026-03-02T20:40:00Z",
            "valid_until": "2036-03-02T20:40:00Z",
            "actor": "agent/kiln",
        },
        "claim.get": {"claim_id": ids["claim_id"], "revision_id": ids["claim_revision"]},
        "claim.history": {"claim_id": ids["claim_id"], "limit": 10, "before_revision_number": 5},
        "claim.revise": {
            "claim_id": ids["claim_id"],
            "if_revision": ids["claim_revision"],
            "statement": "Firing 12 reached cone 5.5.",
            "confidence": 0.6,
            "evidence": evidence,
            "actor": "agent/kiln",
        },
        "claim.retract": {"claim_id": ids["claim_id"], "reason": "the thermocouple was faulty"},
        "search": {
            "query": "cone 6 firing",
            "horizon": "workspace",
            "reason": "compare with the other studio",
            "limit": 3,
            "include_historical": True,
            "min_commit_seq": 1,
            "recency": {"enabled": False},
        },
    }


OPERATIONS = tuple(complete_inputs(SPECIMEN_IDS))
"""The operations of this slice."""
NEEDS_CONTEXT = tuple(o.name for o in CATALOGUE if o.needs_context and o.name in OPERATIONS)
CONTEXT_FREE = tuple(o.name for o in CATALOGUE if not o.needs_context and o.name in OPERATIONS)
MUTATIONS = tuple(o.name for o in CATALOGUE if o.mutating and o.name in OPERATIONS)

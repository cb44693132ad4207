"""What a client has to know of the operations before it has spoken to a server.

The server's catalogue stays the authority; it is not imported here because that loads the whole store.
"""

from __future__ import annotations

WITHOUT_CONTEXT = frozenset(
    {
        "artifact.get",
        "artifact.history",
        "backup.create",
        "capabilities",
        "citation.get",
        "claim.get",
        "claim.history",
        "doctor",
        "instructions",
        "schema",
        "verify",
    }
)

SIDE_EFFECTING = frozenset(
    {
        "artifact.forget",
        "artifact.put",
        "artifact.revise",
        "backup.create",
        "claim.assert",
        "claim.retract",
        "claim.revise",
        "feedback.record",
        "projection.drop",
        "projection.put",
        "relation.put",
        "source.checkpoint",
        "source.ingest",
        "source.register",
        "source.withdraw",
    }
)

READS_WITH_CONTEXT = frozenset(
    {
        "conflict.list",
        "context.build",
        "context.resolve",
        "feedback.export",
        "feedback.get",
        "feedback.list",
        "memory.probe",
        "memory.recall",
        "memory.retrieve",
        "projection.list",
        "relation.list",
        "search",
        "source.get",
    }
)

OF_A_STORE = frozenset({"backup.create", "verify"})
"""Where no store is, there is nothing to say about it: an empty one would pass for the one that was meant."""

NAMES = WITHOUT_CONTEXT | SIDE_EFFECTING | READS_WITH_CONTEXT
"""The whole catalogue of the contract (machine protocol §0.3)."""


def needs_context(op: str) -> bool:
    return op not in WITHOUT_CONTEXT


def needs_store(op: str) -> bool:
    return op in OF_A_STORE


def changes_store(op: str) -> bool:
    return op in SIDE_EFFECTING

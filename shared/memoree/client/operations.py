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

EXTENSION_WRITES = frozenset(
    {
        "inbox.merge",
        "inbox.promote",
        "inbox.put",
        "inbox.reject",
        "ledger.append",
        "okf.relate",
        "review.apply",
        "task.set_status",
    }
)

EXTENSION_READS = frozenset(
    {
        "answer.pack",
        "inbox.get",
        "inbox.list",
        "ledger.read",
        "ledger.status",
        "memory.list",
        "okf.compile",
        "okf.files",
        "okf.get",
        "okf.handoff",
        "okf.health",
        "okf.links",
        "okf.list",
        "okf.search",
        "okf.validate",
        "review.report",
    }
)
"""Of this service beside the contract's; all of them need a context."""


def needs_context(op: str) -> bool:
    return op not in WITHOUT_CONTEXT


def needs_store(op: str) -> bool:
    return op in OF_A_STORE


def changes_store(op: str) -> bool:
    return op in SIDE_EFFECTING or op in EXTENSION_WRITES


def is_known(op: str) -> bool:
    return op in NAMES or op in EXTENSION_WRITES or op in EXTENSION_READS

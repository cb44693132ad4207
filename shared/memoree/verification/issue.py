"""What verification finds: one damage each, structured for the job's report, a line of text on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DatabaseKind = Literal[
    "database",
    "schema",
    "counters",
    "foreign_key",
    "index",
    "chunks",
    "body",
    "blob",
    "revision",
    "evidence",
    "relation",
    "conflict_case",
    "claim_status",
    "source_item",
    "episode",
    "node",
    "projection",
    "derivation",
    "events",
    "outcome",
    "erasure",
    "integrity_sum",
]
"""What can be wrong with one state of a store and its blobs."""
DeploymentKind = Literal["head", "ledger", "ltx", "backup"]
"""What can be wrong with how a tenant's states are kept in a bucket."""
Kind = DatabaseKind | DeploymentKind


@dataclass(frozen=True, slots=True)
class Issue:
    """`entity` is the id, digest, number or key of what is damaged. Nothing of its content is told."""

    kind: Kind
    entity: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} {self.entity}: {self.detail}"

"""What the model remembers, and how it shows it: records as responses carry them (machine protocol §4.0).

Generated ids are names, such as `art~3`, and so are the instants of commits, `at~7`: only the service can say what they
are, and `names.py` holds it to its word.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3

from contract.door import Json

TERMINAL = ("superseded", "retracted")


@dataclass(frozen=True)
class Context:
    """A request's context, and the owner of what it makes (§2.1, §2.5)."""

    workspace: str
    project: str
    task: str | None = None
    component: str | None = None
    pins: tuple[str, ...] = ()

    @classmethod
    def of(cls, sent: Mapping[str, Any]) -> Context:
        return cls(
            sent["workspace_id"],
            sent["project_id"],
            sent.get("task_id"),
            sent.get("component"),
            tuple(sent.get("pins", ())),
        )

    def to_wire(self, pins: tuple[str, ...] = ()) -> Json:
        ids = {"workspace_id": self.workspace, "project_id": self.project}
        optional = {"task_id": self.task, "component": self.component}
        return ids | present(optional) | {"pins": list(pins)}

    def same_scope(self, owner: Context) -> bool:
        tasks_differ = None not in (self.task, owner.task) and self.task != owner.task
        return (self.workspace, self.project) == (owner.workspace, owner.project) and not tasks_differ

    def sees(self, owner: Context, horizon: str) -> bool:
        if horizon == "ambient":
            return self.same_scope(owner)
        return horizon == "personal" or self.workspace == owner.workspace

    def pinned(self) -> dict[str, str | None]:
        """Artifact to revision, for the pins that parse as one of the accepted spellings (§2.6)."""
        found: dict[str, str | None] = {}
        for pin in self.pins:
            artifact, at, revision = pin.removeprefix("memoree://artifact/").partition("@")
            if artifact and (revision or not at):
                found[artifact] = revision or None
        return found


def present(members: Mapping[str, Any]) -> Json:
    """The members that have a value; the others are left out of responses."""
    return {name: value for name, value in members.items() if value is not None}


class Ordinal(int):
    """A place in an order. The service's own number for it is learnt when it is first seen."""


@dataclass
class ArtifactRevision:
    id: str
    number: int
    title: str
    media_type: str
    body: bytes
    provenance: Json
    actor: str | None
    created_at: str
    commit_seq: int

    @property
    def is_text(self) -> bool:
        """Whether `artifact.get` shows the body as text (§4.6)."""
        return self.media_type.lower().startswith("text/") and is_utf8(self.body)

    @property
    def is_citable(self) -> bool:
        """Whether `citation.get` gives bytes of it: text, and JSON too."""
        return self.is_text or (self.media_type == "application/json" and is_utf8(self.body))

    @property
    def is_cuttable(self) -> bool:
        """Whether a citation can name half a character of it."""
        return self.is_citable and not self.body.isascii()

    def content(self) -> Json:
        if self.is_text:
            return {"type": "text", "data": self.body.decode()}
        return {"type": "base64", "data": base64.b64encode(self.body).decode()}


def is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass
class Artifact:
    id: str
    kind: str
    owner: Context
    created_at: str
    revisions: list[ArtifactRevision] = field(default_factory=list)
    forgotten_reason: str | None = None

    @property
    def head(self) -> ArtifactRevision:
        return self.revisions[-1]

    @property
    def is_forgotten(self) -> bool:
        return self.forgotten_reason is not None

    def record(self, revision: ArtifactRevision) -> Json:
        return {
            "artifact_id": self.id,
            "revision_id": revision.id,
            "revision_number": revision.number,
            "kind": self.kind,
            "title": revision.title,
            "media_type": revision.media_type,
            "blob_hash": blake3(revision.body).hexdigest(),
            "size_bytes": len(revision.body),
            "status": "forgotten" if self.is_forgotten else "active",
            "context": self.owner.to_wire(),
            "provenance": revision.provenance,
            "created_at": self.created_at,
            "revision_created_at": revision.created_at,
            "revision_commit_seq": revision.commit_seq,
        } | present({"actor": revision.actor, "forgotten_reason": self.forgotten_reason})


@dataclass
class ClaimRevision:
    id: str
    number: int
    statement: str
    confidence: float | None
    evidence: list[Json]
    actor: str | None
    created_at: str
    commit_seq: int


@dataclass
class Claim:
    """`ended` is `superseded` or `retracted`; whether a live claim is conflicted follows from the open cases."""

    id: str
    claim_type: str
    owner: Context
    created_at: str
    valid_from: str | None
    valid_until: str | None
    revisions: list[ClaimRevision] = field(default_factory=list)
    ended: str | None = None
    retraction_reason: str | None = None

    @property
    def head(self) -> ClaimRevision:
        return self.revisions[-1]

    @property
    def is_live(self) -> bool:
        return self.ended is None


@dataclass
class Relation:
    id: str
    source: tuple[str, str]
    type: str
    target: tuple[str, str]
    metadata: Json
    owner: Context
    created_at: str
    commit_seq: int

    @property
    def edge(self) -> tuple[tuple[str, str], str, tuple[str, str]]:
        return self.source, self.type, self.target

    def record(self) -> Json:
        (source_type, source_id), (target_type, target_id) = self.source, self.target
        return {
            "relation_id": self.id,
            "source_type": source_type,
            "source_id": source_id,
            "relation": self.type,
            "target_type": target_type,
            "target_id": target_id,
            "metadata": self.metadata,
            "context": self.owner.to_wire(),
            "created_at": self.created_at,
            "relation_commit_seq": self.commit_seq,
        }


@dataclass
class Case:
    """One contradiction over two frozen revisions (§6.3)."""

    id: str
    sequence: Ordinal
    relation: Relation
    source_revision: ClaimRevision
    target_revision: ClaimRevision
    opened_commit_seq: int
    opened_at: str
    updated_at: str
    state: str = "open"

    @property
    def claims(self) -> tuple[str, str]:
        return self.relation.source[1], self.relation.target[1]


@dataclass
class Item:
    external_id: str
    external_revision: str
    artifact: Artifact
    revision: ArtifactRevision
    payload: Json
    observed_at: str
    updated_at: str
    commit_seq: int
    withdrawn_at: str | None = None
    withdrawal_reason: str | None = None

    @property
    def is_live(self) -> bool:
        return self.withdrawn_at is None

    def record(self, source: Source) -> Json:
        return {
            "source_id": source.id,
            "external_id": self.external_id,
            "external_revision": self.external_revision,
            "artifact_id": self.artifact.id,
            "artifact_revision_id": self.revision.id,
            "state": "live" if self.is_live else "withdrawn",
            "observed_at": self.observed_at,
            "updated_at": self.updated_at,
            "commit_seq": self.commit_seq,
        } | present({"withdrawn_at": self.withdrawn_at, "withdrawal_reason": self.withdrawal_reason})


@dataclass
class Source:
    id: str
    name: str
    kind: str
    locator: str | None
    metadata: Json
    owner: Context
    created_at: str
    updated_at: str
    commit_seq: int
    health: str = "unknown"
    cursor: str | None = None
    health_message: str | None = None
    last_observed_at: str | None = None
    items: dict[str, Item] = field(default_factory=dict)

    def record(self) -> Json:
        return {
            "source_id": self.id,
            "name": self.name,
            "kind": self.kind,
            "metadata": self.metadata,
            "health": self.health,
            "context": self.owner.to_wire(),
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "commit_seq": self.commit_seq,
        } | present(
            {
                "locator": self.locator,
                "cursor": self.cursor,
                "health_message": self.health_message,
                "last_observed_at": self.last_observed_at,
            }
        )


@dataclass
class Projection:
    id: str
    artifact: Artifact
    revision: ArtifactRevision
    content: Json
    """Key, kind, text, spans, generator and metadata: what makes two puts identical."""
    actor: str | None
    created_at: str
    updated_at: str
    commit_seq: int
    dropped_reason: str | None = None

    def record(self) -> Json:
        return {
            "projection_id": self.id,
            "artifact_id": self.artifact.id,
            "revision_id": self.revision.id,
            **self.content,
            "status": "active" if self.dropped_reason is None else "dropped",
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "commit_seq": self.commit_seq,
        } | present({"dropped_reason": self.dropped_reason, "actor": self.actor})


@dataclass
class Feedback:
    id: str
    query: str
    outcome: str
    retained: bool
    citations: list[str]
    note: str | None
    actor: str | None
    owner: Context
    created_at: str
    commit_seq: int

    def record(self) -> Json:
        return {
            "feedback_id": self.id,
            "outcome": self.outcome,
            "query_fingerprint": f"fingerprint~{normalised(self.query)}",
            "citations": self.citations,
            "context": self.owner.to_wire(),
            "created_at": self.created_at,
            "commit_seq": self.commit_seq,
        } | present({"retained_query": self.query if self.retained else None, "note": self.note, "actor": self.actor})

    def exported(self) -> Json:
        return {
            "feedback_id": self.id,
            "query": self.query,
            "outcome": self.outcome,
            "citations": self.citations,
            "created_at": self.created_at,
            "commit_seq": self.commit_seq,
        } | present({"note": self.note})


def normalised(query: str) -> str:
    """One name for all queries that are equal once normalised; those of the programs hold plain words only."""
    return "-".join(query.lower().split())


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)

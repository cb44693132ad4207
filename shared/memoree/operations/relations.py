"""Relations: typed edges and the one-hop reads around an entity (machine protocol §4.16, §4.17, §6.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, Field, model_validator

from memoree import clock, limits
from memoree.database import artifacts, claims
from memoree.database import relations as rows
from memoree.database.claims import Claim
from memoree.database.events import Change
from memoree.database.relations import Direction, Edge, EntityType, Relation, RelationType
from memoree.envelope import Horizon, WireModel
from memoree.errors import Code, MemoreeError, erased, invalid, not_found, shown
from memoree.operations.call import Call
from memoree.operations.claims import refuse_if_terminal
from memoree.operations.context import is_visible, place, require_write_scope
from memoree.operations.contradictions import SUPERSEDED, contradicted, ended
from memoree.operations.registry import mutation, read
from memoree.operations.shapes import (
    FIRST_PAGE,
    Acknowledgement,
    EntityId,
    HorizonInput,
    Metadata,
    PageCursor,
    RecordContext,
)
from memoree.operations.view import Applied, Transaction, View
from memoree.owner import Owner
from memoree.retrieval.scope import parse_pin, scope_bindings

Json = dict[str, Any]

BROADEN_HINT = "no such relation in this horizon; a broader one needs a reason"


class RelationPut(WireModel):
    """For `supersedes` the source is the newer claim, the target the older one."""

    source_type: EntityType
    source_id: EntityId
    relation: RelationType
    target_type: EntityType
    target_id: EntityId
    metadata: Metadata = Field(default_factory=dict)

    @model_validator(mode="after")
    def _joins_two_entities(self) -> RelationPut:
        if (self.source_type, self.source_id) == (self.target_type, self.target_id):
            raise ValueError("an entity has no relation to itself")
        return self

    @property
    def edge(self) -> Edge:
        return Edge(self.source_type, self.source_id, self.relation, self.target_type, self.target_id)


class RelationList(HorizonInput):
    entity_type: EntityType
    entity_id: EntityId
    direction: Direction = "both"
    relation: RelationType | None = None
    limit: Annotated[int, Field(ge=1, le=limits.RELATION_LIST_ITEMS_MAX)] = limits.RELATION_LIST_ITEMS_MAX
    before_commit_seq: PageCursor | None = None


class RelationRecord(BaseModel):
    """One edge, with the context of the request that put it."""

    relation_id: str
    source_type: EntityType
    source_id: str
    relation: RelationType
    target_type: EntityType
    target_id: str
    metadata: dict[str, Any]
    context: RecordContext
    created_at: str
    relation_commit_seq: int

    @classmethod
    def of(cls, relation: Relation) -> RelationRecord:
        return cls.model_validate(relation_to_wire(relation))


def relation_to_wire(relation: Relation) -> Json:
    """A `RelationRecord` as it is sent, without the model between: a page is read in less time than it is validated."""
    relation_id, source_type, source_id, kind, target_type, target_id, metadata, created_at, row_id, *context = relation
    return {
        "relation_id": relation_id,
        "source_type": source_type,
        "source_id": source_id,
        "relation": kind,
        "target_type": target_type,
        "target_id": target_id,
        "metadata": orjson.loads(metadata),
        "context": _context_to_wire(*context),
        "created_at": clock.wire(created_at),
        "relation_commit_seq": row_id,
    }


@lru_cache(maxsize=limits.RELATION_LIST_ITEMS_MAX)
def _context_to_wire(workspace_id: str, project_id: str, task_id: str | None, component: str | None) -> Json:
    """Most edges of a page share one."""
    return Owner(workspace_id, project_id, task_id, component).to_wire()


class RelationAcknowledgement(RelationRecord, Acknowledgement):
    """The result of `relation.put`."""


class RelationPage(BaseModel):
    """Newest first. A truncated page says nothing of the edges that are not on it.

    A full page of the largest metadata stays below the 8 MiB at which a page would have to end early.
    """

    entity_type: EntityType
    entity_id: str
    direction: Direction
    relation: RelationType | None = None
    horizon: Horizon
    relations: list[RelationRecord]
    truncated: bool
    next_before_commit_seq: int | None = None
    broaden_hint: str | None = None


def _ends_are_in_write_scope(view: View, call: Call[RelationPut]) -> None:
    edge = call.input.edge
    for entity_type, entity_id in ((edge.source_type, edge.source_id), (edge.target_type, edge.target_id)):
        require_write_scope(call, _owner(view, entity_type, entity_id), f"{entity_type} {shown(entity_id)}")


def join(tx: Transaction, owner: Owner, edge: Edge, metadata: dict[str, Any]) -> Relation:
    """A new relation, which does not exist yet. The caller records the event."""
    relation = Relation(
        relation_id=tx.new_id("rel"),
        **edge._asdict(),
        metadata=orjson.dumps(metadata).decode(),
        created_at=tx.now,
        row_id=tx.commit_seq,
        workspace_id=owner.workspace_id,
        project_id=owner.project_id,
        task_id=owner.task_id,
        component=owner.component,
    )
    rows.insert(tx.db, relation)
    tx.sum.add(rows.entry(relation))
    return relation


@mutation(
    "relation.put",
    position=16,
    input=RelationPut,
    result=RelationAcknowledgement,
    before_replay=_ends_are_in_write_scope,
)
def put(tx: Transaction, call: Call[RelationPut]) -> Applied:
    edge = call.input.edge
    existing = rows.of_edge(tx.db, edge)
    if existing is not None:
        _refuse_other_metadata(existing, call.input.metadata)
        return Applied(RelationRecord.of(existing), existing.row_id, created=False)
    live = _live_claims(tx, edge) if edge.relation in ("contradicts", "supersedes") else ()
    relation = join(tx, call.owner, edge, call.input.metadata)
    commit_seq = tx.record_event(
        "relation.put",
        "relation",
        relation.relation_id,
        payload=edge._asdict(),
        also=_effects(tx, relation, *live),
    )
    return Applied(RelationRecord.of(relation), commit_seq)


@read(
    "relation.list",
    position=17,
    input=RelationList,
    result=RelationPage,
    needs_context=True,
    horizon=True,
    short=True,
)
def list_relations(view: View, call: Call[RelationList]) -> Json:
    wanted = call.input
    _require_visible_anchor(view, call)
    found = rows.page(
        view.db,
        scope_bindings(view.db, call.ambient, wanted.horizon, now=view.now, historical=False),
        entity_type=wanted.entity_type,
        entity_id=wanted.entity_id,
        direction=wanted.direction,
        relation=wanted.relation,
        before=wanted.before_commit_seq or FIRST_PAGE,
        limit=wanted.limit + 1,
    )
    page, truncated = found[: wanted.limit], len(found) > wanted.limit
    answer: Json = {
        "entity_type": wanted.entity_type,
        "entity_id": wanted.entity_id,
        "direction": wanted.direction,
        "horizon": wanted.horizon,
        "relations": [relation_to_wire(relation) for relation in page],
        "truncated": truncated,
    }
    if wanted.relation is not None:
        answer["relation"] = wanted.relation
    if truncated:
        answer["next_before_commit_seq"] = page[-1].row_id
    if not page and wanted.horizon != "personal":
        answer["broaden_hint"] = BROADEN_HINT
    return answer


def _effects(tx: Transaction, relation: Relation, *live: Claim) -> Sequence[Change]:
    """What a new edge does to the claims it joins: nothing, unless it contradicts or supersedes (§6.4)."""
    if not live:
        return ()
    source, target = live
    if relation.relation == "contradicts":
        return contradicted(tx, relation, source, target)
    claims.supersede(tx.db, target, tx.commit_seq)
    return [Change("claim", target.claim_id, None, "superseded"), *ended(tx, target, SUPERSEDED)]


def _live_claims(tx: Transaction, edge: Edge) -> tuple[Claim, Claim]:
    """Source and target. Raises `INVALID_REQUEST` unless both are claims that are neither retracted nor superseded."""
    if (edge.source_type, edge.target_type) != ("claim", "claim"):
        invalid(f"{edge.relation} joins two claims, not {edge.source_type} and {edge.target_type}")
    source, target = claims.find(tx.db, edge.source_id), claims.find(tx.db, edge.target_id)
    assert source is not None and target is not None, "the existence of both ends was tested"
    refuse_if_terminal(source)
    refuse_if_terminal(target)
    return source, target


def _refuse_other_metadata(existing: Relation, metadata: dict[str, Any]) -> None:
    if _canonical(orjson.loads(existing.metadata)) != _canonical(metadata):
        invalid(
            f"the relation exists as {existing.relation_id} with other metadata; relations never change: use metadata "
            "equal to its own, or another relation"
        )


def _canonical(metadata: dict[str, Any]) -> bytes:
    """Equal exactly for equal JSON; Python's own equality takes 1, 1.0 and true for the same."""
    return orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS)


def _owner(view: View, entity_type: EntityType, entity_id: str) -> Owner:
    find = artifacts.find if entity_type == "artifact" else claims.find
    entity = find(view.db, entity_id)
    if entity is None or (isinstance(entity, artifacts.Artifact) and entity.kind in artifacts.HIDDEN_KINDS):
        not_found(entity_type, entity_id)
    if entity.erasure_row is not None:
        erased(entity_type, entity_id)
    return entity.owner


def _require_visible_anchor(view: View, call: Call[RelationList]) -> None:
    """Raises `NOT_FOUND`, and `SCOPE_VIOLATION` unless the anchor lies in the horizon or is a pinned artifact."""
    wanted, context = call.input, call.ambient
    owner = _owner(view, wanted.entity_type, wanted.entity_id)
    if is_visible(owner, context, wanted.horizon):
        return
    if wanted.entity_type == "artifact" and _is_pinned(view, wanted.entity_id, context.pins):
        return
    raise MemoreeError(
        Code.SCOPE_VIOLATION,
        f"{wanted.entity_type} {shown(wanted.entity_id)} belongs to {place(owner)}, outside the horizon "
        f"{wanted.horizon} of {place(call.owner)}",
    )


def _is_pinned(view: View, artifact_id: str, pins: Iterable[str]) -> bool:
    """Whether a pin names the artifact, and no revision but one of its own."""
    revisions = [pin[1] for pin in map(parse_pin, pins) if pin is not None and pin[0] == artifact_id]
    if not revisions or None in revisions:
        return bool(revisions)
    artifact = artifacts.find(view.db, artifact_id)
    assert artifact is not None, "the anchor exists"
    return any(artifacts.find_revision(view.db, artifact, revision) for revision in revisions if revision is not None)

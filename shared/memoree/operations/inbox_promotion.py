"""What becomes of an inbox entry: a node, a reflection on an idea, or nothing (OKF contract §4.4).

Each is a person's decision, under a name, and one commit: what is made, the edge from it to the entry, and the entry's
end. The entry's text stays readable for curators; `store.erase` erases it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, NoReturn

import orjson
from pydantic import BaseModel, Field

from memoree.database import artifacts as artifact_rows
from memoree.database.artifacts import Artifact, Revision
from memoree.database.events import Change
from memoree.database.inbox import PROMOTED, REJECTED, EntryRow, State
from memoree.database.okf import CANON
from memoree.database.relations import Edge
from memoree.database.sources import Source
from memoree.envelope import WireModel, bounded, length
from memoree.errors import Code, MemoreeError, invalid, not_found, shown
from memoree.limits import OKF_NODE_BYTES_MAX
from memoree.okf import editing, indexing
from memoree.okf.ids import path_of
from memoree.okf.node import Node, parse
from memoree.operations import okf_nodes
from memoree.operations.artifacts import content_bytes, staged, tombstone
from memoree.operations.call import Call
from memoree.operations.content import ArtifactContent
from memoree.operations.context import require_write_scope
from memoree.operations.inbox import entry, is_same_person, text_of, undecided
from memoree.operations.registry import EXTENSION, mutation
from memoree.operations.relations import join
from memoree.operations.shapes import Actor, EntityId, ExternalId
from memoree.operations.view import Applied, Transaction, View

PROMOTE, MERGE, REJECT = "inbox.promote", "inbox.merge", "inbox.reject"
FLAGGED, SELF_APPROVAL, NONCONFORMANT = "QUARANTINED", "SELF_APPROVAL", "NONCONFORMANT"
"""`details.reason` of refusals to promote."""
PROMOTED_KEY, REFLECTION_KEY = "promoted", "reflection"
"""`okf_key` of the edge from what was made to the entry."""
WHY_BYTES_MAX = 1024
IDEA = "idea"

Why = Annotated[str, bounded(WHY_BYTES_MAX), length(WHY_BYTES_MAX)]


class Decision(WireModel):
    """`override_reason` says why an entry that looks like an instruction is taken all the same."""

    entry_id: EntityId
    approved_by: Actor
    override_reason: Why | None = None


class InboxPromote(Decision):
    """`content` is the whole text of the node, front matter and all: a string, or the `{type, data}` of an artifact."""

    path: ExternalId
    content: ArtifactContent | str


class InboxMerge(Decision):
    """`into` is the idea, where the entry names none or another one is meant."""

    into: ExternalId | None = None


class InboxReject(WireModel):
    entry_id: EntityId
    reason: Annotated[Why, Field(description="why nothing becomes of it")]
    decided_by: Actor


class Decided(BaseModel):
    """`path`, `artifact_id` and `revision_id` are of the node that was made or revised, `relation_id` of its edge to
    the entry."""

    entry_id: str
    state: State
    decided_by: str
    reason: str
    path: str | None = None
    artifact_id: str | None = None
    revision_id: str | None = None
    relation_id: str | None = None


def _entry_is_in_write_scope(view: View, call: Call[InboxPromote] | Call[InboxMerge] | Call[InboxReject]) -> None:
    artifact = entry(view, call.input.entry_id)
    require_write_scope(call, artifact.owner, f"inbox entry {shown(artifact.artifact_id)}")


def _carried(wanted: InboxPromote) -> ArtifactContent:
    """Raises `CONTENT_TOO_LARGE`."""
    given = wanted.content
    content = given if isinstance(given, ArtifactContent) else ArtifactContent(type="text", data=given)
    if (size := len(content.decoded())) > OKF_NODE_BYTES_MAX:
        raise MemoreeError(
            Code.CONTENT_TOO_LARGE, f"content: a node has at most {OKF_NODE_BYTES_MAX} bytes, this one {size}"
        )
    return content


@mutation(
    PROMOTE,
    position=EXTENSION,
    input=InboxPromote,
    result=Decided,
    before_replay=_entry_is_in_write_scope,
    content=_carried,
)
def promote(tx: Transaction, call: Call[InboxPromote]) -> Applied:
    """Raises `INVALID_REQUEST`, with the reason: `QUARANTINED` for a flagged entry without an override, `SELF_APPROVAL`
    where the approver wrote it, `NONCONFORMANT` for a text that is no node of canon, and for a path that exists."""
    wanted = call.input
    artifact, row = _decidable(tx, wanted)
    data = content_bytes(tx, staged(call))
    node = _of_canon(okf_nodes.caller_id(wanted.path), data)
    bundle = okf_nodes.bundle_of(tx, call.owner)
    is_first = bundle is None
    if bundle is None:
        bundle = okf_nodes.ensure_bundle(tx, call.owner)
    origin = {
        "source": okf_nodes.BUNDLE_KIND,
        "path": path_of(node.id),
        "inbox_entry": row.entry_id,
        "approved_by": wanted.approved_by,
    }
    content = replace(staged(call), data=data)
    made, revision = okf_nodes.create_node(tx, bundle, node.id, content, actor=wanted.approved_by, origin=origin)
    also = [Change("source_item", f"{bundle.source_id}:{node.id}.md", None, "live")]
    if is_first:
        also.append(Change("source", bundle.source_id, None, bundle.health))
    reason = f"promoted to {path_of(node.id)} by {wanted.approved_by}"
    return _made(tx, call, bundle, artifact, made, revision, node.id, PROMOTED_KEY, reason, also)


@mutation(MERGE, position=EXTENSION, input=InboxMerge, result=Decided, before_replay=_entry_is_in_write_scope)
def merge(tx: Transaction, call: Call[InboxMerge]) -> Applied:
    """The entry's text as a dated bullet under the idea's reflections; nothing else of the idea changes, least of all
    its status. Raises as `promote`, and for a target that is no idea."""
    wanted = call.input
    artifact, row = _decidable(tx, wanted)
    told = orjson.loads(row.provenance)
    target = wanted.into or told.get("target")
    if target is None:
        invalid("into: the entry names no target; say which idea it is about")
    bundle = okf_nodes.bundle_of(tx, call.owner)
    if bundle is None:
        not_found("idea", target)
    found = okf_nodes.named(tx, bundle, target)
    if found.type.lower() != IDEA or found.tier != CANON:
        invalid(f"into: {path_of(found.node_id)} is of type {shown(found.type or 'none')}, not an Idea")
    text = parse("inbox/entry", text_of(tx, artifact).encode()).body
    data = editing.with_reflection(
        okf_nodes.node_bytes(tx, found), on=told["written_at"][: len("2026-01-01")], by=told["agent"], text=text
    )
    before = artifact_rows.revision_by_row(tx.db, found.revision_row)
    origin = {**okf_nodes.provenance(before), "inbox_entry": row.entry_id, "approved_by": wanted.approved_by}
    revision = okf_nodes.revise_node(tx, bundle, found, data, actor=wanted.approved_by, origin=origin)
    idea = artifact_rows.by_row(tx.db, found.row_id)
    reason = f"merged into {path_of(found.node_id)} by {wanted.approved_by}"
    return _made(tx, call, bundle, artifact, idea, revision, found.node_id, REFLECTION_KEY, reason)


@mutation(REJECT, position=EXTENSION, input=InboxReject, result=Decided, before_replay=_entry_is_in_write_scope)
def reject(tx: Transaction, call: Call[InboxReject]) -> Applied:
    """Anybody named may: also the agent that thinks better of it."""
    wanted = call.input
    artifact = entry(tx, wanted.entry_id)
    undecided(tx, artifact)
    reason = f"rejected by {wanted.decided_by}: {wanted.reason}"
    forgotten = tombstone(tx, artifact, reason)
    commit_seq = tx.record_event(
        REJECT, "artifact", artifact.artifact_id, actor=wanted.decided_by, payload={"status": forgotten.status}
    )
    decided = Decided(entry_id=artifact.artifact_id, state=REJECTED, decided_by=wanted.decided_by, reason=wanted.reason)
    return Applied(decided, commit_seq)


def _decidable(tx: Transaction, wanted: Decision) -> tuple[Artifact, EntryRow]:
    artifact = entry(tx, wanted.entry_id)
    row = undecided(tx, artifact)
    told = orjson.loads(row.provenance)
    actor = artifact_rows.head_revision(tx.db, artifact).actor
    if is_same_person(wanted.approved_by, actor, told["agent"]):
        _refuse(SELF_APPROVAL, f"approved_by: {shown(wanted.approved_by)} wrote the entry; somebody else has to decide")
    if told["labels"] and wanted.override_reason is None:
        _refuse(
            FLAGGED,
            f"inbox entry {shown(row.entry_id)} looks like an instruction ({', '.join(told['labels'])}); read it, and "
            "say in override_reason why it is taken all the same",
            matches=told["labels"],
        )
    return artifact, row


def _of_canon(node_id: str, data: bytes) -> Node:
    """The node that is to be. Raises `INVALID_REQUEST` unless every walk of a bundle finds it (W1 to W4) and it is
    conformant (V1, V2)."""
    node = okf_nodes.parsed(f"{node_id}.md", data)
    if (tier := indexing.tier_of(node)) != CANON:
        invalid(f"path: {path_of(node_id)} is {tier}; what is promoted becomes part of canon")
    if not node.has_front_matter:
        _refuse(NONCONFORMANT, f"content: {node_id}: no frontmatter")
    if not node.native_type:
        _refuse(NONCONFORMANT, f"content: {node_id}: empty/missing required 'type'")
    return node


def _made(
    tx: Transaction,
    call: Call[InboxPromote] | Call[InboxMerge],
    bundle: Source,
    artifact: Artifact,
    made: Artifact,
    revision: Revision,
    node_id: str,
    okf_key: str,
    reason: str,
    also: Sequence[Change] = (),
) -> Applied:
    """The edge from what was made to the entry, the entry's end, and the one event that tells of all of it."""
    wanted = call.input
    edge = Edge("artifact", made.artifact_id, "derived_from", "artifact", artifact.artifact_id)
    relation = join(tx, bundle.owner, edge, {"okf_key": okf_key})
    forgotten = tombstone(tx, artifact, reason)
    payload: dict[str, Any] = {**edge._asdict(), "path": path_of(node_id)}
    if wanted.override_reason is not None:
        payload["override_reason"] = wanted.override_reason
    commit_seq = tx.record_event(
        call.operation.name,
        "relation",
        relation.relation_id,
        actor=wanted.approved_by,
        payload=payload,
        also=[
            Change("artifact", made.artifact_id, revision.revision_id, made.status),
            Change("artifact", artifact.artifact_id, None, forgotten.status),
            *also,
        ],
    )
    decided = Decided(
        entry_id=artifact.artifact_id,
        state=PROMOTED,
        decided_by=wanted.approved_by,
        reason=reason,
        path=path_of(node_id),
        artifact_id=made.artifact_id,
        revision_id=revision.revision_id,
        relation_id=relation.relation_id,
    )
    return Applied(decided, commit_seq)


def _refuse(reason: str, message: str, **details: Any) -> NoReturn:
    raise MemoreeError(Code.INVALID_REQUEST, message, details={"reason": reason, **details})

"""The status of tasks: the one change of canon that an agent may make (OKF contract §5)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from memoree.database import artifacts
from memoree.database.okf import CANON, NodeRow
from memoree.database.sources import Source
from memoree.envelope import WireModel
from memoree.errors import invalid
from memoree.okf import detectors, discipline, editing, ledger
from memoree.okf.discipline import BLOCKED
from memoree.okf.ids import path_of
from memoree.okf.indexing import node_of
from memoree.operations import okf_nodes
from memoree.operations.call import Call
from memoree.operations.context import require_current_revision
from memoree.operations.ledger import instant_ms, record
from memoree.operations.registry import EXTENSION, mutation
from memoree.operations.shapes import Actor, EntityId
from memoree.operations.view import Applied, Transaction, View

SET_STATUS = "task.set_status"
TASK = "task"
REASON_CHARS_MAX = 1000
_PHASES = {BLOCKED: ("block", "wip"), "done": ("done", "ok")}
"""What the ledger says of a task that comes to a status: a phase and a status of its own."""


class TaskSetStatus(WireModel):
    """`if_revision` is the revision of the task that the caller has read."""

    id: Annotated[str, Field(min_length=1, max_length=4096)]
    status: Annotated[str, Field(min_length=1, max_length=64)]
    blocked_reason: Annotated[str, Field(max_length=REASON_CHARS_MAX)] | None = None
    if_revision: EntityId
    actor: Actor | None = None


class TaskStatus(BaseModel):
    id: str
    path: str
    artifact_id: str
    revision_id: str
    status: str
    blocked_reason: str | None = None


def _exists(view: View, call: Call[TaskSetStatus]) -> None:
    _task(view, call)


@mutation(SET_STATUS, position=EXTENSION, input=TaskSetStatus, result=TaskStatus, before_replay=_exists)
def set_status(tx: Transaction, call: Call[TaskSetStatus]) -> Applied:
    """Raises `NOT_FOUND`, `INVALID_REQUEST` for what is no task or no status of one, and `REVISION_CONFLICT`. The
    ledger is told under a commit number of its own, and without the reason: what a file says is erased with it."""
    wanted = call.input
    bundle, row = _task(tx, call)
    discipline.check_status("Task", wanted.status, wanted.blocked_reason)
    artifact = artifacts.by_row(tx.db, row.row_id)
    head = artifacts.head_revision(tx.db, artifact)
    require_current_revision("artifact", artifact.artifact_id, current=head.revision_id, requested=wanted.if_revision)
    before = okf_nodes.node_bytes(tx, row)
    reason = None if wanted.blocked_reason is None else wanted.blocked_reason.strip()
    after = editing.with_status(before, wanted.status, reason)
    told: dict[str, Any] = {
        "id": row.node_id,
        "path": path_of(row.node_id),
        "artifact_id": artifact.artifact_id,
        "status": wanted.status,
        "blocked_reason": reason,
    }
    if after == before:
        commit_seq = okf_nodes.item_of(tx, bundle, row).commit_seq
        return Applied(TaskStatus(revision_id=head.revision_id, **told), commit_seq, created=False)
    origin = okf_nodes.provenance(head) | {"edited_by": SET_STATUS}
    revision = okf_nodes.revise_node(tx, bundle, row, after, actor=wanted.actor, origin=origin)
    phase, status = _PHASES.get(wanted.status, ("step", "ok"))
    event = ledger.made(
        ts_ms=instant_ms(tx.now),
        actor=wanted.actor,
        topic=row.node_id,
        phase=phase,
        action=f"status {wanted.status}",
        status=status,
        artifact=path_of(row.node_id),
        ref=None,
        detect=detectors.labels,
    )
    tx.record_event(
        SET_STATUS,
        "artifact",
        artifact.artifact_id,
        revision_id=revision.revision_id,
        actor=wanted.actor,
        payload={"status": artifact.status},
    )
    commit_seq = record(tx, SET_STATUS, call.owner, event)
    return Applied(TaskStatus(revision_id=revision.revision_id, **told), commit_seq)


def _task(view: View, call: Call[TaskSetStatus]) -> tuple[Source, NodeRow]:
    bundle = okf_nodes.require_bundle(view, call)
    row = okf_nodes.named(view, bundle, call.input.id)
    kind = node_of(row).native_type
    if row.tier != CANON:
        invalid(f"id: {path_of(row.node_id)} is {row.tier}; only tasks of canon change in place")
    if kind.lower() != TASK:
        invalid(
            f"id: {path_of(row.node_id)} is no Task but a {kind or 'node without a type'}; only tasks change in place"
        )
    return bundle, row

"""The ambient context and `context.resolve`, which echoes it; and what every change of an entity must prove first:
its write scope, and that its author has seen the current revision (machine protocol §2, §3, §4.4)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from memoree.envelope import AmbientContext, ContextSource, Horizon
from memoree.errors import Code, MemoreeError, shown
from memoree.operations.call import Call
from memoree.operations.registry import read
from memoree.operations.shapes import EmptyInput, RecordContext
from memoree.operations.view import View
from memoree.owner import Owner


class ResolvedContext(RecordContext):
    """The request's context as a response repeats it (§2.2)."""

    resolved_from: ContextSource
    horizon: Horizon
    broadened: bool


class ContextResolution(BaseModel):
    resolved: bool
    context: ResolvedContext


@read("context.resolve", position=1, input=EmptyInput, result=ContextResolution, needs_context=True, short=True)
def resolve(view: View, call: Call[EmptyInput]) -> ContextResolution:
    return ContextResolution(resolved=True, context=ResolvedContext.model_validate(call.echoed_context()))


def same_scope(owner: Owner, context: AmbientContext) -> bool:
    """Same workspace and project, and not two different tasks (§2.5). Components never restrict."""
    return (
        owner.workspace_id == context.workspace_id
        and owner.project_id == context.project_id
        and (owner.task_id is None or context.task_id is None or owner.task_id == context.task_id)
    )


def is_visible(owner: Owner, context: AmbientContext, horizon: Horizon) -> bool:
    """The visibility predicate of §2.5, as `memoree.retrieval.scope.VISIBLE` has it in SQL."""
    if horizon == "personal":
        return True
    if horizon == "workspace":
        return owner.workspace_id == context.workspace_id
    return same_scope(owner, context)


def require_write_scope(call: Call[Any], owner: Owner, entity: str) -> None:
    """Raises `SCOPE_VIOLATION` unless the request's context may change what `owner` owns (§2.7). Pins never help.

    `entity` names the entity by type and id for the message, which never shows its content.
    """
    context = call.ambient
    if same_scope(owner, context):
        return
    raise MemoreeError(
        Code.SCOPE_VIOLATION,
        f"{entity} belongs to {place(owner)}; the request comes from {place(call.owner)}",
    )


def require_current_revision(
    entity_type: Literal["artifact", "claim"], entity_id: str, *, current: str, requested: str
) -> None:
    """Raises `REVISION_CONFLICT` unless the author has seen the current revision."""
    if requested == current:
        return
    raise MemoreeError(
        Code.REVISION_CONFLICT,
        f"{entity_type} {shown(entity_id)} is at revision {current}, not at {shown(requested)}",
        details={
            "entity_type": entity_type,
            "entity_id": entity_id,
            "current_revision": current,
            "requested_revision": requested,
        },
    )


def place(owner: Owner) -> str:
    """Names a context in a message."""
    task = f", task {shown(owner.task_id)}" if owner.task_id is not None else ""
    return f"workspace {shown(owner.workspace_id)}, project {shown(owner.project_id)}{task}"

"""Review of a project's bundle: what wants a decision, and a curator's plan, done whole or not at all (OKF contract
§4.5)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from memoree.database import artifacts, okf
from memoree.database import review as review_rows
from memoree.database.events import Change
from memoree.database.okf import NodeRow
from memoree.database.sources import Source
from memoree.envelope import WireModel
from memoree.okf import editing
from memoree.okf import review as domain
from memoree.okf.ids import SUFFIX
from memoree.okf.indexing import node_of
from memoree.okf.node import Node
from memoree.okf.review import PLAN_CHARS_MAX, STALE_DAYS_DEFAULT, STALE_DAYS_MAX, Step
from memoree.operations import okf_nodes
from memoree.operations.call import Call
from memoree.operations.ledger import activities, instant_ms
from memoree.operations.registry import EXTENSION, mutation, read
from memoree.operations.shapes import Actor
from memoree.operations.view import Applied, Transaction, View

REPORT, APPLY = "review.report", "review.apply"


class ReviewReport(WireModel):
    stale_days: Annotated[int, Field(ge=0, le=STALE_DAYS_MAX)] = STALE_DAYS_DEFAULT


class ReviewApply(WireModel):
    """`plan` has one decision a line: `id action [target]`. `approved_by` is who decided."""

    plan: Annotated[str, Field(max_length=PLAN_CHARS_MAX)]
    approved_by: Actor


class ReviewCandidates(BaseModel):
    candidateCount: int
    staleDays: int
    candidates: list[dict[str, Any]]


class ReviewApplied(BaseModel):
    """What became of each line, in their order."""

    results: list[dict[str, Any]]


@read(REPORT, position=EXTENSION, input=ReviewReport, result=ReviewCandidates, needs_context=True)
def report(view: View, call: Call[ReviewReport]) -> ReviewCandidates:
    """Of canon, secrets apart. A node was last touched when its present revision was stored, or when it says."""
    bundle = okf_nodes.bundle_of(view, call.owner)
    stale_days = call.input.stale_days
    if bundle is None:
        return ReviewCandidates(candidateCount=0, staleDays=stale_days, candidates=[])
    rows = [row for row in okf.every(view.db, bundle.row_id) if row.tier == okf.CANON]
    found = domain.candidates(
        [node_of(row) for row in rows],
        modified_ms=review_rows.stored_ms(view.db, bundle.row_id),
        activity=activities(view.db, call.owner),
        at_ms=instant_ms(view.now),
        stale_days=stale_days,
        pointed_at=review_rows.pointed_at(view.db, bundle.row_id),
    )
    told = [candidate.to_json() for candidate in found]
    return ReviewCandidates(candidateCount=len(told), staleDays=stale_days, candidates=told)


def _has_bundle(view: View, call: Call[ReviewApply]) -> None:
    okf_nodes.require_bundle(view, call)


@mutation(APPLY, position=EXTENSION, input=ReviewApply, result=ReviewApplied, before_replay=_has_bundle)
def apply(tx: Transaction, call: Call[ReviewApply]) -> Applied:
    """Every line is judged before the first is done, and all of them are done in one transaction, each under a commit
    number of its own. Raises `INVALID_REQUEST` for a plan of which any line cannot be done."""
    bundle = okf_nodes.require_bundle(tx, call)
    rows = {row.node_id: row for row in okf.every(tx.db, bundle.row_id) if row.tier in (okf.CANON, okf.RESERVED)}
    nodes: dict[str, Node] = {node_id: node_of(row) for node_id, row in rows.items()}
    steps = domain.steps(domain.parse_plan(call.input.plan), nodes)
    before = commit_seq = tx.meta.commit_seq
    for step in steps:
        if step.skipped is None and step.line.action != "keep":
            commit_seq = _do(tx, call, bundle, rows[step.node_id], step)
    return Applied(ReviewApplied(results=[step.to_json() for step in steps]), commit_seq, created=commit_seq != before)


def _do(tx: Transaction, call: Call[ReviewApply], bundle: Source, row: NodeRow, step: Step) -> int:
    """One decision, and the commit number that it takes. The event tells of it what an erasure leaves."""
    approver = call.input.approved_by
    artifact = artifacts.by_row(tx.db, row.row_id)
    if step.line.action == "archive":
        archived = domain.archived_id(row.node_id)
        okf_nodes.move_node(tx, bundle, row, archived)
        return tx.record_event(
            APPLY,
            "source_item",
            f"{bundle.source_id}:{archived}{SUFFIX}",
            actor=approver,
            payload={"status": "live", "renamed_from": f"{bundle.source_id}:{row.node_id}{SUFFIX}"},
            also=[Change("artifact", artifact.artifact_id, None, artifact.status)],
        )
    head = artifacts.head_revision(tx.db, artifact)
    origin = okf_nodes.provenance(head) | {"edited_by": APPLY, "approved_by": approver}
    data = _edited(okf_nodes.node_bytes(tx, row), step, instant_ms(tx.now))
    revision = okf_nodes.revise_node(tx, bundle, row, data, actor=approver, origin=origin)
    return tx.record_event(
        APPLY,
        "artifact",
        artifact.artifact_id,
        revision_id=revision.revision_id,
        actor=approver,
        payload={"status": artifact.status},
    )


def _edited(data: bytes, step: Step, at_ms: int) -> bytes:
    if step.line.action == "forget":
        return editing.deprecated(data, at_ms)
    assert step.target_id is not None, "a merge has a target"
    return editing.superseded_by(data, step.target_id)

"""`conflict.list`: the contradictions that wait for someone's decision (machine protocol §4.18). It decides nothing."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from memoree import clock, limits
from memoree.database import claims, conflicts, relations
from memoree.database.conflicts import Case
from memoree.envelope import Horizon
from memoree.operations.call import Call
from memoree.operations.claims import records
from memoree.operations.paging import cut
from memoree.operations.registry import read
from memoree.operations.relations import RelationRecord
from memoree.operations.shapes import FIRST_PAGE, ClaimRecord, HorizonInput, PageCursor, RecordContext
from memoree.operations.view import View
from memoree.retrieval.scope import scope_bindings

BROADEN_HINT = "no open contradiction in this horizon; a broader one needs a reason"


class ConflictList(HorizonInput):
    include_stale: bool = False
    limit: Annotated[int, Field(ge=1, le=limits.CONFLICT_LIST_ITEMS_MAX)] = limits.CONFLICT_LIST_ITEMS_MAX
    before_case_sequence: PageCursor | None = None


class ConflictEnd(BaseModel):
    """One claim of a case: the revision that took part, and the one that is current. Lifecycle members of both are
    today's."""

    claim_id: str
    frozen: ClaimRecord
    current: ClaimRecord
    frozen_is_current: bool


class ConflictCase(BaseModel):
    case_id: str
    relation_id: str
    state: Literal["open", "stale"]
    source: ConflictEnd
    target: ConflictEnd
    metadata: dict[str, Any]
    context: RecordContext
    opened_at: str
    updated_at: str
    state_reason: str
    opened_commit_seq: int
    case_sequence: int


class ConflictPage(BaseModel):
    """Newest case first; the cursor is there when older ones are."""

    horizon: Horizon
    include_stale: bool
    conflicts: list[ConflictCase]
    truncated: bool
    next_before_case_sequence: int | None = None
    broaden_hint: str | None = None


@read("conflict.list", position=30, input=ConflictList, result=ConflictPage, needs_context=True, horizon=True)
def list_conflicts(view: View, call: Call[ConflictList]) -> ConflictPage:
    wanted = call.input
    found = conflicts.newest_first(
        view.db,
        scope_bindings(view.db, call.ambient, wanted.horizon, now=view.now, historical=False),
        include_stale=wanted.include_stale,
        before=wanted.before_case_sequence or FIRST_PAGE,
    )
    described = (_described(view, case) for case in found)
    page, truncated = cut(described, limit=wanted.limit, bytes_max=limits.CONFLICT_PAGE_BYTES_MAX)
    return ConflictPage(
        horizon=wanted.horizon,
        include_stale=wanted.include_stale,
        conflicts=page,
        truncated=truncated,
        next_before_case_sequence=page[-1].case_sequence if truncated else None,
        broaden_hint=BROADEN_HINT if not page and wanted.horizon != "personal" else None,
    )


def _described(view: View, case: Case) -> ConflictCase:
    assert case.state != "resolved", "resolved cases are not listed"
    relation = RelationRecord.of(relations.by_row(view.db, case.relation_row))
    return ConflictCase(
        case_id=case.case_id,
        relation_id=relation.relation_id,
        state=case.state,
        source=_end(view, case.source_claim_row, case.source_revision_row),
        target=_end(view, case.target_claim_row, case.target_revision_row),
        metadata=relation.metadata,
        context=relation.context,
        opened_at=clock.wire(case.opened_at),
        updated_at=clock.wire(case.updated_at),
        state_reason=case.state_reason,
        opened_commit_seq=case.opened_commit_seq,
        case_sequence=case.case_sequence,
    )


def _end(view: View, claim_row: int, revision_row: int) -> ConflictEnd:
    claim = claims.by_row(view.db, claim_row)
    revisions = [claims.revision_by_row(view.db, row) for row in (revision_row, claim.head_row)]
    frozen, current = records(view, claim, revisions)
    return ConflictEnd(
        claim_id=claim.claim_id,
        frozen=frozen,
        current=current,
        frozen_is_current=revision_row == claim.head_row,
    )

"""What happens to conflict cases when claims and relations change (machine protocol §6.2, §6.3).

Between two commits, a contradiction whose two claims are both live has exactly one open case, over their current
revisions, and a live claim is `conflicted` exactly when an open case names it. Every function here keeps that within
the transaction of its cause; the tables make a second open case of one relation impossible.
"""

from __future__ import annotations

from collections.abc import Iterable

from memoree.database import claims, conflicts
from memoree.database.claims import Claim, Presentation
from memoree.database.conflicts import Case
from memoree.database.events import Change
from memoree.database.relations import Relation
from memoree.operations.view import Transaction

CONTRADICTED = "the contradiction was created"
REASSESSED = "reassessed after a claim revision"
REVISED = "a claim revision changed"
RETRACTED = "a claim was retracted"
SUPERSEDED = "a claim was superseded"


def contradicted(tx: Transaction, relation: Relation, source: Claim, target: Claim) -> list[Change]:
    """A new contradiction freezes both current revisions in an open case; both claims are conflicted now."""
    _open(
        tx,
        relation_row=relation.row_id,
        source=(source.row_id, source.head_row),
        target=(target.row_id, target.head_row),
        reason=CONTRADICTED,
    )
    return _reassessed(tx, [source, target])


def revised(tx: Transaction, claim: Claim, revision_row: int) -> None:
    """Every open case of the claim becomes stale and is succeeded by one over the new revision. The other claims are
    live, or their cases would be resolved; so nobody's status changes."""
    for case in conflicts.open_cases(tx.db, claim.row_id):
        _close(tx, case, "stale", REVISED)
        source, target = (
            (case.source_claim_row, case.source_revision_row),
            (case.target_claim_row, case.target_revision_row),
        )
        if claim.row_id == case.source_claim_row:
            source = (claim.row_id, revision_row)
        else:
            target = (claim.row_id, revision_row)
        _open(tx, relation_row=case.relation_row, source=source, target=target, reason=REASSESSED)


def ended(tx: Transaction, claim: Claim, reason: str) -> list[Change]:
    """The claim is retracted or superseded: its open cases are resolved, and the claims it was in conflict with may
    be undisputed again."""
    cases = conflicts.open_cases(tx.db, claim.row_id)
    for case in cases:
        _close(tx, case, "resolved", reason)
    others = dict.fromkeys(case.other_claim_row(claim.row_id) for case in cases)
    return _reassessed(tx, [claims.by_row(tx.db, row) for row in others])


def _reassessed(tx: Transaction, live: Iterable[Claim]) -> list[Change]:
    """The live claims whose presentation changed. `conflicted` is derived, never decided."""
    changes = []
    for claim in live:
        status: Presentation = "conflicted" if conflicts.is_contested(tx.db, claim.row_id) else "active"
        if status != claim.status:
            claims.set_presentation(tx.db, claim, status)
            changes.append(Change("claim", claim.claim_id, None, status))
    return changes


def _open(tx: Transaction, *, relation_row: int, source: tuple[int, int], target: tuple[int, int], reason: str) -> None:
    """`source` and `target` are rows of a claim and of the revision that is frozen."""
    case = Case(
        case_sequence=conflicts.next_sequence(tx.db),
        case_id=tx.new_id("ccase"),
        relation_row=relation_row,
        source_claim_row=source[0],
        source_revision_row=source[1],
        target_claim_row=target[0],
        target_revision_row=target[1],
        state="open",
        state_reason=reason,
        opened_commit_seq=tx.commit_seq,
        opened_at=tx.now,
        updated_at=tx.now,
    )
    opened = _event(tx, "opened", reason)
    conflicts.insert(tx.db, case, opened)
    tx.sum.add(conflicts.entry(case, opened))


def _close(tx: Transaction, case: Case, state: conflicts.ClosedState, reason: str) -> None:
    closed = _event(tx, state, reason)
    conflicts.close(tx.db, case, closed)
    tx.sum.add(conflicts.entry(case, closed))


def _event(tx: Transaction, event: conflicts.CaseEvent, reason: str) -> conflicts.Event:
    return conflicts.Event(tx.new_id("cevt"), event, reason, tx.commit_seq, tx.now)

"""Claims: atomic statements that cite exact bytes (machine protocol §4.11 to §4.15, §6.1, §6.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field, model_validator

from memoree.database import claims as rows
from memoree.database.claims import Claim, Evidence, Revision
from memoree.database.index import index_claim_revision
from memoree.envelope import WireModel
from memoree.errors import erased, invalid, not_found, shown
from memoree.operations.call import Call
from memoree.operations.context import require_current_revision, require_write_scope
from memoree.operations.contradictions import RETRACTED, ended, revised
from memoree.operations.registry import mutation, read
from memoree.operations.shapes import (
    Actor,
    ClaimAcknowledgement,
    ClaimHistory,
    ClaimRecord,
    ClaimType,
    Confidence,
    EntityId,
    EvidenceLocator,
    EvidenceLocators,
    EvidenceRecord,
    HistoryPage,
    Reason,
    Statement,
    Timestamp,
)
from memoree.operations.view import Applied, Transaction, View

TERMINAL = frozenset({"retracted", "superseded"})


class ClaimAssert(WireModel):
    claim_type: ClaimType
    statement: Statement
    confidence: Confidence | None = None
    valid_from: Timestamp | None = None
    valid_until: Timestamp | None = None
    actor: Actor | None = None
    evidence: EvidenceLocators = Field(default_factory=list)

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> ClaimAssert:
        if self.valid_from and self.valid_until and self.valid_from >= self.valid_until:
            raise ValueError("valid_from must be earlier than valid_until")
        return self


class ClaimGet(WireModel):
    claim_id: EntityId
    revision_id: EntityId | None = None


class ClaimRevise(WireModel):
    """Absent confidence, evidence and actor are not inherited. Type and validity belong to the claim for good."""

    claim_id: EntityId
    if_revision: EntityId
    statement: Statement
    confidence: Confidence | None = None
    actor: Actor | None = None
    evidence: EvidenceLocators = Field(default_factory=list)


class ClaimHistoryInput(HistoryPage):
    claim_id: EntityId


class ClaimRetract(WireModel):
    claim_id: EntityId
    reason: Annotated[Reason, Field(description="why the claim is withdrawn")]


def _existing(view: View, claim_id: str) -> Claim:
    """Raises `NOT_FOUND` for an unknown claim, and of the kind `erased` for one that was erased."""
    claim = rows.find(view.db, claim_id)
    if claim is None:
        not_found("claim", claim_id)
    if claim.erasure_row is not None:
        erased("claim", claim_id)
    return claim


def _exists_in_write_scope(view: View, call: Call[ClaimRevise] | Call[ClaimRetract]) -> None:
    claim = _existing(view, call.input.claim_id)
    require_write_scope(call, claim.owner, f"claim {shown(claim.claim_id)}")


@mutation("claim.assert", position=11, input=ClaimAssert, result=ClaimAcknowledgement)
def assert_claim(tx: Transaction, call: Call[ClaimAssert]) -> Applied:
    wanted = call.input
    cited = _cited(tx, wanted.evidence)
    claim = Claim(
        claim_id=tx.new_id("clm"),
        claim_type=wanted.claim_type,
        owner=call.owner,
        status="active",
        retraction_reason=None,
        valid_from=wanted.valid_from,
        valid_until=wanted.valid_until,
        head_row=tx.commit_seq,
        revision_count=1,
        created_at=tx.now,
        row_id=tx.commit_seq,
    )
    rows.insert(tx.db, claim)
    return _recorded(tx, call, claim, _new_revision(tx, call, number=1), cited)


@mutation(
    "claim.revise",
    position=14,
    input=ClaimRevise,
    result=ClaimAcknowledgement,
    before_replay=_exists_in_write_scope,
)
def revise(tx: Transaction, call: Call[ClaimRevise]) -> Applied:
    claim = _existing(tx, call.input.claim_id)
    cited = _cited(tx, call.input.evidence)
    previous = rows.head_revision(tx.db, claim)
    require_current_revision("claim", claim.claim_id, current=previous.revision_id, requested=call.input.if_revision)
    refuse_if_terminal(claim)
    revision = _new_revision(tx, call, number=previous.revision_number + 1)
    rows.move_head(tx.db, claim, revision)
    revised(tx, claim, revision.row_id)
    return _recorded(tx, call, claim, revision, cited)


@mutation(
    "claim.retract",
    position=15,
    input=ClaimRetract,
    result=ClaimAcknowledgement,
    scope="forget",
    before_replay=_exists_in_write_scope,
)
def retract(tx: Transaction, call: Call[ClaimRetract]) -> Applied:
    claim = _existing(tx, call.input.claim_id)
    if claim.status == "retracted":
        invalid(f"claim {shown(claim.claim_id)} is already retracted")
    reason = call.input.reason
    revision = rows.head_revision(tx.db, claim)
    rows.retract(tx.db, claim, reason, tx.commit_seq)
    tx.sum.add(rows.retraction_entry(claim.claim_id, reason))
    commit_seq = tx.record_event(
        "claim.retract",
        "claim",
        claim.claim_id,
        payload={"status": "retracted"},
        also=ended(tx, claim, RETRACTED),
    )
    retracted = replace(claim, status="retracted", retraction_reason=reason)
    return Applied(records(tx, retracted, [revision])[0], commit_seq)


@read("claim.get", position=12, input=ClaimGet, result=ClaimRecord, needs_context=False, short=True)
def get(view: View, call: Call[ClaimGet]) -> ClaimRecord:
    claim = _existing(view, call.input.claim_id)
    if call.input.revision_id is None:
        revision = rows.head_revision(view.db, claim)
    else:
        revision = existing_revision(view, claim, call.input.revision_id)
    return records(view, claim, [revision])[0]


@read("claim.history", position=13, input=ClaimHistoryInput, result=ClaimHistory, needs_context=False, short=True)
def history(view: View, call: Call[ClaimHistoryInput]) -> ClaimHistory:
    wanted = call.input
    claim = _existing(view, wanted.claim_id)
    found = rows.page(view.db, claim, before=wanted.before(claim.revision_count), limit=wanted.limit + 1)
    revisions, truncated = found[: wanted.limit], len(found) > wanted.limit
    return ClaimHistory(
        revisions=records(view, claim, revisions),
        truncated=truncated,
        next_before_revision_number=revisions[-1].revision_number if truncated else None,
    )


def existing_revision(view: View, claim: Claim, revision_id: str) -> Revision:
    """Raises `NOT_FOUND` for an unknown revision, and for one of another claim."""
    revision = rows.find_revision(view.db, claim, revision_id)
    if revision is None:
        not_found(f"revision of claim {shown(claim.claim_id)}", revision_id)
    return revision


def records(view: View, claim: Claim, revisions: Sequence[Revision]) -> list[ClaimRecord]:
    """The claim as each of its revisions shows it, with its evidence."""
    evidence = rows.evidence(view.db, [revision.row_id for revision in revisions])
    return [
        ClaimRecord.of(claim, revision, [EvidenceRecord.of(item) for item in evidence.get(revision.row_id, ())])
        for revision in revisions
    ]


def refuse_if_terminal(claim: Claim) -> None:
    """Raises `INVALID_REQUEST` for a claim that is retracted or superseded."""
    if claim.status in TERMINAL:
        invalid(f"claim {shown(claim.claim_id)} is {claim.status}; assert a new claim instead")


def _cited(tx: Transaction, locators: list[EvidenceLocator]) -> list[Evidence]:
    """The evidence with its rows. Raises `NOT_FOUND` for a revision that does not exist or is not that artifact's,
    `INVALID_REQUEST` for a span that leaves it. Scope is no matter: a claim may cite what it may not change."""
    if not locators:
        return []
    known = rows.citable(tx.db, [locator.revision_id for locator in locators])
    cited = []
    for locator in locators:
        revision = known.get(locator.revision_id)
        if revision is None or revision.artifact_id != locator.artifact_id:
            not_found(f"evidence: revision of artifact {shown(locator.artifact_id)}", locator.revision_id)
        if revision.is_erased:
            erased("evidence: artifact", locator.artifact_id)
        if locator.end_byte is not None and locator.end_byte > revision.size_bytes:
            invalid(
                f"evidence: the span {locator.start_byte}-{locator.end_byte} leaves revision "
                f"{shown(locator.revision_id)} of {revision.size_bytes} bytes"
            )
        cited.append(
            Evidence(locator.artifact_id, locator.revision_id, revision.row_id, locator.start_byte, locator.end_byte)
        )
    return cited


def _new_revision(tx: Transaction, call: Call[ClaimAssert] | Call[ClaimRevise], *, number: int) -> Revision:
    return Revision(
        revision_id=tx.new_id("crev"),
        revision_number=number,
        statement=call.input.statement,
        confidence=call.input.confidence,
        actor=call.input.actor,
        created_at=tx.now,
        row_id=tx.commit_seq,
    )


def _recorded(
    tx: Transaction,
    call: Call[ClaimAssert] | Call[ClaimRevise],
    claim: Claim,
    revision: Revision,
    cited: list[Evidence],
) -> Applied:
    """Store a revision whose claim row is in place, index it, and consume the commit number."""
    rows.insert_revision(tx.db, claim, revision, cited)
    index_claim_revision(tx.db, revision_row=revision.row_id, statement=revision.statement)
    tx.sum.add(rows.revision_entry(claim, revision, cited))
    commit_seq = tx.record_event(
        call.operation.name,
        "claim",
        claim.claim_id,
        revision_id=revision.revision_id,
        actor=revision.actor,
        payload={"status": claim.status},
    )
    return Applied(ClaimRecord.of(claim, revision, [EvidenceRecord.of(item) for item in cited]), commit_seq)

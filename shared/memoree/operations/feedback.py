"""Feedback on what retrieval answered (machine protocol §4.27 to §4.29). Nothing is captured by itself, and nothing
that is recorded changes a ranking.

A query is kept only where the caller asks for it. What is always kept is its fingerprint, BLAKE3 under the store's
random key, of the query as retrieval reads it: `query_analysis.normalized_query`, so that spellings that ask the same
have the same fingerprint. The request holds the query on its way to the writer and no longer: its message and parked
command are deleted once it is decided (a dead letter after its retention), and neither outcome nor event nor
idempotency record repeats it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, TypeVar

import orjson
from blake3 import blake3
from pydantic import AfterValidator, BaseModel, Field

from memoree import clock, limits
from memoree.database import feedback as rows
from memoree.database.feedback import Feedback
from memoree.envelope import WireModel, bounded
from memoree.errors import not_found, shown
from memoree.operations.call import Call
from memoree.operations.context import require_write_scope
from memoree.operations.paging import cut
from memoree.operations.registry import mutation, read
from memoree.operations.shapes import FIRST_PAGE, Acknowledgement, Actor, EntityId, RecordContext, RevisionCursor
from memoree.operations.view import Applied, Transaction, View
from memoree.retrieval.query import analyze

Outcome = Literal["miss", "useful", "incorrect", "stale"]


def _searchable(query: str) -> str:
    """Raises `INVALID_REQUEST` for what could not have been searched for; its message does not show the query."""
    analyze(query)
    return query


class FeedbackRecordInput(WireModel):
    """Citations are kept as they are: nothing checks that they exist."""

    query: Annotated[
        str, AfterValidator(_searchable), Field(json_schema_extra={"minLength": 1, "maxLength": limits.QUERY_BYTES_MAX})
    ]
    outcome: Outcome
    retain_query: bool = False
    citations: Annotated[
        list[Annotated[str, bounded(limits.FEEDBACK_CITATION_BYTES_MAX)]],
        Field(max_length=limits.FEEDBACK_CITATIONS_MAX),
    ] = Field(default_factory=list)
    note: Annotated[str, bounded(limits.FEEDBACK_NOTE_BYTES_MAX)] | None = None
    actor: Actor | None = None


class FeedbackGet(WireModel):
    feedback_id: EntityId


class FeedbackPageInput(WireModel):
    """The cursor is exclusive and may be any number: below the first commit lies an empty last page."""

    limit: Annotated[int, Field(ge=1, le=limits.FEEDBACK_ITEMS_MAX)] = limits.FEEDBACK_ITEMS_MAX
    before_commit_seq: RevisionCursor | None = None


class FeedbackRecord(BaseModel):
    """`query_fingerprint` has 64 hex digits and compares within one store only."""

    feedback_id: str
    outcome: Outcome
    query_fingerprint: str
    retained_query: str | None = None
    citations: list[str]
    note: str | None = None
    actor: str | None = None
    context: RecordContext
    created_at: str
    commit_seq: int

    @classmethod
    def of(cls, feedback: Feedback) -> FeedbackRecord:
        return cls(
            feedback_id=feedback.feedback_id,
            outcome=feedback.outcome,
            query_fingerprint=feedback.query_fingerprint,
            retained_query=feedback.retained_query,
            citations=orjson.loads(feedback.citations),
            note=feedback.note,
            actor=feedback.actor,
            context=RecordContext.of(feedback.owner),
            created_at=clock.wire(feedback.created_at),
            commit_seq=feedback.row_id,
        )


class FeedbackAcknowledgement(FeedbackRecord, Acknowledgement):
    """The result of `feedback.record`."""


class FeedbackPage(BaseModel):
    """Newest first; the cursor is there when older records are."""

    feedback: list[FeedbackRecord]
    truncated: bool
    next_before_commit_seq: int | None = None


class ExportedCase(BaseModel):
    """A query that was retained, and what was said of its answer."""

    feedback_id: str
    query: str
    outcome: Outcome
    citations: list[str]
    note: str | None = None
    created_at: str
    commit_seq: int

    @classmethod
    def of(cls, feedback: Feedback) -> ExportedCase:
        record = FeedbackRecord.of(feedback)
        assert record.retained_query is not None, "only retained queries are asked for"
        return cls(
            feedback_id=record.feedback_id,
            query=record.retained_query,
            outcome=record.outcome,
            citations=record.citations,
            note=record.note,
            created_at=record.created_at,
            commit_seq=record.commit_seq,
        )


Listed = TypeVar("Listed", FeedbackRecord, ExportedCase)


class FeedbackExport(BaseModel):
    """Newest first; the cursor is there when older cases are."""

    schema_version: Literal[1] = 1
    format: Literal["memoree_retrieval_feedback_v1"] = "memoree_retrieval_feedback_v1"
    cases: list[ExportedCase]
    truncated: bool
    next_before_commit_seq: int | None = None


@mutation("feedback.record", position=26, input=FeedbackRecordInput, result=FeedbackAcknowledgement)
def record(tx: Transaction, call: Call[FeedbackRecordInput]) -> Applied:
    wanted = call.input
    feedback = Feedback(
        feedback_id=tx.new_id("fb"),
        outcome=wanted.outcome,
        query_fingerprint=_fingerprint(_key(tx), wanted.query),
        retained_query=wanted.query if wanted.retain_query else None,
        citations=orjson.dumps(wanted.citations).decode(),
        note=wanted.note,
        actor=wanted.actor,
        owner=call.owner,
        created_at=tx.now,
        row_id=tx.commit_seq,
    )
    rows.insert(tx.db, feedback)
    tx.sum.add(rows.entry(feedback))
    commit_seq = tx.record_event("feedback.record", "feedback", feedback.feedback_id, actor=feedback.actor)
    return Applied(FeedbackRecord.of(feedback), commit_seq)


@read("feedback.get", position=27, input=FeedbackGet, result=FeedbackRecord, needs_context=True, short=True)
def get(view: View, call: Call[FeedbackGet]) -> FeedbackRecord:
    feedback = rows.find(view.db, call.input.feedback_id)
    if feedback is None:
        not_found("feedback", call.input.feedback_id)
    require_write_scope(call, feedback.owner, f"feedback {shown(feedback.feedback_id)}")
    return FeedbackRecord.of(feedback)


@read("feedback.list", position=28, input=FeedbackPageInput, result=FeedbackPage, needs_context=True)
def list_feedback(view: View, call: Call[FeedbackPageInput]) -> FeedbackPage:
    found = _visible(view, call, retained_only=False)
    page, truncated = _cut(map(FeedbackRecord.of, found), call)
    return FeedbackPage(feedback=page, truncated=truncated, next_before_commit_seq=_cursor(page, truncated))


@read("feedback.export", position=29, input=FeedbackPageInput, result=FeedbackExport, needs_context=True)
def export(view: View, call: Call[FeedbackPageInput]) -> FeedbackExport:
    found = _visible(view, call, retained_only=True)
    page, truncated = _cut(map(ExportedCase.of, found), call)
    return FeedbackExport(cases=page, truncated=truncated, next_before_commit_seq=_cursor(page, truncated))


def _key(tx: Transaction) -> bytes:
    """The key of the store's fingerprints; the first feedback makes it."""
    if (stored := rows.key(tx.db)) is not None:
        return stored
    made = rows.make_key(tx.db)
    tx.sum.add(rows.key_entry(made))
    return made


def _fingerprint(key: bytes, query: str) -> str:
    return blake3(analyze(query).normalized.encode(), key=key).hexdigest()


def _visible(view: View, call: Call[FeedbackPageInput], *, retained_only: bool) -> Iterator[Feedback]:
    """What may stand on the page, and one record more: it tells whether anything follows."""
    wanted = call.input
    before = FIRST_PAGE if wanted.before_commit_seq is None else wanted.before_commit_seq
    return rows.page(view.db, call.owner, before=before, limit=wanted.limit + 1, retained_only=retained_only)


def _cut(items: Iterable[Listed], call: Call[FeedbackPageInput]) -> tuple[list[Listed], bool]:
    return cut(items, limit=call.input.limit, bytes_max=limits.FEEDBACK_PAGE_BYTES_MAX)


def _cursor(page: Sequence[FeedbackRecord] | Sequence[ExportedCase], truncated: bool) -> int | None:
    return page[-1].commit_seq if truncated else None

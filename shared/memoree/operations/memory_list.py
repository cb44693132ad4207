"""`memory.list`: the texts and claims of a project as an agent looks them over, newest first, one line for each. The
lists of HTTP (`memoree.browsing`) have more filters and whole records."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from memoree.browsing.lists import LISTINGS, Page
from memoree.browsing.queries import ArtifactQuery, ClaimQuery, Position, Query
from memoree.citation import ArtifactCitation, claim_citation
from memoree.database.artifacts import HIDDEN_KINDS
from memoree.envelope import WireModel, parse
from memoree.operations.call import Call
from memoree.operations.registry import EXTENSION, Read, read
from memoree.operations.shapes import FIRST_PAGE, ArtifactRecord, ClaimRecord, Kind
from memoree.operations.view import View

ITEMS_MAX, ITEMS_DEFAULT = 100, 20
STATEMENT_CHARS_MAX = 500

_PAGES: dict[str, Read] = {each.name: each.operation for each in LISTINGS}


class MemoryList(WireModel):
    """`kind` is the kind of artifacts, or the type of claims."""

    of: Literal["artifacts", "claims"] = "artifacts"
    kind: Kind | None = None
    limit: Annotated[int, Field(ge=1, le=ITEMS_MAX)] = ITEMS_DEFAULT
    before: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None


class Listed(BaseModel):
    """`text` is the title of an artifact, or what a claim states, as far as it goes on one line."""

    artifact_id: str | None = None
    claim_id: str | None = None
    kind: str
    text: str
    status: str
    citation: str
    created_at: str


class ListedPage(BaseModel):
    items: list[Listed]
    next_before: int | None = None


@read("memory.list", position=EXTENSION, input=MemoryList, result=ListedPage, needs_context=True)
def memory_list(view: View, call: Call[MemoryList]) -> ListedPage:
    """Raises `INVALID_REQUEST` for a type that claims do not have."""
    wanted = call.input
    position = Position(query=_query(wanted), before=wanted.before or FIRST_PAGE)
    operation = _PAGES[wanted.of]
    page = operation.run(
        view,
        Call(
            operation=operation,
            request_id=call.request_id,
            context=call.context,
            context_source=call.context_source,
            idempotency_key="",
            fingerprint=b"",
            input=position,
        ),
    )
    assert isinstance(page, Page)
    shown = (item for item in page.items if getattr(item, "kind", None) not in HIDDEN_KINDS)
    return ListedPage(items=[_line(item) for item in shown], next_before=page.next_before)


def _query(wanted: MemoryList) -> Query:
    if wanted.of == "claims":
        return parse(ClaimQuery, {"limit": wanted.limit, "type": wanted.kind})
    return parse(ArtifactQuery, {"limit": wanted.limit, "kind": wanted.kind})


def _line(record: BaseModel) -> Listed:
    if isinstance(record, ClaimRecord):
        return Listed(
            claim_id=record.claim_id,
            kind=record.claim_type,
            text=_cut(record.statement),
            status=record.status,
            citation=claim_citation(record.claim_id, record.revision_id),
            created_at=record.created_at,
        )
    assert isinstance(record, ArtifactRecord)
    return Listed(
        artifact_id=record.artifact_id,
        kind=record.kind,
        text=_cut(record.title),
        status=record.status,
        citation=str(ArtifactCitation(record.artifact_id, record.revision_id)),
        created_at=record.created_at,
    )


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= STATEMENT_CHARS_MAX else f"{line[:STATEMENT_CHARS_MAX]}…"

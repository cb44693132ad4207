"""`citation.get`: exactly the bytes that a ranged artifact citation names (machine protocol §4.8, §5.2).

It proves that bytes exist at a place. It says nothing of their relevance, and works for forgotten artifacts and old
revisions alike.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, Field

from memoree import limits
from memoree.citation import CLAIM_PREFIX, ArtifactCitation, Span, parse
from memoree.database import artifacts as rows
from memoree.database.artifacts import Revision
from memoree.envelope import WireModel
from memoree.errors import Code, MemoreeError, shown
from memoree.media import indexable_text
from memoree.operations.artifacts import read_body
from memoree.operations.call import Call
from memoree.operations.registry import read
from memoree.operations.view import View

ErrorKind = Literal[
    "invalid_output_limit",
    "malformed_citation",
    "span_out_of_range",
    "unknown_artifact",
    "unknown_revision",
    "erased",
    "range_required",
    "non_text_content",
    "utf8_boundary",
]

_LIMIT_RANGE = f"{limits.CITATION_FETCH_BYTES_MIN} to {limits.CITATION_FETCH_BYTES_MAX}"
NEXT_ACTION: dict[ErrorKind, str] = {
    "invalid_output_limit": f"ask for {_LIMIT_RANGE} bytes",
    "malformed_citation": "pass an artifact citation as a search returned it, with its #START-END",
    "span_out_of_range": "name bytes inside of the revision, START below END",
    "unknown_artifact": "search again: the citation is of another store, or was changed on the way",
    "unknown_revision": "list the revisions with artifact.history",
    "erased": "look for another source: the bytes are gone for good",
    "range_required": "add #START-END, or read the whole revision with artifact.get",
    "non_text_content": "read the revision with artifact.get; of more than 8 MiB, the bytes of a Range over HTTP",
    "utf8_boundary": "move START and END to where characters begin",
}


class CitationGet(WireModel):
    """What its members may hold is judged by the operation: every failure is a `CITATION_ERROR` of some kind."""

    citation: Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": limits.CITATION_BYTES_MAX})]
    max_bytes: Annotated[
        int,
        Field(
            ge=0,
            json_schema_extra={
                "minimum": limits.CITATION_FETCH_BYTES_MIN,
                "maximum": limits.CITATION_FETCH_BYTES_MAX,
            },
        ),
    ] = limits.CITATION_FETCH_BYTES_MAX


class CitedBytes(BaseModel):
    """`citation` names exactly the bytes of `content`, fewer than were asked for when `truncated`."""

    content_is_untrusted: Literal[True] = True
    citation: str
    content: str
    byte_count: int
    media_type: str
    truncated: bool
    remaining_bytes: int | None = None


@read("citation.get", position=7, input=CitationGet, result=CitedBytes, needs_context=False)
def get(view: View, call: Call[CitationGet]) -> CitedBytes:
    return fetch(view, call.input)


def fetch(view: View, wanted: CitationGet) -> CitedBytes:
    """Raises `CITATION_ERROR` of some kind (§4.8), in the order of that list."""
    limit = wanted.max_bytes
    if not limits.CITATION_FETCH_BYTES_MIN <= limit <= limits.CITATION_FETCH_BYTES_MAX:
        _refuse("invalid_output_limit", f"max_bytes is {limit}; it is {_LIMIT_RANGE}")
    citation = _parsed(wanted.citation)
    span = citation.span
    if span is not None and span.start >= span.end:
        _refuse("span_out_of_range", "the span is empty or reversed", **_offsets(span))
    revision = _cited_revision(view, citation)
    if span is None:
        _refuse("range_required", "the citation names a whole revision", **_told(citation, revision))
    data = _text_bytes(view, citation, revision)
    if span.end > len(data):
        _refuse(
            "span_out_of_range",
            f"the revision has {len(data)} bytes",
            **_offsets(span),
            total_byte_count=len(data),
        )
    if _splits_character(data, span.start) or _splits_character(data, span.end):
        _refuse("utf8_boundary", "an offset lies inside of a character", **_offsets(span))
    return _cut(citation, span, data, revision.media_type, limit)


def _cut(citation: ArtifactCitation, span: Span, data: bytes, media_type: str, limit: int) -> CitedBytes:
    """The span, or as many whole characters from its start as the limit allows."""
    end = min(span.end, span.start + limit)
    while _splits_character(data, end):
        end -= 1
    remaining = span.end - end
    return CitedBytes(
        citation=str(citation._replace(span=Span(span.start, end))),
        content=data[span.start : end].decode(),
        byte_count=end - span.start,
        media_type=media_type,
        truncated=remaining > 0,
        remaining_bytes=remaining or None,
    )


def _parsed(text: str) -> ArtifactCitation:
    if text.startswith(CLAIM_PREFIX):
        _refuse("malformed_citation", f"{shown(text)} cites a claim, which has no bytes of its own; its evidence has")
    try:
        return parse(text)
    except ValueError as error:
        _refuse("malformed_citation", f"{shown(text)} cites nothing: {error}")


def _cited_revision(view: View, citation: ArtifactCitation) -> Revision:
    ids = {"artifact_id": citation.artifact_id, "revision_id": citation.revision_id}
    artifact = rows.find(view.db, citation.artifact_id)
    if artifact is None or artifact.kind in rows.HIDDEN_KINDS:
        _refuse("unknown_artifact", f"artifact {shown(citation.artifact_id)} does not exist", **ids)
    revision = rows.find_revision(view.db, artifact, citation.revision_id)
    if revision is None:
        _refuse("unknown_revision", f"the artifact has no revision {shown(citation.revision_id)}", **ids)
    if artifact.erasure_row is not None:
        _refuse("erased", f"artifact {shown(citation.artifact_id)} was erased", **ids)
    return revision


def _text_bytes(view: View, citation: ArtifactCitation, revision: Revision) -> bytes:
    """The bytes of a revision whose words are indexed: what a search cites can be fetched, JSON and XML too."""
    small = revision.size_bytes <= limits.ARTIFACT_BYTES_MAX
    data = read_body(view, revision) if small else None
    if data is None or indexable_text(revision.media_type, data) is None:
        _refuse(
            "non_text_content",
            f"the revision holds {shown(revision.media_type)} that is not searched as text",
            **_told(citation, revision),
        )
    return data


def _splits_character(data: bytes, offset: int) -> bool:
    """Whether the byte at `offset` continues a character of UTF-8."""
    return offset < len(data) and data[offset] & 0b1100_0000 == 0b1000_0000


def _offsets(span: Span) -> dict[str, int]:
    return {"start_byte": span.start, "end_byte": span.end}


def _told(citation: ArtifactCitation, revision: Revision) -> dict[str, Any]:
    return {
        "citation": str(citation),
        "media_type": revision.media_type,
        "total_byte_count": revision.size_bytes,
    }


def _refuse(kind: ErrorKind, message: str, **details: Any) -> NoReturn:
    raise MemoreeError(
        Code.CITATION_ERROR,
        message,
        details={"citation_error": kind, **details, "next_action": NEXT_ACTION[kind]},
    )

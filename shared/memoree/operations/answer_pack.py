"""`answer.pack`: what an agent reads before it answers from the bundle of a project (OKF contract §7).

One search, at most five nodes in full, neighbours within these, and what memory does not cover, within a token budget.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from memoree.database import okf
from memoree.envelope import WireModel
from memoree.okf.answer_rules import HITS_MAX
from memoree.okf.answering import (
    NEIGHBOURS_MAX,
    TOKEN_BUDGET_DEFAULT,
    TOKEN_BUDGET_MAX,
    TOKEN_BUDGET_MIN,
    Found,
    PackHit,
    PackNeighbour,
    Read,
    assembled,
)
from memoree.okf.ranking import Answer
from memoree.operations import okf_nodes, okf_search
from memoree.operations.call import Call
from memoree.operations.okf_search import MODE_USED, QUERY_CHARS_MAX, OkfSearch, snippet
from memoree.operations.registry import EXTENSION, read
from memoree.operations.shapes import Timestamp
from memoree.operations.view import View

PACK = "answer.pack"
_READABLE = frozenset((okf.CANON, okf.MIRROR))


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


class AnswerPack(WireModel):
    """`token_budget` is for all of the pack but the question, at four characters a token. `as_of` is the instant at
    which validity and age are judged."""

    question: Annotated[str, AfterValidator(_not_blank), Field(max_length=QUERY_CHARS_MAX)]
    token_budget: Annotated[int, Field(ge=TOKEN_BUDGET_MIN, le=TOKEN_BUDGET_MAX)] = TOKEN_BUDGET_DEFAULT
    exclude_source: Annotated[str, Field(pattern=r"^[a-z0-9-]+$", max_length=128)] | None = None
    include_mirror: bool = True
    as_of: Timestamp | None = None


GapKind = Literal[
    "no_hits",
    "set_aside",
    "hits_left_out",
    "unmatched_words",
    "cut",
    "age",
    "undated",
    "same_day",
    "all_old",
    "hygiene",
    "conflict",
    "instruction_like",
]


class PackedHit(BaseModel):
    """`snippet` is there for hits that were not read, `hygiene` for those with a label."""

    id: str
    path: str
    type: str
    title: str
    score: float
    snippet: str | None
    hygiene: str | None
    is_read: bool


class PackedNode(BaseModel):
    """A file; one that was reached by a hop names the hit it stands beside, and the kind of the edge."""

    id: str
    path: str
    type: str
    title: str
    reached: Literal["hit", "hop"]
    kind: str | None = None
    expandedFrom: str | None = None
    hygiene: str | None
    date: str | None
    truncated: bool
    content: str


class Gap(BaseModel):
    """What memory does not cover; each kind has the members that it needs."""

    gap: GapKind
    path: str | None = None
    title: str | None = None
    label: str | None = None
    labels: list[str] | None = None
    words: list[str] | None = None
    count: int | None = None
    tokens_left_out: int | None = None
    date: str | None = None
    newest: str | None = None
    age_days: int | None = None


class Pack(BaseModel):
    """A description of what `memoree.okf.answering` assembles."""

    question: str
    as_of: str
    mode: str
    k: int
    token_budget: int
    tokens: int
    content_is_untrusted: Literal[True]
    hits: list[PackedHit]
    nodes: list[PackedNode]
    cite: list[str]
    gaps: list[Gap]
    closing_heading: str


@read(PACK, position=EXTENSION, input=AnswerPack, result=Pack, needs_context=True)
def pack(view: View, call: Call[AnswerPack]) -> dict[str, Any]:
    """A project without a bundle has nothing on any question."""
    wanted = call.input
    search = OkfSearch.model_construct(
        query=wanted.question,
        k=HITS_MAX,
        exclude_source=wanted.exclude_source,
        include_mirror=wanted.include_mirror,
        expand=True,
        expand_budget=NEIGHBOURS_MAX,
        as_of=wanted.as_of,
    )
    query = okf_search.query_of(view, search)
    corpus = okf_search.open_corpus(view, call, query)
    found = Found(MODE_USED, [], []) if corpus is None else _found(view, corpus.search())
    read_file = _reader(view, call)
    return assembled(wanted.question, found, read_file, at_ms=query.at_ms, token_budget=wanted.token_budget)


def _found(view: View, answer: Answer) -> Found:
    hits = [
        PackHit(hit.row.node_id, hit.row.type, hit.row.title, hit.score, snippet(view, hit.row, answer), hit.label)
        for hit in answer.hits
    ]
    neighbours = [
        PackNeighbour(each.row.node_id, each.row.type, each.row.title, each.kind, each.expanded_from, each.hygiene)
        for each in answer.expanded or ()
    ]
    return Found(MODE_USED, hits, neighbours)


def _reader(view: View, call: Call[AnswerPack]) -> Read:
    """Of nodes that a search may show."""
    bundle = okf_nodes.bundle_of(view, call.owner)

    def file_of(node_id: str) -> bytes | None:
        row = None if bundle is None else okf.by_id(view.db, bundle.row_id, node_id)
        return None if row is None or row.tier not in _READABLE else okf_nodes.node_bytes(view, row)

    return file_of

"""What the tools take. Descriptions are for the model that fills them in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from memoree import limits
from memoree.clock import parse_timestamp
from memoree.envelope import WireModel, bounded, length
from memoree.okf.answering import TOKEN_BUDGET_DEFAULT, TOKEN_BUDGET_MAX, TOKEN_BUDGET_MIN
from memoree.okf.ranking import EXPAND_BUDGET_DEFAULT, K_DEFAULT, K_MAX
from memoree.operations.inbox import CONTENT_BYTES_MAX
from memoree.operations.okf_search import QUERY_CHARS_MAX
from memoree.operations.shapes import ClaimType, Kind, Title

TEXT_BYTES_MAX = limits.MIB
"""Of one memory: longer texts are documents, which `memoree ingest` and the connectors bring in."""
CLAIMS_MAX = 32
"""Of one memory; each is a write of its own."""
QUOTE_BYTES_MAX = 8 * limits.KIB
REASON_BYTES_MAX = 4 * limits.KIB
DAYS_MAX = 3660
CONTEXT_BYTES_MAX = 256 * limits.KIB
LINE_BYTES_MAX = 4 * limits.KIB
FLEET_ENTRIES_MAX = 32


def _whole(value: Any) -> Any:
    """`5.0` is 5: some clients know no integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole, json_schema_input_type=int)]


def _instant(text: str) -> str:
    parse_timestamp(text)
    return text


Line = Annotated[str, bounded(LINE_BYTES_MAX), length(LINE_BYTES_MAX)]
Text = Annotated[str, bounded(TEXT_BYTES_MAX), length(TEXT_BYTES_MAX)]
Quote = Annotated[str, bounded(QUOTE_BYTES_MAX), length(QUOTE_BYTES_MAX)]
Query = Annotated[str, bounded(limits.QUERY_BYTES_MAX), length(limits.QUERY_BYTES_MAX)]
Words = Annotated[str, bounded(limits.QUERY_BYTES_MAX), length(QUERY_CHARS_MAX)]
"""For the ranker of bundles."""
Proposal = Annotated[str, bounded(CONTENT_BYTES_MAX), length(CONTENT_BYTES_MAX)]
Reason = Annotated[str, bounded(REASON_BYTES_MAX), length(REASON_BYTES_MAX)]
Id = Annotated[str, bounded(limits.ID_BYTES_MAX), length(limits.ID_BYTES_MAX)]
CitationText = Annotated[str, bounded(limits.CITATION_BYTES_MAX), length(limits.CITATION_BYTES_MAX)]
Instant = Annotated[str, AfterValidator(_instant), Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339, kept as it was given."""


class Nothing(WireModel):
    pass


class Wider(WireModel):
    """What a read takes that may look beyond its project."""

    horizon: Annotated[
        Literal["ambient", "workspace", "personal"],
        Field(
            description="How far to look: `ambient` is the current project. Anything wider needs the user's wish "
            "and a `reason`."
        ),
    ] = "ambient"
    reason: Annotated[
        Reason | None, Field(description="Why the search has to go beyond the project; with a wider `horizon` only.")
    ] = None

    @model_validator(mode="after")
    def _reason_comes_with_a_wider_horizon(self) -> Wider:
        if (self.horizon == "ambient") != (self.reason is None):
            raise ValueError("a horizon other than ambient and a reason go together")
        return self


# --- the agent's memory ---------------------------------------------------------------------------------------------


class Retrieve(Wider):
    query: Annotated[Query, Field(description="What to find, in the words the memory would use.")]
    max_claims: Annotated[Whole, Field(ge=1, le=10, description="How many claims at most.")] = 5
    max_artifact_refs: Annotated[Whole, Field(ge=1, le=20, description="How many source texts at most.")] = 3
    reformulation: Annotated[
        Query | None,
        Field(description="The same question in other words, tried when nothing answers the `query` itself."),
    ] = None


class Claim(WireModel):
    statement: Annotated[Line, Field(description="One self-contained sentence that is true if the quote is.")]
    quote: Annotated[
        Quote,
        Field(description="The words of `text` that say so, copied exactly, white space included."),
    ]
    occurrence: Annotated[
        Whole | None,
        Field(ge=1, description="Which one is meant, counted from 1, where the quote stands in the text repeatedly."),
    ] = None
    claim_type: Annotated[ClaimType, Field(description="What kind of statement it is.")] = "fact"
    confidence: Annotated[
        float | None, Field(strict=False, ge=0, le=1, description="How certain it is, 0 to 1; leave out if unknown.")
    ] = None
    valid_from: Annotated[Instant | None, Field(description="From when on it holds, RFC 3339.")] = None
    valid_until: Annotated[Instant | None, Field(description="The first instant it no longer holds, RFC 3339.")] = None

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> Claim:
        window = [parse_timestamp(instant) for instant in (self.valid_from, self.valid_until) if instant]
        if len(window) == 2 and window[0] >= window[1]:
            raise ValueError("valid_from must be earlier than valid_until")
        return self


class Remember(WireModel):
    text: Annotated[
        Text,
        Field(description="What to keep, verbatim: the words that were said or written, not your summary of them."),
    ]
    title: Annotated[Title | None, Field(description="A short title. Without one, the text's first line.")] = None
    kind: Annotated[Kind, Field(description="What sort of text it is: note, message, decision, document …")] = "note"
    claims: Annotated[
        list[Claim],
        Field(max_length=CLAIMS_MAX, description="What the text states, each with the quote that proves it."),
    ] = Field(default_factory=list)


class Forget(WireModel):
    artifact_id: Annotated[Id, Field(description="The `artifact_id` of the memory, as other tools return it.")]
    reason: Annotated[Reason, Field(description="Why it should no longer be found, in the user's words.")]


class Retract(WireModel):
    claim_id: Annotated[Id, Field(description="The `claim_id` of the claim, as other tools return it.")]
    reason: Annotated[Reason, Field(description="Why the claim is withdrawn.")]


class Browse(WireModel):
    of: Annotated[Literal["artifacts", "claims"], Field(description="Which list.")] = "artifacts"
    kind: Annotated[
        Kind | None,
        Field(description="Only artifacts of this kind, or claims of this type."),
    ] = None
    limit: Annotated[Whole, Field(ge=1, le=100, description="How many at most.")] = 20
    before: Annotated[Whole | None, Field(ge=1, description="`next_before` of the page before this one, to go on.")] = (
        None
    )


class BuildContext(Wider):
    query: Annotated[Query, Field(description="What the context is needed for.")]
    limit: Annotated[Whole, Field(ge=1, le=100, description="How many claims and texts at most.")] = 10
    max_bytes: Annotated[
        Whole, Field(ge=0, le=CONTEXT_BYTES_MAX, description="How long the text may be, in bytes.")
    ] = limits.CONTEXT_BYTES_DEFAULT


class Conflicts(WireModel):
    include_stale: Annotated[bool, Field(description="Also those whose claims were revised or ended since.")] = False
    limit: Annotated[Whole, Field(ge=1, le=100, description="How many at most.")] = 20
    before_case_sequence: Annotated[
        Whole | None, Field(ge=1, description="`next_before_case_sequence` of the page before this one, to go on.")
    ] = None


class Citation(WireModel):
    citation: Annotated[
        CitationText,
        Field(description="A citation as other tools return it: memoree://artifact/ID@REVISION#START-END"),
    ]
    max_bytes: Annotated[
        Whole,
        Field(
            ge=limits.CITATION_FETCH_BYTES_MIN,
            le=limits.CITATION_FETCH_BYTES_MAX,
            description="How many bytes at most.",
        ),
    ] = limits.CITATION_FETCH_BYTES_MAX


class AnswerPack(WireModel):
    question: Annotated[Words, Field(description="The user's question.")]
    token_budget: Annotated[
        Whole, Field(ge=TOKEN_BUDGET_MIN, le=TOKEN_BUDGET_MAX, description="How many tokens the whole pack may have.")
    ] = TOKEN_BUDGET_DEFAULT
    as_of: Annotated[
        Instant | None, Field(description="The instant that answers are to hold for, RFC 3339; else now.")
    ] = None


# --- the bundle (OKF contract §3.2) ---------------------------------------------------------------------------------


class Search(WireModel):
    query: Annotated[Words, Field(description="Words of the topic; names and ids work best.")]
    k: Annotated[Whole, Field(ge=1, le=K_MAX, description="How many results at most. Five are enough.")] = K_DEFAULT
    mode: Annotated[
        Literal["auto", "bm25", "semantic", "hybrid"],
        Field(description="`bm25` matches words; `semantic` and `hybrid` need an index of embeddings."),
    ] = "auto"
    exclude_source: Annotated[
        str | None,
        Field(pattern=r"^[a-z0-9-]+$", max_length=128, description="Leave out what came from this source."),
    ] = None
    no_global: Annotated[
        bool, Field(description="Leave out the personal bundle. No other than the project's is searched here.")
    ] = True
    expand: Annotated[
        bool, Field(description="Also list nodes one relation away from the hits, such as a person's projects.")
    ] = False
    expand_budget: Annotated[
        Whole, Field(ge=1, le=K_MAX, description="How many such nodes at most, over all hits.")
    ] = EXPAND_BUDGET_DEFAULT
    include_superseded: Annotated[
        bool, Field(description="Also what was superseded or is not valid now; labelled as such.")
    ] = False
    as_of: Annotated[
        Instant | None, Field(description="The instant at which validity is judged, RFC 3339; else now.")
    ] = None


class Get(WireModel):
    id: Annotated[
        Line,
        Field(description="An id as memory_search returns it (`projects/atlas`), a path, or the end of one (`atlas`)."),
    ]


class List(WireModel):
    type: Annotated[Kind | None, Field(description="Only nodes of this type: Plan, Task, Entity …")] = None
    tag: Annotated[Line | None, Field(description="Only nodes with this tag.")] = None


class WriteInbox(WireModel):
    content: Annotated[Proposal, Field(description="What to propose: Markdown, or a whole node's text.")]
    title: Annotated[Title | None, Field(description="A short title, in one line.")] = None


class Handoff(WireModel):
    project: Annotated[Line | None, Field(description="Only this project: `atlas`, `projects/atlas` or its path.")] = (
        None
    )
    days: Annotated[Whole, Field(ge=1, le=DAYS_MAX, description="How many days of decisions to tell.")] = 14


class LedgerAppend(WireModel):
    topic: Annotated[Line, Field(description="What the event is about; the id of a node where there is one.")]
    phase: Annotated[
        Literal["start", "step", "done", "fail", "block", "note"], Field(description="Where the work stands.")
    ]
    action: Annotated[Line, Field(description="What was done, in one line.")]
    status: Annotated[Literal["ok", "wip", "partial", "fail"], Field(description="How it went.")] = "ok"
    artifact: Annotated[Line | None, Field(description="What came of it: a path, a commit, an address.")] = None
    ref: Annotated[
        Line | None, Field(description="A name for this event; a second one of the same name is not recorded.")
    ] = None


class FleetAssign(WireModel):
    engine: Annotated[Line, Field(description="The id of the engine.")]
    topic: Annotated[Line, Field(description="What the work is about.")]
    goal: Annotated[Line, Field(description="What is to be reached.")]
    verify: Annotated[Line, Field(description="How it is seen that it was reached.")]
    boundaries: Annotated[list[Line], Field(max_length=FLEET_ENTRIES_MAX, description="What must not be touched.")] = (
        Field(default_factory=list)
    )
    stopPoints: Annotated[list[Line], Field(max_length=FLEET_ENTRIES_MAX, description="When to stop and ask.")] = Field(
        default_factory=list
    )
    ref: Annotated[Line | None, Field(description="A name for this assignment; it is made once.")] = None

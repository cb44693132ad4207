"""`context.build`: one retrieval as a bounded, quoted hand-off for a model, with its manifest (machine protocol §4.34).

Only hits that qualify enter. The text is for a prompt, the manifest for whoever has to answer for it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from memoree import limits
from memoree.operations.call import Call
from memoree.operations.lookup import Bound, RerankerStatus, SemanticStatus, open_lookup
from memoree.operations.registry import read
from memoree.operations.search import BROADEN_HINT, REFINE_HINT, SearchInput
from memoree.operations.view import View
from memoree.retrieval.bundle import Item, bundle
from memoree.retrieval.disputes import Dispute, open_disputes
from memoree.retrieval.engine import cut


class ContextBuild(SearchInput):
    max_bytes: Annotated[int, Field(ge=0)] = limits.CONTEXT_BYTES_DEFAULT


class ContextBundle(BaseModel):
    """`used_bytes` is the size of `rendered_markdown` in UTF-8, never more than `max_bytes`. `omitted_count` counts the
    hits that this bound left out; `retrieval_truncated` says that more than `limit` hits qualified."""

    content_is_untrusted: Literal[True]
    query: str
    max_bytes: int
    used_bytes: int
    rendered_markdown: str
    manifest: list[Item]
    retrieval_truncated: bool
    refine_hint: str | None
    broaden_hint: str | None
    omitted_count: int
    conflicts: list[Dispute]
    semantic: SemanticStatus
    reranker: RerankerStatus


@read("context.build", position=35, input=ContextBuild, result=ContextBundle, needs_context=True, horizon=True)
def build(view: View, call: Call[ContextBuild]) -> ContextBundle:
    wanted = call.input
    bounds = [Bound("limit", wanted.limit, 1, limits.SEARCH_ITEMS_MAX)]
    lookup = open_lookup(view, call, bounds, historical=wanted.include_historical)
    pool = lookup.pool("mixed", wanted.limit)
    page, truncated = cut(pool.query, pool.qualified, wanted.limit)
    hits = lookup.placed(lookup.ranked(page))
    claim_rows = [candidate.revision_row for candidate in page if candidate.entity_type == "claim"]
    disputes = open_disputes(view.db, claim_rows, lookup.scope)
    made = bundle(hits, disputes, wanted.max_bytes)
    return ContextBundle.model_construct(
        content_is_untrusted=True,
        query=wanted.query,
        max_bytes=wanted.max_bytes,
        used_bytes=len(made.markdown.encode()),
        rendered_markdown=made.markdown,
        manifest=made.manifest,
        retrieval_truncated=truncated,
        refine_hint=REFINE_HINT if truncated else None,
        broaden_hint=BROADEN_HINT if not hits and wanted.horizon == "ambient" else None,
        omitted_count=made.omitted_count,
        conflicts=disputes,
        semantic=SemanticStatus.of(view),
        reranker=RerankerStatus.of("mixed"),
    )

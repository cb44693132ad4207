"""The lists: their parameters come from the queries' models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memoree import limits
from memoree.browsing.lists import Listing
from memoree.http.openapi.components import Components, Json, ref
from memoree.http.openapi.examples import QUERY_EXAMPLES
from memoree.http.openapi.parts import ADMISSION, FAILURES, IF_NONE_MATCH, REASONS, STRONG, answer, refusals
from memoree.operations.schema import input_schema, result_schema

_PARAMETERS: Mapping[str, str] = {
    "workspace_id": "With `project_id`, the context to look from; without both, the token's own.",
    "task_id": "Narrows the project to what belongs to this task, or to none.",
    "horizon": "`workspace` and `personal` look beyond the project, and need a `reason`.",
    "source": "The id of a source: artifacts it delivers, claims that cite one, relations that touch one.",
    "created_from": "RFC 3339 with a zone; the instant itself belongs to the interval. A bare date is refused.",
    "created_until": "RFC 3339 with a zone; the instant itself does not belong to the interval.",
    "limit": f"Items of one page; over {limits.BROWSE_ITEMS_MAX} counts as that many.",
    "cursor": "The `next_cursor` of the page before, with the same filters.",
    "min_commit_seq": "Refuse with 503 rather than show an older state than this one.",
}


def page_of(components: Components, listing: Listing, *, authorization: bool) -> Json:
    item = components.answered(listing.record.__name__, result_schema(listing.record))
    page = f"{listing.record.__name__}Page"
    components.schemas[page] = {
        "type": "object",
        "required": ["items", "next_cursor", "commit_seq"],
        "additionalProperties": False,
        "properties": {
            "items": {"type": "array", "maxItems": limits.BROWSE_ITEMS_MAX, "items": item},
            "next_cursor": {"type": ["string", "null"]},
            "commit_seq": {"type": "integer"},
        },
    }
    return {
        "operationId": f"list_{listing.name}",
        "summary": f"Browse {listing.name}, newest first",
        "description": f"A page has at most {limits.BROWSE_ITEMS_MAX} items; `next_cursor` is null on the last one.",
        "parameters": [*_query_parameters(listing, context_needed=not authorization), STRONG, IF_NONE_MATCH],
        "responses": {
            "200": answer("One page", ref(page), "Memoree-Commit-Seq", "ETag"),
            "304": {"description": REASONS[304]},
            **refusals({*ADMISSION, *FAILURES}),
        },
    }


def _query_parameters(listing: Listing, *, context_needed: bool) -> Iterable[Json]:
    """`context_needed` where no token can bring a context."""
    for name, schema in input_schema(listing.query)["properties"].items():
        told = {key: value for key, value in schema.items() if key not in ("anyOf", "title")}
        if told.get("default", ...) is None:
            del told["default"]
        (value,) = (each for each in schema.get("anyOf", ({},)) if each.get("type") != "null")
        parameter = {"name": name, "in": "query", "schema": {**value, **told}}
        if context_needed and name in ("workspace_id", "project_id"):
            parameter["required"] = True
        if (description := _PARAMETERS.get(name)) is not None:
            parameter["description"] = description
        if name in QUERY_EXAMPLES:
            parameter["example"] = QUERY_EXAMPLES[name]
        yield parameter

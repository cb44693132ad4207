"""Searching and reading the bundle of a project: `okf.search`, `okf.get`, `okf.list`, `okf.health` (OKF contract §3.2).

Results are the payloads of the contract's tools. The text of nodes is untrusted reference material.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

import memoree
from memoree import clock
from memoree.database import okf
from memoree.database.okf import NodeRow
from memoree.envelope import WireModel
from memoree.errors import Code, MemoreeError, invalid
from memoree.okf import hygiene, snippets
from memoree.okf.bundle import Tiers
from memoree.okf.frontmatter import body_of, normalised
from memoree.okf.hygiene import Activity
from memoree.okf.indexing import node_of
from memoree.okf.node import MIRROR, VISIBILITIES
from memoree.okf.ranking import EXPAND_BUDGET_DEFAULT, K_DEFAULT, K_MAX, ActivityOf, Answer, Corpus, Query
from memoree.operations import okf_nodes
from memoree.operations.call import Call
from memoree.operations.registry import EXTENSION, read
from memoree.operations.shapes import Timestamp
from memoree.operations.view import View

SEARCH, GET, LIST, HEALTH = "okf.search", "okf.get", "okf.list", "okf.health"
QUERY_CHARS_MAX = 4096
Mode = Literal["bm25", "semantic", "hybrid", "auto"]
MODE_USED: Mode = "bm25"
NO_INDEX = "there is no index of embeddings; the words were searched"


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


class OkfSearch(WireModel):
    """`expand` adds nodes one step from the hits. `include_mirror` lets copies of engines' own memories be found."""

    query: Annotated[str, AfterValidator(_not_blank), Field(max_length=QUERY_CHARS_MAX)]
    k: Annotated[int, Field(ge=1, le=K_MAX)] = K_DEFAULT
    mode: Mode = "auto"
    exclude_source: Annotated[str, Field(pattern=r"^[a-z0-9-]+$", max_length=128)] | None = None
    include_superseded: bool = False
    include_mirror: bool = True
    expand: bool = False
    expand_budget: Annotated[int, Field(ge=1, le=K_MAX)] = EXPAND_BUDGET_DEFAULT
    as_of: Timestamp | None = None


class OkfGet(WireModel):
    id: Annotated[str, Field(max_length=4096)]


class OkfList(WireModel):
    """Filters are held against what the files say, in any case."""

    type: Annotated[str, Field(max_length=128)] | None = None
    tag: Annotated[str, Field(max_length=512)] | None = None


class OkfHealth(WireModel):
    pass


class Payload(BaseModel):
    """Of a tool of the contract; its members are listed there."""


@read(SEARCH, position=EXTENSION, input=OkfSearch, result=Payload, needs_context=True)
def search(view: View, call: Call[OkfSearch]) -> dict[str, Any]:
    """A project without a bundle has no hits. Raises `INVALID_REQUEST` for the mode `semantic`."""
    wanted = call.input
    if wanted.mode == "semantic":
        invalid(f"mode: {NO_INDEX}; ask with the mode auto or bm25")
    corpus = open_corpus(view, call, query_of(view, wanted))
    answer = Answer([], [], []) if corpus is None else corpus.search()
    told: dict[str, Any] = {
        "query": wanted.query,
        "mode": MODE_USED,
        "warning": NO_INDEX if wanted.mode == "hybrid" else None,
        "count": len(answer.hits),
        "results": [
            {
                "id": hit.row.node_id,
                "type": hit.row.type,
                "title": hit.row.title,
                "score": round(hit.score, 4),
                "snippet": snippet(view, hit.row, answer),
                "hygiene": hit.label or None,
            }
            for hit in answer.hits
        ],
    }
    if wanted.expand:
        told["expanded"] = [
            {
                "id": each.row.node_id,
                "type": each.row.type,
                "title": each.row.title,
                "kind": each.kind,
                "hop": 1,
                "expandedFrom": each.expanded_from,
                "snippet": snippet(view, each.row, answer),
                **({"hygiene": each.hygiene} if each.hygiene else {}),
            }
            for each in answer.expanded or ()
        ]
    return told


@read(GET, position=EXTENSION, input=OkfGet, result=Payload, needs_context=True)
def get(view: View, call: Call[OkfGet]) -> dict[str, Any]:
    """The whole file behind an id, a path, or the end of one; what is not there is no error. Raises `INVALID_REQUEST`
    with the reason `INVALID_ID` or `AMBIGUOUS`."""
    asked = call.input.id
    okf_nodes.caller_id(asked)
    bundle = okf_nodes.bundle_of(view, call.owner)
    try:
        row = None if bundle is None else okf_nodes.named(view, bundle, asked)
    except MemoreeError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        row = None
    if row is None:
        return {"found": False, "id": asked}
    node = node_of(row)
    return {
        "found": True,
        "id": row.node_id,
        "type": row.type,
        "title": row.title,
        "visibility": _visibility(row),
        "tags": node.tags,
        "content": okf_nodes.node_bytes(view, row).decode(errors="replace"),
    }


@read(LIST, position=EXTENSION, input=OkfList, result=Payload, needs_context=True)
def list_(view: View, call: Call[OkfList]) -> dict[str, Any]:
    """Nodes by their ids, by the fields of the contract alone."""
    wanted = call.input
    bundle = okf_nodes.bundle_of(view, call.owner)
    found = [] if bundle is None else okf.every(view.db, bundle.row_id)
    items = [
        {"id": row.node_id, "type": node_of(row).native_type, "title": row.title, "visibility": _visibility(row)}
        for row in found
        if row.tier == okf.CANON and _matches(row, wanted)
    ]
    return {"count": len(items), "items": items}


@read(HEALTH, position=EXTENSION, input=OkfHealth, result=Payload, needs_context=True)
def health(view: View, call: Call[OkfHealth]) -> dict[str, Any]:
    """How many nodes there are, and how many of them were lately worked on."""
    tiers = dict.fromkeys(("hot", "warm", "cold"), 0)
    bundle = okf_nodes.bundle_of(view, call.owner)
    at_ms = now_ms(view)
    for row in [] if bundle is None else okf.every(view.db, bundle.row_id):
        if row.tier == okf.CANON:
            tiers[hygiene.tier(hygiene.heat(activity_of(view, call)(row.node_id), at_ms))] += 1
    return {
        "root": None if bundle is None else bundle.name,
        "concepts": sum(tiers.values()),
        "searchMode": MODE_USED,
        "embedUrl": None,
        "heatTiers": tiers,
        "version": memoree.__version__,
    }


def query_of(view: View, wanted: OkfSearch) -> Query:
    return Query(
        wanted.query,
        now_ms(view) if wanted.as_of is None else clock.milliseconds(clock.from_stored(wanted.as_of)),
        wanted.k,
        Tiers(mirror=wanted.include_mirror),
        wanted.include_superseded,
        wanted.exclude_source,
        wanted.expand_budget if wanted.expand else None,
    )


def open_corpus(view: View, call: Call[Any], query: Query) -> Corpus | None:
    """The nodes of the call's project; `None` where it has no bundle."""
    bundle = okf_nodes.bundle_of(view, call.owner)
    return None if bundle is None else Corpus(view.db, bundle.row_id, activity_of(view, call), query)


def activity_of(view: View, call: Call[Any]) -> ActivityOf:
    """What the project's ledger has of a topic."""

    def activity(topic: str) -> Activity | None:
        found = okf.activity(view.db, call.owner, topic)
        return None if found is None else Activity(*found)

    return activity


def snippet(view: View, row: NodeRow, answer: Answer) -> str:
    text = normalised(okf_nodes.node_bytes(view, row))
    return snippets.snippet(body_of(text), answer.tokens)


def now_ms(view: View) -> int:
    return clock.milliseconds(clock.from_stored(view.now))


def _visibility(row: NodeRow) -> str:
    stated = node_of(row).visibility.strip().lower()
    return MIRROR if row.tier == okf.MIRROR else stated if stated in VISIBILITIES else node_of(row).visibility


def _matches(row: NodeRow, wanted: OkfList) -> bool:
    node = node_of(row)
    if wanted.type is not None and node.native_type.lower() != wanted.type.strip().lower():
        return False
    return wanted.tag is None or wanted.tag.strip().lower() in (tag.lower() for tag in node.tags)

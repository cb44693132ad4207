"""The bundle of a project as files: `okf.files`, what is wrong with it and what points where: `okf.validate`,
`okf.links`, and edges between its nodes: `okf.relate` (OKF contract §2.4, §2.5, §8.4, §8.7)."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from memoree.database import artifacts, okf, okf_files
from memoree.database import relations as relation_rows
from memoree.database.okf import CANON, RESERVED, NodeRow
from memoree.database.okf_files import FileRow
from memoree.database.relations import Edge
from memoree.database.sources import Source
from memoree.envelope import WireModel
from memoree.errors import not_found
from memoree.limits import KIB, MIB
from memoree.okf import graph
from memoree.okf.dialect import Dialect
from memoree.okf.ids import SUFFIX
from memoree.okf.indexing import node_of
from memoree.okf.node import Node, parse
from memoree.okf.relations import links as links_in
from memoree.okf.validate import check
from memoree.operations import okf_nodes
from memoree.operations.artifacts import read_body
from memoree.operations.call import Call
from memoree.operations.context import require_write_scope
from memoree.operations.okf_search import Payload
from memoree.operations.registry import EXTENSION, mutation, read
from memoree.operations.relations import RelationAcknowledgement, RelationRecord, join
from memoree.operations.view import Applied, Transaction, View

FILES, VALIDATE, LINKS, RELATE = "okf.files", "okf.validate", "okf.links", "okf.relate"
FILES_MAX = 5000
"""Of one page; with their content fewer, as `CONTENT_PAGE_BYTES_MAX` allows."""
CONTENT_PAGE_BYTES_MAX = 8 * MIB
"""Raw bytes of one page: base64 makes a third more of them, and a response is one frame."""
NODE_ID_CHARS_MAX = 4 * KIB
KEY_CHARS_MAX = 256

NodeId = Annotated[str, Field(min_length=1, max_length=NODE_ID_CHARS_MAX)]


class OkfFiles(WireModel):
    """`after` is the path that a page ended with."""

    after: Annotated[str, Field(max_length=NODE_ID_CHARS_MAX)] | None = None
    limit: Annotated[int, Field(ge=1, le=FILES_MAX)] = FILES_MAX
    with_content: bool = False


class OkfWhole(WireModel):
    pass


class OkfRelate(WireModel):
    """That one node replaces another, or comes from it; `key` is what its file calls that, `kind` what it means."""

    source: NodeId
    relation: Literal["supersedes", "derived_from"]
    target: NodeId
    key: Annotated[str, Field(min_length=1, max_length=KEY_CHARS_MAX)]
    kind: Annotated[str, Field(min_length=1, max_length=KEY_CHARS_MAX)]

    @model_validator(mode="after")
    def _joins_two_nodes(self) -> OkfRelate:
        if self.source == self.target:
            raise ValueError("a node has no relation to itself")
        return self


# --- files ------------------------------------------------------------------------------------------------------------


@read(FILES, position=EXTENSION, input=OkfFiles, result=Payload, needs_context=True)
def files(view: View, call: Call[OkfFiles]) -> dict[str, Any]:
    """A page of the files in the order of their ids, and the source they belong to; none of a project that has no
    bundle. `next_after` is there while more follow."""
    wanted = call.input
    bundle = okf_nodes.bundle_of(view, call.owner)
    if bundle is None:
        return {"files": []}
    page: list[dict[str, Any]] = []
    told: dict[str, Any] = {"bundle": _bundle(bundle), "files": page}
    content_bytes = 0
    for row in okf_files.after(view.db, bundle.row_id, (wanted.after or "").removesuffix(SUFFIX)):
        content_bytes += row.size_bytes if wanted.with_content else 0
        if len(page) == wanted.limit or (page and content_bytes > CONTENT_PAGE_BYTES_MAX):
            told["next_after"] = page[-1]["path"]
            break
        page.append(_file(view, row, with_content=wanted.with_content))
    return told


def _bundle(bundle: Source) -> dict[str, Any]:
    return {"source_id": bundle.source_id, "name": bundle.name, "cursor": bundle.cursor, "health": bundle.health}


def _file(view: View, row: FileRow, *, with_content: bool) -> dict[str, Any]:
    """`edited` says that these bytes were written in the store; `base` is the digest of the file they replaced, and
    `moved_from` the path under which that was delivered."""
    path = f"{row.node_id}{SUFFIX}"
    told: dict[str, Any] = {
        "path": path,
        "sha256": row.sha256,
        "artifact_id": row.artifact_id,
        "revision_id": row.revision_id,
        "tier": row.tier,
        "size_bytes": row.size_bytes,
        "edited": row.is_edited,
    }
    if row.base is not None:
        told["base"] = row.base
    if row.delivered_as not in (None, path):
        told["moved_from"] = row.delivered_as
    if with_content:
        data = read_body(view, artifacts.revision_by_row(view.db, row.revision_row))
        told["data"] = base64.b64encode(data).decode("ascii")
    return told


# --- what is wrong, and what points where -----------------------------------------------------------------------------


@read(VALIDATE, position=EXTENSION, input=OkfWhole, result=Payload, needs_context=True, long=True)
def validate(view: View, call: Call[OkfWhole]) -> dict[str, Any]:
    """The findings about canon, as over the files that it was made of."""
    bundle = okf_nodes.bundle_of(view, call.owner)
    found = [] if bundle is None else _in_file_order(view, bundle)
    nodes = (_with_fields(view, row) for row in found if row.tier in (CANON, RESERVED))
    return check(nodes, Dialect.SERVICE, {f"{row.node_id}{SUFFIX}" for row in found}.__contains__).to_json()


@read(LINKS, position=EXTENSION, input=OkfWhole, result=Payload, needs_context=True, long=True)
def links(view: View, call: Call[OkfWhole]) -> dict[str, Any]:
    """The graph of canon, as over the files that it was made of."""
    bundle = okf_nodes.bundle_of(view, call.owner)
    found = [] if bundle is None else _in_file_order(view, bundle)
    nodes = (_with_links(view, row) for row in found if row.tier in (CANON, RESERVED))
    return graph.of_nodes(nodes, {f"{row.node_id}{SUFFIX}" for row in found}.__contains__).to_json()


def _in_file_order(view: View, bundle: Source) -> list[NodeRow]:
    """As a walk over directories comes by them: folder by folder, each in the order of its names."""
    return sorted(okf.every(view.db, bundle.row_id), key=lambda row: f"{row.node_id}{SUFFIX}".split("/"))


def _with_fields(view: View, row: NodeRow) -> Node:
    """Without the body, which nothing but links needs. Only the file tells no front matter from an empty one."""
    node = node_of(row)
    if node.fields:
        return node
    return replace(parse(row.node_id, okf_nodes.node_bytes(view, row)), body="")


def _with_links(view: View, row: NodeRow) -> Node:
    """With nothing in the body but its links: a graph of all nodes must not hold all their text at once."""
    node = parse(row.node_id, okf_nodes.node_bytes(view, row))
    return replace(node, body="\n".join(f"[]({target})" for target in links_in(node.body)))


# --- edges ------------------------------------------------------------------------------------------------------------


def _existing(view: View, bundle: Source, node_id: str) -> NodeRow:
    """By its whole id. Raises `NOT_FOUND`."""
    row = okf.by_id(view.db, bundle.row_id, node_id)
    if row is None:
        not_found("node", node_id)
    return row


def _nodes_are_in_write_scope(view: View, call: Call[OkfRelate]) -> None:
    bundle = okf_nodes.require_bundle(view, call)
    require_write_scope(call, bundle.owner, "the bundle")
    for node_id in (call.input.source, call.input.target):
        _existing(view, bundle, node_id)


@mutation(
    RELATE,
    position=EXTENSION,
    input=OkfRelate,
    result=RelationAcknowledgement,
    before_replay=_nodes_are_in_write_scope,
)
def relate(tx: Transaction, call: Call[OkfRelate]) -> Applied:
    """An edge between the artifacts of two nodes; one that is there stays as it is. It is the bundle's own
    `relation.put`, which has supersession for claims alone."""
    wanted = call.input
    bundle = okf_nodes.require_bundle(tx, call)
    source, target = (
        artifacts.by_row(tx.db, _existing(tx, bundle, node_id).row_id).artifact_id
        for node_id in (wanted.source, wanted.target)
    )
    edge = Edge("artifact", source, wanted.relation, "artifact", target)
    if (existing := relation_rows.of_edge(tx.db, edge)) is not None:
        return Applied(RelationRecord.of(existing), existing.row_id, created=False)
    relation = join(tx, bundle.owner, edge, {"okf_key": wanted.key, "okf_kind": wanted.kind})
    commit_seq = tx.record_event(RELATE, "relation", relation.relation_id, payload=edge._asdict())
    return Applied(RelationRecord.of(relation), commit_seq)

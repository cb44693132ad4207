"""From a node to the rows by which it is searched, and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import apsw
import orjson

from memoree.database import okf as rows
from memoree.database.okf import CANON, FOLDER_TIERS, RESERVED, SECRET, Edge, NodeRow
from memoree.okf import dates, hygiene, terms
from memoree.okf.ids import id_of
from memoree.okf.node import Node
from memoree.okf.relations import CITES, SUPERSEDED_BY, SUPERSEDES, kind_of, links, resolved

LINKS_MAX = 8192
"""Different targets that the body of one node links to: further ones are no edges of it."""


def index(db: apsw.Connection, node: Node, *, row_id: int, bundle: int, revision_row: int) -> None:
    """Make a node searchable. There is none of that row, and none of that id in the bundle."""
    tier = tier_of(node)
    frequencies = Counter(terms.tokens(terms.document(node))) if tier != RESERVED else Counter()
    row = NodeRow(
        row_id=row_id,
        bundle=bundle,
        revision_row=revision_row,
        node_id=node.id,
        tier=tier,
        type=node.type,
        title=node.title,
        timestamp=dates.milliseconds(node.text("timestamp")),
        valid_from=dates.milliseconds(node.text("valid_from")),
        invalid_at=dates.milliseconds(node.text("invalid_at")),
        deprecated_on=_deprecated_on(node),
        importance=hygiene.importance(node.text("importance")),
        authority=hygiene.authority(node.text("authority")),
        length=frequencies.total(),
        sources=orjson.dumps(node.entries("source")).decode(),
        fields=orjson.dumps(node.fields).decode(),
    )
    rows.insert(db, row, frequencies, edges_of(node))


def node_of(row: NodeRow) -> Node:
    """With its fields, and no body."""
    return Node(row.node_id, orjson.loads(row.fields), "")


def tier_of(node: Node) -> str:
    """By the top folder, the name, and what the node says of itself."""
    folder = node.id.partition("/")[0] if "/" in node.id else ""
    if folder in FOLDER_TIERS:
        return folder
    if node.is_reserved:
        return RESERVED
    return SECRET if node.is_secret else CANON


def edges_of(node: Node) -> Iterator[Edge]:
    """Everything that a node points at: relations in the order of the file, what it
    replaces and is replaced by, links of the body, each target once. What leads out of the bundle is no edge."""
    for key, target in node.relations:
        kind = kind_of(key)
        if kind.key_class != "hygiene" and (path := resolved(target)) is not None:
            yield Edge(kind.kind or key, kind.is_reversed, id_of(path))
    for kind_name, named in ((SUPERSEDES, node.supersedes), (SUPERSEDED_BY, node.superseded_by)):
        for target in named:
            if (path := resolved(target)) is not None:
                yield Edge(kind_name, False, id_of(path))
    folder = node.id.rpartition("/")[0]
    for target in islice(dict.fromkeys(links(node.body)), LINKS_MAX):
        if (path := resolved(target, folder=folder)) is not None:
            yield Edge(CITES, False, id_of(path))


def _deprecated_on(node: Node) -> str | None:
    """The day, or what is written where a day should stand; `None` of a node that is not deprecated."""
    if not node.is_deprecated:
        return None
    written = node.text("deprecated_on")
    instant = dates.milliseconds(written)
    return written if instant is None else dates.date(instant)

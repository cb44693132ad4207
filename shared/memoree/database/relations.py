"""Relations: typed edges between artifacts and claims, never changed. Row ids are commit numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import apsw
import orjson
from blake3 import blake3

from memoree.database.connection import one
from memoree.database.entry import Entry
from memoree.retrieval.scope import VISIBLE

EntityType = Literal["artifact", "claim"]
RelationType = Literal["derived_from", "supports", "contradicts", "supersedes", "references", "duplicates"]
Direction = Literal["incoming", "outgoing", "both"]

_COLUMNS = """e.relation_id, e.source_type, e.source_id, e.relation, e.target_type, e.target_id, e.metadata,
    e.created_at, e.row_id, e.workspace_id, e.project_id, e.task_id, e.component"""

_ALL = f"SELECT {_COLUMNS} FROM relations e ORDER BY e.row_id"  # noqa: S608 - constant columns
_OF_EDGE = f"""
    SELECT {_COLUMNS} FROM relations e
    WHERE (e.source_id, e.relation, e.target_id, e.source_type, e.target_type) = (?, ?, ?, ?, ?)
"""  # noqa: S608
_BY_ROW = f"SELECT {_COLUMNS} FROM relations e WHERE e.row_id = ?"  # noqa: S608
_ONE_SIDE = """
    SELECT {columns} FROM relations e
    WHERE e.{side}_id = :entity_id AND e.{side}_type = :entity_type AND e.row_id < :before
    AND (:relation IS NULL OR e.relation = :relation) AND {visible}
"""
_OUTGOING = _ONE_SIDE.format(columns=_COLUMNS, side="source", visible=VISIBLE)
_INCOMING = _ONE_SIDE.format(columns=_COLUMNS, side="target", visible=VISIBLE)
_NEWEST_FIRST = "ORDER BY row_id DESC LIMIT :limit"
PAGES: Mapping[Direction, str] = {
    "outgoing": _OUTGOING + _NEWEST_FIRST,
    "incoming": _INCOMING + _NEWEST_FIRST,
    "both": f"{_OUTGOING} UNION ALL {_INCOMING} {_NEWEST_FIRST}",
}
"""An edge never joins an entity to itself, so no edge is on both sides of one anchor."""
_ABOUT = f"""
    SELECT {_COLUMNS} FROM relations e WHERE e.source_id = ?1
    UNION ALL SELECT {_COLUMNS} FROM relations e WHERE e.target_id = ?1
"""  # noqa: S608
_EMPTY = "UPDATE relations SET metadata = '{}' WHERE row_id = ?"
_INSERT = """
    INSERT INTO relations (relation_id, source_type, source_id, relation, target_type, target_id, metadata, created_at,
        row_id, workspace_id, project_id, task_id, component)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class Edge(NamedTuple):
    """What makes a relation the same relation: it is unique in the store."""

    source_type: EntityType
    source_id: str
    relation: RelationType
    target_type: EntityType
    target_id: str


class Relation(NamedTuple):
    """A row. `metadata` is JSON text, `row_id` the commit; workspace to component are the context of the request that
    put it."""

    relation_id: str
    source_type: EntityType
    source_id: str
    relation: RelationType
    target_type: EntityType
    target_id: str
    metadata: str
    created_at: str
    row_id: int
    workspace_id: str
    project_id: str
    task_id: str | None
    component: str | None


def of_edge(db: apsw.Connection, edge: Edge) -> Relation | None:
    row = one(db, _OF_EDGE, (edge.source_id, edge.relation, edge.target_id, edge.source_type, edge.target_type))
    return Relation._make(row) if row else None


def by_row(db: apsw.Connection, row_id: int) -> Relation:
    row = one(db, _BY_ROW, (row_id,))
    assert row is not None, "relations are never deleted"
    return Relation._make(row)


def page(
    db: apsw.Connection,
    scope: Mapping[str, Any],
    *,
    entity_type: EntityType,
    entity_id: str,
    direction: Direction,
    relation: RelationType | None,
    before: int,
    limit: int,
) -> list[Relation]:
    """Up to `limit` edges of one entity, newest first, made before that commit. `scope` binds the visibility of the
    edges themselves (`memoree.retrieval.scope`); whom the entities belong to is no matter."""
    bindings = {
        **scope,
        "entity_type": entity_type,
        "entity_id": entity_id,
        "relation": relation,
        "before": before,
        "limit": limit,
    }
    return list(map(Relation._make, db.execute(PAGES[direction], bindings)))


def about(db: apsw.Connection, entity_id: str) -> list[Relation]:
    """Every edge from or to an entity."""
    return [Relation._make(row) for row in db.execute(_ABOUT, (entity_id,))]


def erase_metadata(db: apsw.Connection, relation: Relation) -> Relation:
    db.execute(_EMPTY, (relation.row_id,))
    return relation._replace(metadata="{}")


def insert(db: apsw.Connection, relation: Relation) -> None:
    db.execute(_INSERT, relation)


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every edge."""
    for row in db.execute(_ALL):
        yield entry(Relation._make(row))


def entry(relation: Relation) -> Entry:
    return Entry("relations", relation.relation_id, "", blake3(orjson.dumps([*relation])).digest(), held_rows=1)

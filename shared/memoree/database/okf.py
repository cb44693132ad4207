"""Nodes of OKF bundles as rows that are searched: derived from the bytes of their revisions, see the migration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

import apsw
import orjson

from memoree.database.connection import one, scalar
from memoree.owner import Owner

CANON, MIRROR, INBOX, SECRET, RESERVED = "canon", "mirror", "inbox", "secret", "reserved"
FOLDER_TIERS = (MIRROR, INBOX, SECRET)
"""Tiers that a folder at the top of a bundle stands for."""

_MIGRATION = "0007_okf.sql"
_LEDGER = """
    CREATE TABLE events (
        commit_seq INTEGER PRIMARY KEY, entity_type TEXT NOT NULL, entity_id TEXT NOT NULL, payload TEXT NOT NULL
    ) STRICT;
    CREATE TABLE artifacts (workspace_id TEXT NOT NULL, project_id TEXT NOT NULL, kind TEXT NOT NULL) STRICT;
"""
"""What the migration adds an index to, as far as it does."""
_COLUMNS = (
    "row_id, bundle, revision_row, node_id, tier, type, title, timestamp, valid_from, invalid_at, deprecated_on, "
    "importance, authority, length, sources, fields"
)
_INSERT = f"INSERT INTO okf_nodes ({_COLUMNS}, terms) VALUES ({', '.join('?' * 17)})"  # noqa: S608 - constants
_INSERT_POSTING = "INSERT INTO okf_postings VALUES (?, ?, ?, ?, ?)"
_INSERT_EDGE = "INSERT INTO okf_edges VALUES (?, ?, ?, ?, ?, ?)"
_TERMS = "SELECT bundle, terms FROM okf_nodes WHERE row_id = ?"
_DELETE_POSTINGS = """
    DELETE FROM okf_postings WHERE bundle = ?1 AND node_row = ?2 AND term IN (SELECT value FROM json_each(?3))
"""
_DELETE_EDGES = "DELETE FROM okf_edges WHERE node_row = ?"
_DELETE_NODE = "DELETE FROM okf_nodes WHERE row_id = ?"

_BY_ROW = f"SELECT {_COLUMNS} FROM okf_nodes WHERE row_id = ?"  # noqa: S608
_BY_ID = f"SELECT {_COLUMNS} FROM okf_nodes WHERE bundle = ? AND node_id = ?"  # noqa: S608
_ALL = f"SELECT {_COLUMNS} FROM okf_nodes WHERE bundle = ? ORDER BY node_id"  # noqa: S608
_IDS = "SELECT node_id FROM okf_nodes WHERE bundle = ? ORDER BY node_id"
_TOTALS = "SELECT tier, count(*), sum(length) FROM okf_nodes WHERE bundle = ? GROUP BY tier"
_OF_TIERS = """
    SELECT row_id, length FROM okf_nodes INDEXED BY okf_pool
    WHERE bundle = ? AND tier IN (SELECT value FROM json_each(?))
"""
_BOUNDED = """
    SELECT row_id, length, valid_from, invalid_at FROM okf_nodes INDEXED BY okf_bounded
    WHERE bundle = ? AND (valid_from IS NOT NULL OR invalid_at IS NOT NULL)
"""
_SUPERSESSION = """
    SELECT e.kind, s.node_id, s.tier, s.row_id, s.length, e.target_id, t.row_id, t.length
    FROM okf_edges AS e INDEXED BY okf_supersession
    CROSS JOIN okf_nodes AS s ON s.row_id = e.node_row
    LEFT JOIN okf_nodes AS t ON t.bundle = e.bundle AND t.node_id = e.target_id
    WHERE e.bundle = ? AND e.kind IN ('supersedes', 'superseded_by')
    ORDER BY s.node_id, e.ordinal
"""
_FROM_SOURCE = """
    SELECT row_id, length FROM okf_nodes
    WHERE bundle = ? AND EXISTS (SELECT 1 FROM json_each(sources) WHERE value = ?)
"""
_SATURATIONS = """
    SELECT node_row, frequency / (frequency + ?3 + ?4 * length) FROM okf_postings WHERE bundle = ?1 AND term = ?2
"""
_SATURATIONS_AMONG = f"{_SATURATIONS} AND node_row IN (SELECT value FROM json_each(?5))"  # noqa: S608 - constants
_POSTING_COUNT = "SELECT count(*) FROM okf_postings WHERE bundle = ?1 AND term = ?2"
_POSTING_COUNT_AMONG = f"{_POSTING_COUNT} AND node_row IN (SELECT value FROM json_each(?3))"  # noqa: S608
_OUTBOUND = "SELECT kind, is_reversed, target_id FROM okf_edges WHERE node_row = ? ORDER BY ordinal"
_INBOUND = """
    SELECT e.kind, e.is_reversed, s.node_id FROM okf_edges AS e INDEXED BY okf_edges_by_target
    CROSS JOIN okf_nodes AS s ON s.row_id = e.node_row
    WHERE e.bundle = ? AND e.target_id = ? ORDER BY s.node_id, e.ordinal
"""
_ACTIVITY = """
    SELECT count(*), max(payload ->> 'ts_ms') FROM events
    WHERE entity_type = 'okf_topic' AND entity_id = ?
        AND payload ->> 'workspace_id' = ? AND payload ->> 'project_id' = ?
"""


class NodeRow(NamedTuple):
    """A node without its text. Instants are milliseconds, `sources` and `fields` JSON."""

    row_id: int
    bundle: int
    revision_row: int
    node_id: str
    tier: str
    type: str
    title: str
    timestamp: int | None
    valid_from: int | None
    invalid_at: int | None
    deprecated_on: str | None
    importance: float
    authority: float | None
    length: int
    sources: str
    fields: str


class Edge(NamedTuple):
    """`other_id` is the node at the other end, or would be."""

    kind: str
    is_reversed: bool
    other_id: str


class Supersession(NamedTuple):
    """That a node says of itself or of another that it is replaced; `target_row` is there where that one exists."""

    kind: str
    node_id: str
    tier: str
    row_id: int
    length: int
    target_id: str
    target_row: int | None
    target_length: int | None


def empty() -> apsw.Connection:
    """A database in memory with these tables and nothing else."""
    db = apsw.Connection(":memory:")
    db.execute(_LEDGER)
    db.execute((resources.files("memoree.database") / "migrations" / _MIGRATION).read_text(encoding="utf-8"))
    return db


def insert(db: apsw.Connection, row: NodeRow, frequencies: Mapping[str, int], edges: Iterable[Edge]) -> None:
    """Make a node searchable. There is none of that row, and none of that id in the bundle."""
    db.execute(_INSERT, (*row, orjson.dumps(list(frequencies)).decode()))
    db.executemany(
        _INSERT_POSTING,
        ((row.bundle, term, row.row_id, frequency, row.length) for term, frequency in sorted(frequencies.items())),
    )
    db.executemany(
        _INSERT_EDGE,
        (
            (row.row_id, ordinal, row.bundle, edge.kind, edge.is_reversed, edge.other_id)
            for ordinal, edge in enumerate(edges)
        ),
    )


def delete(db: apsw.Connection, row_id: int) -> None:
    """Remove every trace of a node, if there is one."""
    found = one(db, _TERMS, (row_id,))
    if found is None:
        return
    bundle, node_terms = found
    db.execute(_DELETE_POSTINGS, (bundle, row_id, node_terms))
    db.execute(_DELETE_EDGES, (row_id,))
    db.execute(_DELETE_NODE, (row_id,))


def by_row(db: apsw.Connection, row_id: int) -> NodeRow | None:
    row = one(db, _BY_ROW, (row_id,))
    return None if row is None else NodeRow(*row)


def by_id(db: apsw.Connection, bundle: int, node_id: str) -> NodeRow | None:
    row = one(db, _BY_ID, (bundle, node_id))
    return None if row is None else NodeRow(*row)


def every(db: apsw.Connection, bundle: int) -> Iterator[NodeRow]:
    """In the order of ids."""
    return (NodeRow(*row) for row in _rows(db, _ALL, (bundle,)))


def ids(db: apsw.Connection, bundle: int) -> list[str]:
    return [str(node_id) for (node_id,) in _rows(db, _IDS, (bundle,))]


def totals(db: apsw.Connection, bundle: int) -> dict[str, tuple[int, int]]:
    """By tier: how many nodes there are, and how many tokens they have."""
    return {tier: (count, length) for tier, count, length in _rows(db, _TOTALS, (bundle,))}


def of_tiers(db: apsw.Connection, bundle: int, tiers: Iterable[str]) -> dict[int, int]:
    """Lengths by row."""
    return dict(_rows(db, _OF_TIERS, (bundle, orjson.dumps(list(tiers)).decode())))


def bounded(db: apsw.Connection, bundle: int) -> list[tuple[int, int, int | None, int | None]]:
    """(row, length, valid from, invalid at) of nodes that say when they hold."""
    return list(_rows(db, _BOUNDED, (bundle,)))


def supersessions(db: apsw.Connection, bundle: int) -> list[Supersession]:
    """In the order of the ids of the nodes that say so."""
    return [Supersession(*row) for row in _rows(db, _SUPERSESSION, (bundle,))]


def from_source(db: apsw.Connection, bundle: int, source: str) -> dict[int, int]:
    """Lengths, by row, of nodes that name this source."""
    return dict(_rows(db, _FROM_SOURCE, (bundle, source)))


def saturations(db: apsw.Connection, bundle: int, term: str, base: float, slope: float) -> Iterable[tuple[int, float]]:
    """(row, how much of a term's weight a node has of it, below 1): `f / (f + base + slope * length)`."""
    return db.execute(_SATURATIONS, (bundle, term, base, slope))  # plain tuples: it is hot


def saturations_among(
    db: apsw.Connection, bundle: int, term: str, base: float, slope: float, wanted: Iterable[int]
) -> Iterable[tuple[int, float]]:
    """As `saturations`, of these rows."""
    bindings = (bundle, term, base, slope, orjson.dumps(list(wanted)).decode())
    return db.execute(_SATURATIONS_AMONG, bindings).fetchall()  # type: ignore[return-value]  # the columns above


def posting_count(db: apsw.Connection, bundle: int, term: str) -> int:
    """How many nodes have a term."""
    count: int = scalar(db, _POSTING_COUNT, (bundle, term))
    return count


def posting_count_among(db: apsw.Connection, bundle: int, term: str, among: Iterable[int]) -> int:
    """How many of these rows have a term."""
    count: int = scalar(db, _POSTING_COUNT_AMONG, (bundle, term, orjson.dumps(list(among)).decode()))
    return count


def outbound(db: apsw.Connection, row_id: int) -> list[Edge]:
    return [Edge(kind, bool(is_reversed), target) for kind, is_reversed, target in _rows(db, _OUTBOUND, (row_id,))]


def inbound(db: apsw.Connection, bundle: int, node_id: str) -> list[Edge]:
    """In the order of the ids of the nodes they come from."""
    found = _rows(db, _INBOUND, (bundle, node_id))
    return [Edge(kind, bool(is_reversed), source_id) for kind, is_reversed, source_id in found]


def activity(db: apsw.Connection, owner: Owner, topic: str) -> tuple[int, int] | None:
    """How many events a project's ledger has of a topic, and when the last one was."""
    count, last_ms = one(db, _ACTIVITY, (topic, owner.workspace_id, owner.project_id)) or (0, None)
    return None if last_ms is None else (count, last_ms)


def _rows(db: apsw.Connection, sql: str, bindings: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    return db.execute(sql, bindings)

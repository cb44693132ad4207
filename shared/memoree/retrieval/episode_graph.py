"""The graph around a query: episodes that relations and evidence lead to (MemoryProtocol §6.3).

The walk begins at episodes whose titles name an entity of the query, at claims that do, and at episodes that answer the
query. It goes over relations and from claims to what they cite and back, a few steps and a bounded number of nodes. A
node is an episode that is visible, or a claim of that time that cites one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import apsw
import orjson

from memoree.database.connection import one
from memoree.database.episodes import VISIBLE_EPISODE
from memoree.retrieval.candidates import IN_TITLE
from memoree.retrieval.expression import expression_of
from memoree.retrieval.query import analyze

DEPTH_MAX = 2
NODES_MAX = 256
EDGES_PER_STEP_MAX = 1024
"""Of one kind; those of the nodes found first."""
ENTITIES_MAX = 8
ANCHORS_PER_ENTITY_MAX = 16
"""Episodes, and claims; the newest."""

_VISIBLE_CLAIM = """(cr.row_id <= :seen AND (cr.sys_to IS NULL OR :seen < cr.sys_to)
    AND (cl.sys_to IS NULL OR :seen < cl.sys_to))"""
_CITES_AN_EPISODE = f"""EXISTS (
    SELECT 1 FROM claim_evidence AS v
    CROSS JOIN artifact_revisions AS ar ON ar.row_id = v.artifact_revision_row
    CROSS JOIN episodes AS p ON p.artifact_row = ar.artifact_row
    WHERE v.claim_revision_row = cr.row_id AND {VISIBLE_EPISODE})"""  # noqa: S608 - constants
_TITLED = f"""
    SELECT a.artifact_id FROM artifact_fts
    CROSS JOIN artifact_chunks AS c ON c.row_id = artifact_fts.rowid
    CROSS JOIN episodes AS p ON p.row_id = c.revision_row
    CROSS JOIN artifacts AS a ON a.row_id = p.artifact_row
    WHERE artifact_fts MATCH :match AND c.ordinal = 0 AND {VISIBLE_EPISODE}
    ORDER BY artifact_fts.rowid DESC LIMIT {ANCHORS_PER_ENTITY_MAX}
"""  # noqa: S608 - constants
_SAYING = f"""
    SELECT cl.claim_id FROM claim_fts
    CROSS JOIN claim_revisions AS cr ON cr.row_id = claim_fts.rowid
    CROSS JOIN claims AS cl ON cl.row_id = cr.claim_row
    WHERE claim_fts MATCH :match AND {_VISIBLE_CLAIM} AND {_CITES_AN_EPISODE}
    ORDER BY claim_fts.rowid DESC LIMIT {ANCHORS_PER_ENTITY_MAX}
"""  # noqa: S608 - constants


def _related(near: str, far: str) -> str:
    return f"""
        SELECT f.key, e.{far}_type, e.{far}_id FROM json_each(:frontier) AS f
        CROSS JOIN relations AS e ON e.{near}_id = f.value ->> 1 AND e.{near}_type = f.value ->> 0
        WHERE e.row_id <= :seen
    """  # noqa: S608 - constants


def _over_evidence(near: str, far: str, joins: str) -> str:
    return f"""
        SELECT f.key, {far} FROM json_each(:frontier) AS f {joins}
        WHERE f.value ->> 0 = '{near}' AND {_VISIBLE_CLAIM} LIMIT {EDGES_PER_STEP_MAX}
    """  # noqa: S608 - constants


_RELATED = f"{_related('source', 'target')} UNION ALL {_related('target', 'source')} LIMIT {EDGES_PER_STEP_MAX}"
_CITING = _over_evidence(
    "artifact",
    "'claim', cl.claim_id",
    """
        CROSS JOIN artifacts AS a ON a.artifact_id = f.value ->> 1
        CROSS JOIN artifact_revisions AS ar ON ar.artifact_row = a.row_id
        CROSS JOIN claim_evidence AS v ON v.artifact_revision_row = ar.row_id
        CROSS JOIN claim_revisions AS cr ON cr.row_id = v.claim_revision_row
        CROSS JOIN claims AS cl ON cl.row_id = cr.claim_row
    """,
)
_CITED = _over_evidence(
    "claim",
    "'artifact', a.artifact_id",
    """
        CROSS JOIN claims AS cl ON cl.claim_id = f.value ->> 1
        CROSS JOIN claim_revisions AS cr ON cr.claim_row = cl.row_id
        CROSS JOIN claim_evidence AS v ON v.claim_revision_row = cr.row_id
        CROSS JOIN artifact_revisions AS ar ON ar.row_id = v.artifact_revision_row
        CROSS JOIN artifacts AS a ON a.row_id = ar.artifact_row
    """,
)
_VERSION = f"""
    SELECT p.row_id FROM artifacts AS a CROSS JOIN episodes AS p ON p.artifact_row = a.row_id
    WHERE a.artifact_id = :entity_id AND {VISIBLE_EPISODE}
"""  # noqa: S608 - constants
_CLAIM = f"""
    SELECT cr.row_id FROM claims AS cl CROSS JOIN claim_revisions AS cr ON cr.claim_row = cl.row_id
    WHERE cl.claim_id = :entity_id AND {_VISIBLE_CLAIM} AND {_CITES_AN_EPISODE}
"""  # noqa: S608 - constants
_ARTIFACT_OF_VERSION = """
    SELECT a.artifact_id FROM episodes AS p CROSS JOIN artifacts AS a ON a.row_id = p.artifact_row WHERE p.row_id = ?
"""


class Node(NamedTuple):
    entity_type: Literal["artifact", "claim"]
    entity_id: str


def reached_versions(db: apsw.Connection, entities: Sequence[str], answers: Iterable[int], *, seen: int) -> list[int]:
    """The rows of the versions that the walk comes to, anchors first, then in the order of its steps. `answers` are the
    rows of versions that answer the query, best first."""
    walk = _Walk(db, seen)
    for entity in entities[:ENTITIES_MAX]:
        walk.add(walk.naming(entity))
    walk.add(walk.artifact_of(version) for version in dict.fromkeys(answers))
    for _ in range(DEPTH_MAX):
        walk.step()
    return walk.versions


class _Walk:
    def __init__(self, db: apsw.Connection, seen: int) -> None:
        self._db = db
        self._seen = seen
        self._known: set[Node] = set()
        self._frontier: list[Node] = []
        self.versions: list[int] = []

    def naming(self, entity: str) -> list[Node]:
        """Episodes whose titles have the words of an entity, and claims that have them."""
        query = analyze(entity)
        titled = " AND ".join(filter(None, expression_of(query, "artifact").unit_matches))
        saying = " AND ".join(filter(None, expression_of(query, "claim").unit_matches))
        if not titled or not saying:
            return []
        found = [Node("artifact", entity_id) for (entity_id,) in self._rows(_TITLED, match=f"{IN_TITLE}({titled})")]
        return found + [Node("claim", entity_id) for (entity_id,) in self._rows(_SAYING, match=saying)]

    def artifact_of(self, version: int) -> Node:
        found = one(self._db, _ARTIFACT_OF_VERSION, (version,))
        assert found is not None, "a version is one of an artifact"
        return Node("artifact", found[0])

    def step(self) -> None:
        """From every node that was new to all of its neighbours."""
        frontier, self._frontier = self._frontier, []
        told = orjson.dumps([*map(tuple, frontier)]).decode()
        edges = [edge for statement in (_RELATED, _CITING, _CITED) for edge in self._rows(statement, frontier=told)]
        edges.sort(key=lambda edge: edge[0])
        self.add(Node(entity_type, entity_id) for _, entity_type, entity_id in edges)

    def add(self, nodes: Iterable[Node]) -> None:
        """Those that are new and there at that time, as far as there is room."""
        for node in nodes:
            if node in self._known or len(self._known) >= NODES_MAX:
                continue
            self._known.add(node)
            statement = _VERSION if node.entity_type == "artifact" else _CLAIM
            found = one(self._db, statement, {"seen": self._seen, "entity_id": node.entity_id})
            if found is None:
                continue
            self._frontier.append(node)
            if node.entity_type == "artifact":
                self.versions.append(found[0])

    def _rows(self, statement: str, **bindings: Any) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._db.execute(statement, {"seen": self._seen, **bindings}).fetchall()
        return found

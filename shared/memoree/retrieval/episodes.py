"""Recall over episodes: chunks of the versions that were the truth at a commit (MemoryProtocol §6.2, §6.6).

The engine finds and judges revisions, among these versions and what the filter leaves of them. A hit is a chunk: first
the best one of every revision that answers, in relevance order, then the others that match, the closest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import apsw

from memoree.database.connection import one
from memoree.database.episodes import VISIBLE_EPISODE
from memoree.episodes.filter import Filter
from memoree.retrieval.candidates import BODY_COLUMNS, CHUNKS_JUDGED_MAX, IN_BODY, Candidate, closeness
from memoree.retrieval.deadline import deadline
from memoree.retrieval.engine import SEARCH_SECONDS_MAX, find
from memoree.retrieval.episode_filter import CHUNK_TEXT, condition_of
from memoree.retrieval.expression import Expression, expression_of
from memoree.retrieval.outlines import Outlines
from memoree.retrieval.query import Query
from memoree.retrieval.scope import Reach

JOINED = "CROSS JOIN episodes AS p ON p.row_id = c.revision_row"
_CHUNK = f"""
    SELECT c.row_id, c.revision_row, c.ordinal, c.start_byte, {CHUNK_TEXT}, r.revision_id, p.episode_id, p.source
    FROM artifact_chunks AS c
    CROSS JOIN artifact_revisions AS r ON r.row_id = c.revision_row
    {JOINED}
    WHERE {{place}} AND {{condition}} ORDER BY c.ordinal LIMIT 1
"""  # noqa: S608 - constants
_CHUNK_RANGE = "SELECT min(row_id), max(row_id) FROM artifact_chunks WHERE revision_row = ?"
_MATCHING = f"""
    SELECT artifact_fts.rowid, phrase_columns(artifact_fts)
    FROM artifact_fts
    CROSS JOIN artifact_chunks AS c ON c.row_id = artifact_fts.rowid
    CROSS JOIN artifact_revisions AS r ON r.row_id = c.revision_row
    {JOINED}
    WHERE artifact_fts MATCH :match AND artifact_fts.rowid BETWEEN :first AND :last AND {{condition}}
    ORDER BY artifact_fts.rowid LIMIT {CHUNKS_JUDGED_MAX}
"""  # noqa: S608 - constants


class Chunk(NamedTuple):
    """A chunk of a version; `version_row` is the commit that made it, `start` counts bytes."""

    row_id: int
    version_row: int
    ordinal: int
    start: int
    text: str
    revision_id: str
    episode_id: str
    source: str


@dataclass(frozen=True, slots=True)
class EpisodeHit:
    chunk: Chunk
    heading_path: list[str]
    score: float


class _Match(NamedTuple):
    """A chunk whose body has words of the query, and which units, one bit each."""

    chunk_row: int
    units: int


@lru_cache
def reach_of(condition: str) -> Reach:
    """The versions that are visible at `:seen` and meet the condition."""
    return Reach(f"{VISIBLE_EPISODE} AND {condition}", JOINED)


def find_episodes(
    db: apsw.Connection, query: Query, *, seen: int, filter: Filter | None, limit: int, state: tuple[int, int]
) -> list[EpisodeHit]:
    """At most `limit` hits, best first, their scores never rising. `seen` is the commit that is asked about, `state`
    the (history, commit_seq) of the store. Raises what `memoree.retrieval.engine.find` raises."""
    if (condition := condition_of(filter)) is None:
        return []
    bindings = {"seen": seen, **condition.bindings}
    outlines = Outlines(db)
    with outlines.in_sql() if condition.reads_headings else nullcontext():
        pool = find(db, query, bindings, surface="artifact", limit=limit, state=state, reach=reach_of(condition.sql))
        with deadline(db, SEARCH_SECONDS_MAX):
            reader = _Chunks(db, query, bindings, condition.sql)
            scored = reader.hits(pool.qualified, limit)
            return [EpisodeHit(chunk, outlines.path(chunk.version_row, chunk.start), score) for chunk, score in scored]


class _Chunks:
    """The chunks of one query's revisions, of which a filter on chunks leaves some."""

    def __init__(self, db: apsw.Connection, query: Query, bindings: dict[str, Any], condition: str) -> None:
        self._db = db
        self._query = query
        self._bindings = bindings
        self._expression: Expression = expression_of(query, "artifact")
        self._of_row = _CHUNK.format(place="c.row_id = :chunk_row", condition=condition)
        self._of_revision = _CHUNK.format(place="c.revision_row = :revision_row", condition=condition)
        self._matching = _MATCHING.format(condition=condition)

    def hits(self, revisions: Sequence[Candidate], limit: int) -> list[tuple[Chunk, float]]:
        """Chunks with their scores: of a revision's best chunk the score of the revision, of another its share by the
        units that it has."""
        scored = []
        for revision in revisions[:limit]:
            if (chunk := self._best(revision)) is not None:
                scored.append((chunk, revision.fusion_score))
        if len(scored) < limit:
            scored += self._others(revisions, {chunk.row_id for chunk, _ in scored}, limit - len(scored))
        return _never_rising(scored)

    def _others(self, revisions: Sequence[Candidate], shown: set[int], limit: int) -> list[tuple[Chunk, float]]:
        matches = [
            (match, revision)
            for revision in revisions
            for match in self._matches(revision)
            if match.chunk_row not in shown
        ]
        matches.sort(key=lambda found: closeness(found[0].units, self._query.phrase_mask), reverse=True)
        scored = []
        for match, revision in matches[:limit]:
            share = match.units.bit_count() / len(self._query.units)
            if (chunk := self._read(self._of_row, chunk_row=match.chunk_row)) is not None:
                scored.append((chunk, revision.fusion_score * share))
        return scored

    def _best(self, revision: Candidate) -> Chunk | None:
        """The chunk that shows the match; where the title shows it, one that has words of it too, or else the first.
        The filter may leave another one than the engine chose."""
        if revision.chunk_row is not None:
            chosen = self._read(self._of_row, chunk_row=revision.chunk_row)
            if chosen is not None:
                return chosen
        matches = self._matches(revision)
        if matches:
            best = max(matches, key=lambda match: closeness(match.units, self._query.phrase_mask))
            return self._read(self._of_row, chunk_row=best.chunk_row)
        return self._read(self._of_revision, revision_row=revision.revision_row)

    def _matches(self, revision: Candidate) -> list[_Match]:
        """Of a revision with several chunks, in the order of its body."""
        if not self._expression.match:
            return []
        found = one(self._db, _CHUNK_RANGE, (revision.revision_row,))
        assert found is not None, "a revision in the index has a chunk"
        first, last = found
        if first == last:
            return []
        match = f"{IN_BODY}({self._expression.match})"
        bindings = {**self._bindings, "match": match, "first": first, "last": last}
        rows: Iterable[tuple[Any, ...]] = self._db.execute(self._matching, bindings)
        matches = (_Match(row, self._expression.matched(columns, BODY_COLUMNS).units) for row, columns in rows)
        return [match for match in matches if match.units]

    def _read(self, statement: str, **place: int) -> Chunk | None:
        row = one(self._db, statement, {**self._bindings, **place})
        return Chunk(*row) if row is not None else None


def _never_rising(scored: list[tuple[Chunk, float]]) -> list[tuple[Chunk, float]]:
    lowest = float("inf")
    return [(chunk, lowest := min(lowest, score)) for chunk, score in scored]

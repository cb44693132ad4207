"""Recall over episodes: chunks of the versions that were the truth at a commit (MemoryProtocol §6.2, §6.6).

The engine finds and judges revisions, among these versions and what the filter leaves of them. A hit is a chunk: first
the best one of every revision that answers, in relevance order, then the others that match, the closest first. In graph
mode these are fused with one chunk of every episode that the graph leads to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import apsw

from memoree.database.connection import one
from memoree.database.episodes import VISIBLE_EPISODE
from memoree.episodes.filter import Filter
from memoree.retrieval.candidates import BODY_COLUMNS, CHUNKS_JUDGED_MAX, IN_BODY, Candidate, closeness
from memoree.retrieval.deadline import deadline
from memoree.retrieval.engine import SEARCH_SECONDS_MAX, find
from memoree.retrieval.episode_filter import CHUNK_TEXT, condition_of
from memoree.retrieval.episode_graph import reached_versions
from memoree.retrieval.expression import Expression, expression_of
from memoree.retrieval.outlines import Outlines
from memoree.retrieval.qualify import RANK_CONSTANT
from memoree.retrieval.query import Query
from memoree.retrieval.scope import Reach

FUSED_HITS_MIN = 30
"""Hits of words that are fused with those of the graph, however few are wanted."""
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
    """`source` is the leg that found it; where both did, the graph."""

    chunk: Chunk
    heading_path: list[str]
    score: float
    source: Literal["Keyword", "Graph"]


class _Match(NamedTuple):
    """A chunk whose body has words of the query, and which units, one bit each."""

    chunk_row: int
    units: int


@lru_cache
def reach_of(condition: str) -> Reach:
    """The versions that are visible at `:seen` and meet the condition."""
    return Reach(f"{VISIBLE_EPISODE} AND {condition}", JOINED)


def find_episodes(
    db: apsw.Connection,
    query: Query,
    *,
    seen: int,
    filter: Filter | None,
    limit: int,
    state: tuple[int, int],
    entities: Sequence[str] = (),
) -> list[EpisodeHit]:
    """At most `limit` hits, best first, their scores never rising. `seen` is the commit that is asked about, `state`
    the (history, commit_seq) of the store. Where there are `entities`, episodes that the graph leads to are hits too.
    Raises what `memoree.retrieval.engine.find` raises."""
    if (condition := condition_of(filter)) is None:
        return []
    bindings = {"seen": seen, **condition.bindings}
    reach = reach_of(condition.sql)
    considered = max(limit, FUSED_HITS_MIN) if entities else limit
    outlines = Outlines(db)
    with outlines.in_sql() if condition.reads_headings else nullcontext():
        pool = find(db, query, bindings, surface="artifact", limit=considered, state=state, reach=reach)
        with deadline(db, SEARCH_SECONDS_MAX):
            chunks = _Chunks(db, query, bindings, reach.shown)
            found = chunks.hits(pool.qualified, considered)
            reached: list[Chunk] = []
            if entities:
                versions = reached_versions(db, entities, (chunk.version_row for chunk, _ in found), seen=seen)
                reached = chunks.of_versions(versions, [chunk for chunk, _ in found])
                found = _fused([chunk for chunk, _ in found], reached)
            of_graph = {chunk.row_id for chunk in reached}
            return [
                EpisodeHit(
                    chunk,
                    outlines.path(chunk.version_row, chunk.start),
                    score,
                    "Graph" if chunk.row_id in of_graph else "Keyword",
                )
                for chunk, score in found[:limit]
            ]


def _fused(*legs: Sequence[Chunk]) -> list[tuple[Chunk, float]]:
    """By reciprocal ranks; of equal ones first what an earlier leg has."""
    scores: dict[Chunk, float] = {}
    for leg in legs:
        for rank, chunk in enumerate(leg, start=1):
            scores[chunk] = scores.get(chunk, 0.0) + 1 / (RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda scored: -scored[1])


class _Chunks:
    """The chunks of one query's revisions; a filter leaves some of them."""

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

    def of_versions(self, versions: Iterable[int], known: Iterable[Chunk]) -> list[Chunk]:
        """One chunk of each version that the filter leaves: the best of those that are known, else of its own."""
        best = {chunk.version_row: chunk for chunk in reversed(list(known))}
        found = (
            best.get(version) or self._best(Candidate("artifact", version, version, 0.0, 0)) for version in versions
        )
        return [chunk for chunk in found if chunk is not None]

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

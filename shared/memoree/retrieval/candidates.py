"""Candidates: the rows of the index that match, best first, within what the caller may see.

One statement per entity type. FTS5 sorts its matches by rank by itself; the joins and filters run row by row in that
order and stop with the window, so that a filter can starve the window of time but never of matches.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import merge
from itertools import combinations, islice
from math import inf
from typing import Any, NamedTuple
from weakref import WeakSet

import apsw

from memoree.retrieval.expression import EntityType, Expression
from memoree.retrieval.scope import ARTIFACTS, CURRENT_CLAIM, VISIBLE, Reach

CLAIM_COLUMNS = 0b111
TITLE_COLUMNS = 0b010101
BODY_COLUMNS = 0b101010
ARTIFACT_COLUMNS = TITLE_COLUMNS | BODY_COLUMNS
IN_TITLE = "{title title_cjk title_terms} : "
IN_BODY = "{body body_cjk body_terms} : "
"""Before an expression in brackets: held against titles or bodies only."""

_MASKS = {
    columns: sum(1 << column for column in columns) for count in range(7) for columns in combinations(range(6), count)
}
"""Column numbers, as FTS5 names them, to bits."""

TIED_ROWS_MAX = 2000
"""Rows read to choose among equal scores at the edge of the window, where the newest win."""
CHUNKS_JUDGED_MAX = 512
"""Chunks of one revision, from its beginning, among which the cited one is chosen."""
_UNBOUNDED = -1

CLAIM_CANDIDATES = f"""
    SELECT claim_fts.rowid, claim_fts.rank, phrase_columns(claim_fts), r.sys_from, e.status = 'conflicted'
    FROM claim_fts
    CROSS JOIN claim_revisions AS r ON r.row_id = claim_fts.rowid
    CROSS JOIN claims AS e ON e.row_id = r.claim_row
    WHERE claim_fts MATCH :match AND {VISIBLE} AND {CURRENT_CLAIM}
    ORDER BY claim_fts.rank LIMIT :rows_max
"""  # noqa: S608 - constant predicates

_TIED_CLAIMS = CLAIM_CANDIDATES.replace(
    "ORDER BY claim_fts.rank", "AND +claim_fts.rank = :edge ORDER BY claim_fts.rowid DESC"
)
"""Of more equal scores than are read, the newest: rows of an index are in the order of commits."""

_CHUNKS = f"""
    SELECT rowid, phrase_columns(artifact_fts) FROM artifact_fts
    WHERE artifact_fts MATCH :match AND rowid BETWEEN :first AND :last
    ORDER BY rowid LIMIT {CHUNKS_JUDGED_MAX}
"""  # noqa: S608 - constants
"""Without their rank: it would be counted anew over the whole index for every revision."""
_ANY_CHUNK = "SELECT 1 FROM artifact_fts WHERE artifact_fts MATCH ? AND rowid BETWEEN ? AND ? LIMIT 1"


@dataclass(frozen=True, slots=True)
class TypoMatch:
    """What the typo channel found: units, one bit each, and how similar the spellings are, 0 to 1."""

    units: int
    similarity: float


@dataclass(frozen=True, slots=True)
class ProjectionMatch:
    """The projection of a revision that matches best, and its score."""

    projection_row: int
    score: float


@dataclass(slots=True)
class Candidate:
    """A revision that matches. `units` and `literals` have one bit per unit and literal of the query, `literals` for
    those whose words stand together and `written_literals` for those that stand there with their punctuation.
    `chunk_row` is the chunk that shows the match, `None` for a claim and for a match of the title.

    `corrected` has a bit per unit that is taken for a misspelled ordinary word, whether this row has that or not.
    An anchored candidate is one that an adapter's anchor names. `is_retained` marks a disputed claim that conflict
    retention put on the page; a derived candidate is an artifact whose text quotes the store."""

    entity_type: EntityType
    revision_row: int
    commit_seq: int
    lexical_score: float
    units: int
    literals: int = 0
    written_literals: int = 0
    chunk_row: int | None = None
    typo: TypoMatch | None = None
    projection: ProjectionMatch | None = None
    is_disputed: bool = False
    is_anchored: bool = False
    is_derived: bool = False
    corrected: int = field(default=0, init=False)
    is_retained: bool = field(default=False, init=False)
    fusion_score: float = field(default=0.0, init=False)


class Row(NamedTuple):
    """A match of the statements above; `columns` has one byte per phrase, one bit per column."""

    fts_row: int
    rank: float
    columns: bytes
    commit_seq: int
    revision_row: int
    ordinal: int = 0
    last_ordinal: int = 0
    is_disputed: bool = False
    is_derived: bool = False


class ArtifactStatements(NamedTuple):
    """`tied` are of one score, the newest first: rows of an index are in the order of commits. `titled` are of
    artifacts known by their titles only; every chunk has the title, so the first one stands for all."""

    candidates: str
    tied: str
    titled: str | None


@lru_cache
def artifact_statements(reach: Reach) -> ArtifactStatements:
    chunks = f"""
        FROM artifact_fts
        CROSS JOIN artifact_chunks AS c ON c.row_id = artifact_fts.rowid
        CROSS JOIN artifact_revisions AS r ON r.row_id = c.revision_row
        CROSS JOIN artifacts AS e ON e.row_id = r.artifact_row
        {reach.joined}
    """
    candidates = f"""
        SELECT artifact_fts.rowid, artifact_fts.rank, phrase_columns(artifact_fts), r.sys_from, r.row_id, c.ordinal,
            (SELECT max(ordinal) FROM artifact_chunks WHERE revision_row = r.row_id), 0,
            EXISTS (SELECT 1 FROM derivations AS d WHERE d.revision_row = r.row_id)
        {chunks} WHERE artifact_fts MATCH :match AND {reach.shown}
        ORDER BY artifact_fts.rank LIMIT :rows_max
    """  # noqa: S608 - constant predicates
    titled = f"""
        SELECT artifact_fts.rowid, artifact_fts.rank, phrase_columns(artifact_fts), r.sys_from, r.row_id
        {chunks} WHERE artifact_fts MATCH :match AND c.ordinal = 0 AND {reach.titled}
        ORDER BY artifact_fts.rank LIMIT :rows_max
    """
    tied = candidates.replace(
        "ORDER BY artifact_fts.rank", "AND +artifact_fts.rank = :edge ORDER BY artifact_fts.rowid DESC"
    )
    return ArtifactStatements(candidates, tied, titled if reach.titled is not None else None)


ARTIFACT_CANDIDATES = artifact_statements(ARTIFACTS).candidates

_prepared: WeakSet[apsw.Connection] = WeakSet()


def prepare(db: apsw.Connection) -> None:
    """Teach a connection `phrase_columns(table)`: which phrases of the expression a row has, and in which columns."""
    if db not in _prepared:
        db.register_fts5_function("phrase_columns", _phrase_columns)
        _prepared.add(db)


def _phrase_columns(api: apsw.FTS5ExtensionApi, *_: Any) -> bytes:
    columns = api.phrase_columns
    return bytes([_MASKS[columns(phrase)] for phrase in range(api.phrase_count)])


def claim_rows(db: apsw.Connection, match: str, scope: Mapping[str, Any], window: int) -> list[Row]:
    """The `window` best rows; of equal scores the newest."""
    bindings = {**scope, "match": match, "rows_max": window + TIED_ROWS_MAX}
    rows: list[Row] = []
    with closing(_claim_rows(db, CLAIM_CANDIDATES, bindings)) as found:
        for row in found:
            if len(rows) >= window and row.rank != rows[-1].rank:
                break
            rows.append(row)
    if len(rows) == window + TIED_ROWS_MAX:
        edge = rows[-1].rank
        newest = list(_claim_rows(db, _TIED_CLAIMS, {**bindings, "edge": edge, "rows_max": window}))
        rows = [row for row in rows if row.rank != edge] + newest
    return newest_of_ties(rows, window)


def _claim_rows(db: apsw.Connection, statement: str, bindings: Mapping[str, Any]) -> Generator[Row, None, None]:
    with closing(db.execute(statement, bindings)) as cursor:
        for fts_row, rank, columns, commit_seq, is_disputed in cursor:
            yield Row(fts_row, rank, columns, commit_seq, fts_row, is_disputed=bool(is_disputed))


def artifact_rows(
    db: apsw.Connection, match: str, scope: Mapping[str, Any], window: int, reach: Reach = ARTIFACTS
) -> list[Row]:
    """The best row of each of the `window` best revisions, of equal ones the newest. Neither a long body nor copies of
    what is stored crowd others out."""
    statements = artifact_statements(reach)
    sources = [_rows(db, statements.candidates, match, scope)]
    if statements.titled is not None and scope["historical"]:
        sources.append(_rows(db, statements.titled, f"{IN_TITLE}({match})", scope))
    best: dict[int, Row] = {}
    originals, edge = 0, -inf
    with ExitStack() as opened:
        for source in sources:
            opened.enter_context(closing(source))
        for row in merge(*sources, key=lambda row: row.rank):
            if (originals >= window and row.rank != edge) or len(best) >= window + TIED_ROWS_MAX:
                break
            if row.revision_row not in best:
                best[row.revision_row] = row
                originals += not row.is_derived
                edge = row.rank
    if len(best) == window + TIED_ROWS_MAX:
        best = {row_id: row for row_id, row in best.items() if row.rank != edge}
        with closing(_rows(db, statements.tied, match, {**scope, "edge": edge})) as newest:
            for row in islice(newest, window):
                best.setdefault(row.revision_row, row)
    copies = sum(1 for row in best.values() if row.is_derived)
    return newest_of_ties(list(best.values()), window + copies)


def newest_of_ties(rows: list[Row], window: int) -> list[Row]:
    if len(rows) > window:
        rows.sort(key=lambda row: (row.rank, -row.commit_seq))
    return rows[:window]


def with_closest(rows: list[Row], closest: Iterable[Row]) -> list[Row]:
    """Rows of a full window, and those beyond its edge that match most closely. Their score is at most the edge's."""
    known = {row.revision_row for row in rows}
    return rows + [row._replace(rank=rows[-1].rank) for row in closest if row.revision_row not in known]


def _rows(db: apsw.Connection, statement: str, match: str, scope: Mapping[str, Any]) -> Generator[Row, None, None]:
    """All of them, read as they are asked for."""
    with closing(db.execute(statement, {**scope, "match": match, "rows_max": _UNBOUNDED})) as cursor:
        yield from (Row(*values) for values in cursor)


def claim_candidates(expression: Expression, rows: Iterable[Row]) -> list[Candidate]:
    """Rows that match at least one unit."""
    found = []
    for row in rows:
        matched = expression.matched(row.columns, CLAIM_COLUMNS)
        if matched.units:
            score = max(0.0, -row.rank)
            found.append(
                Candidate("claim", row.revision_row, row.commit_seq, score, *matched, is_disputed=row.is_disputed)
            )
    return found


def artifact_candidates(
    db: apsw.Connection, expression: Expression, rows: Iterable[Row], phrase_mask: int
) -> list[Candidate]:
    """Revisions that match at least one unit."""
    judged = (_artifact_candidate(db, expression, row, phrase_mask) for row in rows)
    return [candidate for candidate in judged if candidate.units]


def _artifact_candidate(db: apsw.Connection, expression: Expression, row: Row, phrase_mask: int) -> Candidate:
    """Judge the whole revision: words may stand in different chunks, and the best of them is cited."""
    units, literals, written = expression.matched(row.columns, ARTIFACT_COLUMNS)
    title_units = expression.matched(row.columns, TITLE_COLUMNS).units
    cited_row, cited_units = row.fts_row, expression.matched(row.columns, BODY_COLUMNS).units
    if row.last_ordinal > 0:
        first = row.fts_row - row.ordinal
        last = first + row.last_ordinal
        cited_terms = _phrases_in(row.columns)
        for chunk_row, columns in _judged_chunks(db, expression, first, last):
            matched = expression.matched(columns, BODY_COLUMNS)
            units |= matched.units
            literals |= matched.literals
            written |= matched.written
            terms = _phrases_in(columns)
            if (closeness(matched.units, phrase_mask), terms) > (closeness(cited_units, phrase_mask), cited_terms):
                cited_row, cited_units, cited_terms = chunk_row, matched.units, terms
        units |= _elsewhere(db, expression.unit_matches, units, first, last)
        literals |= _elsewhere(db, expression.literal_matches, literals, first, last)
    shows_title = closeness(title_units, phrase_mask) >= closeness(cited_units, phrase_mask)
    return Candidate(
        "artifact",
        row.revision_row,
        row.commit_seq,
        max(0.0, -row.rank),
        units,
        literals,
        written,
        chunk_row=None if shows_title else cited_row,
        is_derived=bool(row.is_derived),
    )


def closeness(units: int, phrase_mask: int) -> tuple[int, int]:
    """How much of the query a place matches: phrases, then units."""
    return (units & phrase_mask).bit_count(), units.bit_count()


def _phrases_in(columns: bytes) -> int:
    """How many phrases of the expression a body has; one that has a unit only on its seam lacks the terms of it."""
    return sum(1 for column_mask in columns if column_mask & BODY_COLUMNS)


def _judged_chunks(db: apsw.Connection, expression: Expression, first: int, last: int) -> Iterable[tuple[int, bytes]]:
    """The chunks whose body matches anything, in the order of the body."""
    bindings = {"match": f"{IN_BODY}({expression.match})", "first": first, "last": last}
    rows: Iterable[tuple[Any, ...]] = db.execute(_CHUNKS, bindings)
    return ((chunk_row, columns) for chunk_row, columns in rows)


def _elsewhere(db: apsw.Connection, matches: Sequence[str], known: int, first: int, last: int) -> int:
    """Units or literals that only chunks outside the best ones match."""
    found = 0
    for number, match in enumerate(matches):
        if match and not known >> number & 1 and any(db.execute(_ANY_CHUNK, (match, first, last))):
            found |= 1 << number
    return found

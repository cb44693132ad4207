"""The full-text index: derived rows, written in the transaction of the revision they make findable.

The FTS tables hold no text (`content = ''`), only postings of its folded form (`memoree.retrieval.text`). Row ids
are those of `artifact_chunks`, `claim_revisions` and `projections`. Removing a row therefore needs the very text it was
made from. Beginnings of removed words stay where they separate two pages of an FTS5 segment, which `secure-delete`
leaves as they are; they go when the segment is merged. Words stay in `words` when their last row goes: one is a guess
only where a visible row has it. Whoever erases sees to both (`forget_words`, `merge_away_remnants`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apsw
import orjson

from memoree.database import derivations
from memoree.database.connection import one, scalar
from memoree.database.entry import ERASED
from memoree.retrieval.chunker import Span, chunks
from memoree.retrieval.text import Segments, guessable_words, segments

_NEXT_CHUNK_ROW = "SELECT coalesce(max(row_id), 0) + 1 FROM artifact_chunks"
_INSERT_CHUNK = "INSERT INTO artifact_chunks VALUES (?, ?, ?, ?, ?, ?)"
_CHUNKS = "SELECT row_id, start_byte, end_byte, text FROM artifact_chunks WHERE revision_row = ? ORDER BY ordinal"
_COUNT_CHUNKS = "SELECT count(*) FROM artifact_chunks WHERE revision_row = ?"
_DELETE_CHUNKS = "DELETE FROM artifact_chunks WHERE revision_row = ?"
_REVISION = "SELECT title, body FROM artifact_revisions WHERE row_id = ?"
_STATEMENT = "SELECT statement FROM claim_revisions WHERE row_id = ?"
_PROJECTION = "SELECT text FROM projections WHERE row_id = ? AND status = 'active'"

_INSERT_ARTIFACT = """
    INSERT INTO artifact_fts (rowid, title, body, title_cjk, body_cjk, title_terms, body_terms)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_DELETE_ARTIFACT = """
    INSERT INTO artifact_fts (artifact_fts, rowid, title, body, title_cjk, body_cjk, title_terms, body_terms)
    VALUES ('delete', ?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_CLAIM = "INSERT INTO claim_fts (rowid, statement, cjk, terms) VALUES (?, ?, ?, ?)"
_DELETE_CLAIM = "INSERT INTO claim_fts (claim_fts, rowid, statement, cjk, terms) VALUES ('delete', ?, ?, ?, ?)"
_INSERT_PROJECTION = "INSERT INTO projection_fts (rowid, text, cjk, terms) VALUES (?, ?, ?, ?)"
_DELETE_PROJECTION = """
    INSERT INTO projection_fts (projection_fts, rowid, text, cjk, terms) VALUES ('delete', ?, ?, ?, ?)
"""
_IS_USED = """
    SELECT EXISTS (SELECT 1 FROM artifact_fts WHERE artifact_fts MATCH '{title body} : ' || ?1)
        OR EXISTS (SELECT 1 FROM claim_fts WHERE claim_fts MATCH '{statement} : ' || ?1)
"""
_DELETE_WORDS = "DELETE FROM words WHERE word IN (SELECT value FROM json_each(?))"
LEARNED_TABLES = ("artifact_fts", "claim_fts")
FTS_TABLES = (*LEARNED_TABLES, "projection_fts")
_TERMS = "live_terms"
_HAS_REMNANTS = """
    SELECT EXISTS (
        SELECT 1 FROM (SELECT substr(term, 2) AS start FROM {table}_idx WHERE length(term) > 1)
        WHERE substr(CAST((
            SELECT term FROM temp.{terms} WHERE term >= CAST(start AS TEXT) LIMIT 1) AS BLOB), 1, length(start))
            IS NOT start)
"""
"""Whether a separator is the beginning of no word that the index still has. Each begins with a byte for the index."""
_PLACEHOLDER_ROW = -1
_ADD_PLACEHOLDER = "INSERT INTO {table} (rowid, {columns}) VALUES ({places})"
_MERGE_ALL = "INSERT INTO {table} ({table}) VALUES ('optimize')"
_REMOVE_PLACEHOLDER = "INSERT INTO {table} ({table}, rowid, {columns}) VALUES ('delete', {places})"
_INSERT_WORDS = "INSERT OR IGNORE INTO words (word) SELECT value FROM json_each(?)"

_ALL_REVISIONS = "SELECT row_id, title, body FROM artifact_revisions ORDER BY row_id"
_ALL_STATEMENTS = "SELECT row_id, statement FROM claim_revisions WHERE statement <> '' ORDER BY row_id"
_ALL_PROJECTIONS = "SELECT row_id, text FROM projections WHERE status = 'active' ORDER BY row_id"

_NO_BODY = Span(0, 0)
SEAM_CHARS_MAX = 96


class ArtifactRow(NamedTuple):
    """The columns of `artifact_fts`, in their order."""

    row_id: int
    title: str
    body: str
    title_cjk: str
    body_cjk: str
    title_terms: str
    body_terms: str


def index_artifact_revision(
    db: apsw.Connection, *, revision_row: int, title: str, text: str | None, stored_inline: bool
) -> None:
    """Make a revision findable by its title and, where `text` is its indexable body, by that.

    Every chunk carries the title, so that one query matches across both; a revision without text has the one
    chunk 0-0. Chunk text is kept only where the body is not `stored_inline` in the revision's own row. Chunk rows
    of one revision are consecutive, which lets a search ask for all of them by a range.
    """
    data = (text or "").encode()
    first_row = scalar(db, _NEXT_CHUNK_ROW)
    texts: list[tuple[int, str]] = []
    for ordinal, span in enumerate(chunks(data) if data else (_NO_BODY,)):
        body = data[span.start : span.end].decode()
        kept = None if stored_inline else body
        db.execute(_INSERT_CHUNK, (first_row + ordinal, revision_row, ordinal, span.start, span.end, kept))
        texts.append((first_row + ordinal, body))
    _index_chunks(db, title, texts)
    derivations.record(db, revision_row=revision_row, text=text or "")


def index_claim_revision(db: apsw.Connection, *, revision_row: int, statement: str) -> None:
    """Make a revision of a claim findable by its statement."""
    folded = segments(statement)
    db.execute(_INSERT_CLAIM, (revision_row, *folded))
    _learn(db, guessable_words(folded.words))


def index_projection(db: apsw.Connection, *, projection_row: int, text: str) -> None:
    """Let the text of an active projection lead to its artifact."""
    db.execute(_INSERT_PROJECTION, (projection_row, *segments(text)))


def unindex_artifact_revision(db: apsw.Connection, *, revision_row: int) -> set[str]:
    """Remove every trace of a revision from the index, and its chunks. Its own row must still be whole. Returns the
    words that were learned from it."""
    revision = one(db, _REVISION, (revision_row,))
    assert revision is not None, f"artifact revision {revision_row} is not in the store"
    title, body = revision
    words: set[str] = set()
    for row in artifact_rows(segments(title), _chunk_texts(db, revision_row, body)):
        db.execute(_DELETE_ARTIFACT, row)
        words.update(guessable_words(row.title), guessable_words(row.body))
    db.execute(_DELETE_CHUNKS, (revision_row,))
    derivations.remove(db, revision_row)
    return words


def chunk_count(db: apsw.Connection, revision_row: int) -> int:
    return int(scalar(db, _COUNT_CHUNKS, (revision_row,)))


def unindex_claim_revision(db: apsw.Connection, *, revision_row: int) -> set[str]:
    """Remove every trace of a claim revision from the index. Its own row must still be whole. Returns the words that
    were learned from it."""
    statement = scalar(db, _STATEMENT, (revision_row,))
    assert statement is not None, f"claim revision {revision_row} is not in the store"
    folded = segments(statement)
    db.execute(_DELETE_CLAIM, (revision_row, *folded))
    return set(guessable_words(folded.words))


def unindex_projection(db: apsw.Connection, *, projection_row: int) -> None:
    """Remove every trace of an active projection from the index. Its own row must still be as it was indexed."""
    text = scalar(db, _PROJECTION, (projection_row,))
    assert text is not None, f"projection {projection_row} is not active in the store"
    db.execute(_DELETE_PROJECTION, (projection_row, *segments(text)))


def forget_words(db: apsw.Connection, words: Iterable[str]) -> int:
    """Unlearn those of the words that no text has any more; returns how many they are."""
    unused = [word for word in words if not is_used(db, word)]
    db.execute(_DELETE_WORDS, (orjson.dumps(unused).decode(),))
    return db.changes()


def is_used(db: apsw.Connection, word: str) -> bool:
    """Whether a text has it from which words are learned."""
    return bool(scalar(db, _IS_USED, (f'"{word}"',)))


def merge_away_remnants(db: apsw.Connection) -> list[str]:
    """Merge the indexes that have separators of words they no longer hold; returns their names. FTS5 does not merge a
    single segment, so that a row is put beside it for the while. Costs a rewriting of the index."""
    merged = [table for table in FTS_TABLES if has_remnants(db, table)]
    for table in merged:
        columns = [str(name) for _, name, *_ in db.execute(f"PRAGMA table_info ({table})")]
        row = (_PLACEHOLDER_ROW, ERASED, *[""] * (len(columns) - 1))
        names = {"table": table, "columns": ", ".join(columns), "places": ", ".join("?" * len(row))}
        db.execute(_ADD_PLACEHOLDER.format_map(names), row)
        db.execute(_MERGE_ALL.format_map(names))
        db.execute(_REMOVE_PLACEHOLDER.format_map(names), row)
    return merged


def has_remnants(db: apsw.Connection, table: str) -> bool:
    """Whether an index holds the beginning of a word that is in none of its rows any more."""
    try:
        db.execute(f"CREATE VIRTUAL TABLE temp.{_TERMS} USING fts5vocab (main, {table}, instance)")
        return bool(scalar(db, _HAS_REMNANTS.format(table=table, terms=_TERMS)))
    finally:
        db.execute(f"DROP TABLE IF EXISTS temp.{_TERMS}")


def rebuild(db: apsw.Connection) -> None:
    """Index every revision and active projection of a store whose index is empty."""
    revisions: Iterable[tuple[Any, ...]] = db.execute(_ALL_REVISIONS)
    for revision_row, title, body in revisions:
        _index_chunks(db, title, _chunk_texts(db, revision_row, body))
    for revision_row, statement in db.execute(_ALL_STATEMENTS):
        index_claim_revision(db, revision_row=int(str(revision_row)), statement=str(statement))
    for projection_row, text in db.execute(_ALL_PROJECTIONS):
        index_projection(db, projection_row=int(str(projection_row)), text=str(text))
    derivations.rebuild(db)


def _index_chunks(db: apsw.Connection, title: str, texts: Iterable[tuple[int, str]]) -> None:
    folded_title = segments(title)
    words = dict.fromkeys(guessable_words(folded_title.words))
    for row in artifact_rows(folded_title, texts):
        db.execute(_INSERT_ARTIFACT, row)
        words |= dict.fromkeys(guessable_words(row.body))
    _learn(db, list(words))


def _learn(db: apsw.Connection, learned: list[str]) -> None:
    """Let misspelled words of a query be compared with the words of a text."""
    if learned:
        db.execute(_INSERT_WORDS, (orjson.dumps(learned).decode(),))


def artifact_rows(title: Segments, texts: Iterable[tuple[int, str]]) -> Iterator[ArtifactRow]:
    """Of the chunks of one revision, given as (row id, text), in their order. To the words of each as they stand come
    those that the next one begins with, so that what stands on the seam is found; its terms are its own."""
    before: tuple[int, str] | None = None
    for chunk_row, text in texts:
        if before is not None:
            yield _artifact_row(*before, _seam(text), title)
        before = (chunk_row, text)
    if before is not None:
        yield _artifact_row(*before, "", title)


def _artifact_row(chunk_row: int, text: str, seam: str, title: Segments) -> ArtifactRow:
    body = segments(text + seam)
    terms = segments(text).terms if seam else body.terms
    return ArtifactRow(chunk_row, title.words, body.words, title.pairs, body.pairs, title.terms, terms)


def _seam(text: str) -> str:
    """Whole words from the beginning of a text, or whole characters where none ends."""
    start = text[: SEAM_CHARS_MAX + 1]
    return start if len(start) <= SEAM_CHARS_MAX else start.rpartition(" ")[0] or start[:SEAM_CHARS_MAX]


def _chunk_texts(db: apsw.Connection, revision_row: int, body: bytes | None) -> list[tuple[int, str]]:
    rows: list[tuple[Any, ...]] = db.execute(_CHUNKS, (revision_row,)).fetchall()
    return [
        (chunk_row, (body or b"")[start:end].decode() if text is None else text) for chunk_row, start, end, text in rows
    ]

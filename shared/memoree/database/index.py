"""The full-text index: derived rows, written in the transaction of the revision they make findable.

The FTS tables hold no text (`content = ''`), only postings of its folded form (`memoree.retrieval.text`). Row ids
are those of `artifact_chunks`, `claim_revisions` and `projections`. Removing a row therefore needs the very text it was
made from. Words stay in `words` when their last row goes: one is a guess only where a visible row has it.
"""

from __future__ import annotations

from typing import Any

import apsw
import orjson

from memoree.database import derivations
from memoree.database.connection import one, scalar
from memoree.retrieval.chunker import Span, chunks
from memoree.retrieval.text import Segments, guessable_words, segments

_NEXT_CHUNK_ROW = "SELECT coalesce(max(row_id), 0) + 1 FROM artifact_chunks"
_INSERT_CHUNK = "INSERT INTO artifact_chunks VALUES (?, ?, ?, ?, ?, ?)"
_CHUNKS = "SELECT row_id, start_byte, end_byte, text FROM artifact_chunks WHERE revision_row = ? ORDER BY ordinal"
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
_INSERT_WORDS = "INSERT OR IGNORE INTO words (word) SELECT value FROM json_each(?)"

_ALL_CHUNKS = """
    SELECT c.row_id, r.title,
        coalesce(c.text, CAST(substr(r.body, c.start_byte + 1, c.end_byte - c.start_byte) AS TEXT))
    FROM artifact_chunks AS c CROSS JOIN artifact_revisions AS r ON r.row_id = c.revision_row ORDER BY c.row_id
"""
_ALL_STATEMENTS = "SELECT row_id, statement FROM claim_revisions ORDER BY row_id"
_ALL_PROJECTIONS = "SELECT row_id, text FROM projections WHERE status = 'active' ORDER BY row_id"

_NO_BODY = Span(0, 0)


def index_artifact_revision(
    db: apsw.Connection, *, revision_row: int, title: str, text: str | None, stored_inline: bool
) -> None:
    """Make a revision findable by its title and, where `text` is its indexable body, by that.

    Every chunk carries the title, so that one query matches across both; a revision without text has the one
    chunk 0-0. Chunk text is kept only where the body is not `stored_inline` in the revision's own row. Chunk rows
    of one revision are consecutive, which lets a search ask for all of them by a range.
    """
    data = (text or "").encode()
    folded_title = segments(title)
    _learn_words(db, folded_title)
    first_row = scalar(db, _NEXT_CHUNK_ROW)
    for ordinal, span in enumerate(chunks(data) if data else (_NO_BODY,)):
        body = data[span.start : span.end].decode()
        kept = None if stored_inline else body
        db.execute(_INSERT_CHUNK, (first_row + ordinal, revision_row, ordinal, span.start, span.end, kept))
        _index_chunk(db, first_row + ordinal, folded_title, body)
    derivations.record(db, revision_row=revision_row, text=text or "")


def index_claim_revision(db: apsw.Connection, *, revision_row: int, statement: str) -> None:
    """Make a revision of a claim findable by its statement."""
    folded = segments(statement)
    db.execute(_INSERT_CLAIM, (revision_row, *folded))
    _learn_words(db, folded)


def index_projection(db: apsw.Connection, *, projection_row: int, text: str) -> None:
    """Let the text of an active projection lead to its artifact."""
    db.execute(_INSERT_PROJECTION, (projection_row, *segments(text)))


def unindex_artifact_revision(db: apsw.Connection, *, revision_row: int) -> None:
    """Remove every trace of a revision from the index, and its chunks. Its own row must still be whole."""
    revision = one(db, _REVISION, (revision_row,))
    assert revision is not None, f"artifact revision {revision_row} is not in the store"
    title, body = revision
    folded_title = segments(title)
    for chunk_row, text in _chunk_texts(db, revision_row, body):
        db.execute(_DELETE_ARTIFACT, _artifact_row(chunk_row, folded_title, segments(text)))
    db.execute(_DELETE_CHUNKS, (revision_row,))
    derivations.remove(db, revision_row)


def unindex_claim_revision(db: apsw.Connection, *, revision_row: int) -> None:
    """Remove every trace of a claim revision from the index. Its own row must still be whole."""
    statement = scalar(db, _STATEMENT, (revision_row,))
    assert statement is not None, f"claim revision {revision_row} is not in the store"
    db.execute(_DELETE_CLAIM, (revision_row, *segments(statement)))


def unindex_projection(db: apsw.Connection, *, projection_row: int) -> None:
    """Remove every trace of an active projection from the index. Its own row must still be as it was indexed."""
    text = scalar(db, _PROJECTION, (projection_row,))
    assert text is not None, f"projection {projection_row} is not active in the store"
    db.execute(_DELETE_PROJECTION, (projection_row, *segments(text)))


def rebuild(db: apsw.Connection) -> None:
    """Index every revision and active projection of a store whose index is empty."""
    for chunk_row, title, body in db.execute(_ALL_CHUNKS):
        folded_title = segments(str(title))
        _learn_words(db, folded_title)
        _index_chunk(db, int(str(chunk_row)), folded_title, str(body or ""))
    for revision_row, statement in db.execute(_ALL_STATEMENTS):
        index_claim_revision(db, revision_row=int(str(revision_row)), statement=str(statement))
    for projection_row, text in db.execute(_ALL_PROJECTIONS):
        index_projection(db, projection_row=int(str(projection_row)), text=str(text))
    derivations.rebuild(db)


def _index_chunk(db: apsw.Connection, chunk_row: int, title: Segments, body: str) -> None:
    folded = segments(body)
    db.execute(_INSERT_ARTIFACT, _artifact_row(chunk_row, title, folded))
    _learn_words(db, folded)


def _learn_words(db: apsw.Connection, folded: Segments) -> None:
    """Let misspelled words of a query be compared with the words of a text."""
    if learned := guessable_words(folded.words):
        db.execute(_INSERT_WORDS, (orjson.dumps(learned).decode(),))


def _artifact_row(chunk_row: int, title: Segments, body: Segments) -> tuple[int, str, str, str, str, str, str]:
    return chunk_row, title.words, body.words, title.pairs, body.pairs, title.terms, body.terms


def _chunk_texts(db: apsw.Connection, revision_row: int, body: bytes | None) -> list[tuple[int, str]]:
    rows: list[tuple[Any, ...]] = db.execute(_CHUNKS, (revision_row,)).fetchall()
    return [
        (chunk_row, (body or b"")[start:end].decode() if text is None else text) for chunk_row, start, end, text in rows
    ]

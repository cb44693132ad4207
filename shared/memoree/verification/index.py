"""The full-text index against the rows it was made from: every one of them, and nothing more.

The index keeps no text, so its content cannot be read back. What can be is which documents it knows: those whose size
it keeps, and those that its postings name. Both must be exactly the rows that are to be found. And which words it has:
one that is not among the `words` is never what a misspelled word is taken for. What it says of a document is compared
in `postings`.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import orjson

from memoree.database.connection import scalar
from memoree.retrieval.stemming import without_diacritics
from memoree.retrieval.text import guessable_words, is_guessable, segments
from memoree.verification.issue import Issue, Kind
from memoree.verification.rule import Rule, breaches

_POSTINGS = "verified_postings"
_POSTED = "verified_documents"
_WORDS = "verified_words"


def _membership(index: str, kind: Kind, what: str, indexed: str) -> tuple[Rule, ...]:
    """`indexed` is a query of the rows the index must know, as (row id, name)."""
    return (
        Rule(
            kind,
            f"the {what} has no row in {index}",
            f"""
            SELECT name FROM ({indexed}) i WHERE NOT EXISTS (SELECT 1 FROM {index}_docsize d WHERE d.id = i.row_id)
            """,  # noqa: S608 - constant names, here and below
        ),
        Rule(
            kind,
            f"a row of {index} has no {what}",
            f"SELECT id FROM {index}_docsize d WHERE id NOT IN (SELECT row_id FROM ({indexed}))",  # noqa: S608
        ),
        Rule(
            kind,
            f"postings of {index} name a row that it does not have",
            f"""
            SELECT doc FROM temp.{_POSTED} p WHERE NOT EXISTS (SELECT 1 FROM {index}_docsize d WHERE d.id = p.doc)
            """,  # noqa: S608
        ),
        Rule(
            kind,
            f"the row has words, and {index} has no postings of it",
            f"""
            SELECT id FROM {index}_docsize d
            WHERE sz <> zeroblob(length(sz)) AND NOT EXISTS (SELECT 1 FROM temp.{_POSTED} p WHERE p.doc = d.id)
            """,  # noqa: S608
        ),
    )


INDEXES = {
    "artifact_fts": _membership("artifact_fts", "index", "chunk", "SELECT row_id, row_id AS name FROM artifact_chunks"),
    "claim_fts": _membership(
        "claim_fts",
        "index",
        "claim revision",
        """
        SELECT r.row_id, r.revision_id AS name FROM claim_revisions r JOIN claims c ON c.row_id = r.claim_row
        WHERE c.erasure_row IS NULL
        """,
    ),
    "projection_fts": _membership(
        "projection_fts",
        "index",
        "active projection",
        "SELECT row_id, projection_id AS name FROM projections WHERE status = 'active'",
    ),
}

CHUNK_RULES = (
    Rule(
        "chunks",
        "the artifact revision has no chunks",
        """
        SELECT r.revision_id FROM artifact_revisions r JOIN artifacts a ON a.row_id = r.artifact_row
        WHERE a.erasure_row IS NULL AND a.kind NOT IN ('okf.inbox', 'okf.mirror', 'okf.reserved')
            AND NOT EXISTS (SELECT 1 FROM artifact_chunks c WHERE c.revision_row = r.row_id)
        """,
    ),
    Rule(
        "chunks",
        "chunk {0} does not begin at byte {1}, where the one before it ends, or not in the row after it",
        """
        SELECT r.revision_id, c.ordinal, c.end_before FROM (
            SELECT revision_row, ordinal, start_byte, row_id,
                lag(end_byte, 1, 0) OVER chunks AS end_before, lag(ordinal, 1, -1) OVER chunks AS ordinal_before,
                lag(row_id, 1, row_id - 1) OVER chunks AS row_before
            FROM artifact_chunks WINDOW chunks AS (PARTITION BY revision_row ORDER BY ordinal)) c
        JOIN artifact_revisions r ON r.row_id = c.revision_row
        WHERE c.start_byte <> c.end_before OR c.ordinal <> c.ordinal_before + 1 OR c.row_id <> c.row_before + 1
        """,
    ),
    Rule(
        "chunks",
        "the chunks end at byte {0} of {1}",
        """
        SELECT r.revision_id, max(c.end_byte) AS last, r.size_bytes
        FROM artifact_chunks c JOIN artifact_revisions r ON r.row_id = c.revision_row
        GROUP BY c.revision_row
        HAVING last <> r.size_bytes AND (last <> 0 OR count(*) > 1)
        """,
    ),
    Rule(
        "chunks",
        "chunk {0} is empty and not the only one",
        """
        SELECT r.revision_id, c.ordinal FROM artifact_chunks c JOIN artifact_revisions r ON r.row_id = c.revision_row
        WHERE c.end_byte <= c.start_byte AND (c.ordinal > 0 OR c.end_byte < 0)
        """,
    ),
    Rule(
        "chunks",
        "chunk {0} does not keep its text where it must: in itself, or in the body of its revision",
        """
        SELECT r.revision_id, c.ordinal FROM artifact_chunks c JOIN artifact_revisions r ON r.row_id = c.revision_row
        WHERE (c.text IS NULL) <> (r.body IS NOT NULL) OR octet_length(c.text) <> c.end_byte - c.start_byte
        """,
    ),
)


_INDEXED_TEXTS = {
    "artifact_fts": (
        ("title", "body"),
        """
        SELECT r.title || char(10) ||
            coalesce(c.text, CAST(substr(r.body, c.start_byte + 1, c.end_byte - c.start_byte) AS TEXT), '')
        FROM artifact_fts CROSS JOIN artifact_chunks c ON c.row_id = artifact_fts.rowid
        JOIN artifact_revisions r ON r.row_id = c.revision_row
        WHERE artifact_fts MATCH ? LIMIT 1
        """,
    ),
    "claim_fts": (
        ("statement",),
        """
        SELECT r.statement FROM claim_fts CROSS JOIN claim_revisions r ON r.row_id = claim_fts.rowid
        WHERE claim_fts MATCH ? LIMIT 1
        """,
    ),
}
"""Of the indexes whose words are learned: the columns of words as written, and a text that has one of them."""
_UNKNOWN_TERMS = f"""
    SELECT term FROM temp.{_WORDS} v
    WHERE col IN (SELECT value FROM json_each(?)) AND NOT EXISTS (SELECT 1 FROM words w WHERE w.word = v.term)
"""  # noqa: S608 - a constant name
_IS_LEARNED = "SELECT 1 FROM words WHERE word = ?"


def issues(db: apsw.Connection) -> Iterator[Issue]:
    yield from breaches(db, CHUNK_RULES)
    for index, rules in INDEXES.items():
        try:
            db.execute(f"CREATE VIRTUAL TABLE temp.{_POSTINGS} USING fts5vocab (main, {index}, instance)")
            db.execute(f"CREATE TEMP TABLE {_POSTED} (doc INTEGER PRIMARY KEY)")
            db.execute(f"INSERT INTO temp.{_POSTED} SELECT DISTINCT doc FROM temp.{_POSTINGS}")  # noqa: S608
            yield from breaches(db, rules)
        finally:
            db.execute(f"DROP TABLE IF EXISTS temp.{_POSTED}")
            db.execute(f"DROP TABLE IF EXISTS temp.{_POSTINGS}")
    for index in _INDEXED_TEXTS:
        yield from _unlearned_words(db, index)


def _unlearned_words(db: apsw.Connection, index: str) -> Iterator[Issue]:
    """Told once: whatever lost one of the words will have lost others. The tokenizer knows fewer letters than Unicode
    has by now and cuts some words that are learned whole, so a term is held against a text that has it."""
    columns, text_with = _INDEXED_TEXTS[index]
    try:
        db.execute(f"CREATE VIRTUAL TABLE temp.{_WORDS} USING fts5vocab (main, {index}, col)")
        for (term,) in db.execute(_UNKNOWN_TERMS, (orjson.dumps(columns).decode(),)):
            if term is None or not is_guessable(without_diacritics(term)):
                continue
            text = scalar(db, text_with, (f'{{{" ".join(columns)}}} : "{term}"',))
            if not all(scalar(db, _IS_LEARNED, (word,)) for word in guessable_words(segments(text or "").words)):
                yield Issue("index", index, "has words that no misspelled word is compared with")
                return
    finally:
        db.execute(f"DROP TABLE IF EXISTS temp.{_WORDS}")

"""The full-text index against the rows it was made from: every one of them, and nothing more.

The index keeps no text, so its content cannot be read back. What can be is which documents it knows: those whose size
it keeps, and those that its postings name. Both must be exactly the rows that are to be found.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from memoree.verification.issue import Issue, Kind
from memoree.verification.rule import Rule, breaches

_POSTINGS = "verified_postings"
_POSTED = "verified_documents"


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
        "claim_fts", "index", "claim revision", "SELECT row_id, revision_id AS name FROM claim_revisions"
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
        SELECT revision_id FROM artifact_revisions r
        WHERE NOT EXISTS (SELECT 1 FROM artifact_chunks c WHERE c.revision_row = r.row_id)
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

"""Which artifact revisions quote this store, and what of it: derived rows, written where the text is indexed. Claims
are never marked.

A revision counts what it cites of earlier commits only, so that the rows can be made again from the texts at any time
and are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import apsw
import orjson

from memoree import limits
from memoree.database.connection import scalar
from memoree.retrieval.derivation import SCHEME, Cited, cited_in

_EARLIER = """
    SELECT cited.key FROM json_each(?1) AS cited
    WHERE CASE cited.value ->> 0
        WHEN 'claim' THEN EXISTS (
            SELECT 1 FROM claim_revisions r JOIN claims e ON e.row_id = r.claim_row
            WHERE r.revision_id = cited.value ->> 2 AND e.claim_id = cited.value ->> 1 AND r.row_id < ?2)
        ELSE EXISTS (
            SELECT 1 FROM artifact_revisions r JOIN artifacts e ON e.row_id = r.artifact_row
            WHERE r.revision_id = cited.value ->> 2 AND e.artifact_id = cited.value ->> 1 AND r.row_id < ?2
                AND (cited.value ->> 3 IS NULL OR cited.value ->> 3 <= r.size_bytes))
        END
    ORDER BY cited.key
"""
_CHUNK_TEXT = "coalesce(c.text, CAST(substr(r.body, c.start_byte + 1, c.end_byte - c.start_byte) AS TEXT))"
_CHUNKS = "FROM artifact_chunks c JOIN artifact_revisions r ON r.row_id = c.revision_row"
_MAY_QUOTE = f"""
    SELECT revision_row FROM (
        SELECT c.revision_row, {_CHUNK_TEXT} AS text,
            lag(CAST({_CHUNK_TEXT} AS BLOB)) OVER (PARTITION BY c.revision_row ORDER BY c.ordinal) AS before
        {_CHUNKS}
    )
    WHERE instr(lower(text), '{SCHEME}')
        OR instr(lower(substr(before, 1 - {len(SCHEME)}) || substr(text, 1, {len(SCHEME)} - 1)), '{SCHEME}')
    UNION SELECT revision_row FROM derivations
"""  # noqa: S608 - constants
"""The end of a chunk is taken as bytes: of text with a NUL in it, `substr` takes the end of what comes before."""
_TEXT = f"SELECT {_CHUNK_TEXT} {_CHUNKS} WHERE c.revision_row = ? ORDER BY c.ordinal"
_INSERT = "INSERT INTO derivations VALUES (?, ?)"
_DELETE = "DELETE FROM derivations WHERE revision_row = ?"
_ROWS = """
    SELECT row_id FROM json_each(?1) JOIN artifact_revisions ON revision_id = value
    UNION SELECT row_id FROM json_each(?1) JOIN claim_revisions ON revision_id = value
"""
_FIND = "SELECT citations FROM derivations WHERE revision_row = ?"


def record(db: apsw.Connection, *, revision_row: int, text: str) -> None:
    """Mark a revision with what its text quotes of this store, if it quotes anything."""
    if citations := quoted_by(db, revision_row, text):
        db.execute(_INSERT, (revision_row, orjson.dumps(citations).decode()))


def remove(db: apsw.Connection, revision_row: int) -> None:
    db.execute(_DELETE, (revision_row,))


def rebuild(db: apsw.Connection) -> None:
    """Mark every revision of a store that has no marks yet."""
    for revision_row, text in texts(db):
        record(db, revision_row=revision_row, text=text)


def quoted_by(db: apsw.Connection, revision_row: int, text: str) -> list[str]:
    """The citations in a text of what the store held before that revision, the first `DERIVATION_CITATIONS_MAX`."""
    found = cited_in(text)
    quoted: dict[str, None] = {}
    while len(quoted) < limits.DERIVATION_CITATIONS_MAX and (
        batch := list(islice(found, limits.DERIVATION_BATCH_ITEMS_MAX))
    ):
        quoted.update(dict.fromkeys(map(str, _earlier(db, revision_row, list(dict.fromkeys(batch))))))
    return list(quoted)[: limits.DERIVATION_CITATIONS_MAX]


def _earlier(db: apsw.Connection, revision_row: int, cited: Sequence[Cited]) -> list[Cited]:
    """Those that the store held before the revision, in the order given."""
    asked = [(each.entity_type, each.entity_id, each.revision_id, each.span and each.span.end) for each in cited]
    return [cited[key] for (key,) in db.execute(_EARLIER, (orjson.dumps(asked).decode(), revision_row))]


def marked(db: apsw.Connection, revision_row: int) -> list[str]:
    """The citations that a revision is marked with; none for one that quotes nothing."""
    stored = scalar(db, _FIND, (revision_row,))
    return [] if stored is None else list(orjson.loads(stored))


def quoted_rows(db: apsw.Connection, revision_row: int) -> frozenset[int]:
    """The revisions that a revision is marked with, by row: these are commit numbers, of artifacts and claims alike."""
    revisions = [citation.partition("@")[2].partition("#")[0] for citation in marked(db, revision_row)]
    return frozenset(int(str(row)) for (row,) in db.execute(_ROWS, (orjson.dumps(revisions).decode(),)))


def texts(db: apsw.Connection) -> Iterator[tuple[int, str]]:
    """Every revision that is marked or may have to be, with its text; those without our scheme are not read."""
    for (revision_row,) in db.execute(_MAY_QUOTE):
        yield int(str(revision_row)), "".join(str(text) for (text,) in db.execute(_TEXT, (revision_row,)))

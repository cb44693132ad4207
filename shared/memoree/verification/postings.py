"""What the full-text index says of a text, against what that text says.

A sum over where each word stands, in any order, is made from the postings in one pass through the index, and from the
text by the tokenizer of the index. Equal sums are equal postings but for one chance in 2^64. Of an index with more
than `VERIFY_TEXTS_COMPARED_MAX` texts about that many are compared, always the same ones: whatever ruined pages of it
or wrote it wrongly will have met some of these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from memoree import limits
from memoree.database.connection import scalar
from memoree.database.index import ArtifactRow, artifact_rows
from memoree.retrieval.text import segments
from memoree.verification.issue import Issue

_POSTINGS = "compared_postings"
TOKENIZER = ("unicode61", ["remove_diacritics", "2", "categories", "L* N* M* Co"])
"""Of every index; the check of the schema sees to that."""

_SHARE = "((({row} & 0x7fffffff) * 2654435761 >> 16) % ?1 = 0)"
"""One row of so many. Multiplied, because row ids are commit numbers: every other one may be of another table."""
_COMPARED_POSTINGS = f"SELECT doc, term, col, offset FROM temp.{_POSTINGS} WHERE {_SHARE.format(row='doc')}"  # noqa: S608

_CHUNK_TEXT = """
    coalesce({chunk}.text, CAST(substr(r.body, {chunk}.start_byte + 1, {chunk}.end_byte - {chunk}.start_byte) AS TEXT))
"""


@dataclass(frozen=True, slots=True)
class _Source:
    """The texts of an index: `sql` gives their row ids, their names, and what `columns_of` makes columns of."""

    table: str
    columns: tuple[str, ...]
    columns_of: Callable[..., Sequence[str]]
    sql: str


def _chunk_columns(title: str, text: str | None, following: str | None) -> Sequence[str]:
    """A chunk is indexed with the beginning of the one that follows it."""
    texts = [(row, each) for row, each in enumerate((text or "", following)) if each is not None]
    return next(artifact_rows(segments(title), texts))[1:]


_SOURCES = {
    "artifact_fts": _Source(
        "artifact_chunks",
        ArtifactRow._fields[1:],
        _chunk_columns,
        f"""
        SELECT c.row_id, r.revision_id, r.title, {_CHUNK_TEXT.format(chunk="c")}, {_CHUNK_TEXT.format(chunk="n")}
        FROM artifact_chunks c JOIN artifact_revisions r ON r.row_id = c.revision_row
        LEFT JOIN artifact_chunks n ON n.revision_row = c.revision_row AND n.ordinal = c.ordinal + 1
        WHERE {_SHARE.format(row="c.row_id")}
        """,  # noqa: S608 - constant fragments, here and below
    ),
    "claim_fts": _Source(
        "claim_revisions",
        ("statement", "cjk", "terms"),
        segments,
        f"SELECT row_id, revision_id, statement FROM claim_revisions WHERE {_SHARE.format(row='row_id')}",  # noqa: S608
    ),
    "projection_fts": _Source(
        "projections",
        ("text", "cjk", "terms"),
        segments,
        f"""
        SELECT row_id, projection_id, text FROM projections
        WHERE status = 'active' AND {_SHARE.format(row="row_id")}
        """,  # noqa: S608
    ),
}


def issues(db: apsw.Connection) -> Iterator[Issue]:
    for index, source in _SOURCES.items():
        texts = scalar(db, f"SELECT count(*) FROM {source.table}")  # noqa: S608
        one_of = -(-texts // limits.VERIFY_TEXTS_COMPARED_MAX) or 1
        posted = _posted_sums(db, index, one_of)
        differing = (name for row, name, total in _text_sums(db, source, one_of) if posted.get(row, total) != total)
        for name in dict.fromkeys(differing):
            yield Issue("index", name, f"{index} says something else of it than its text")


def _posted_sums(db: apsw.Connection, index: str, one_of: int) -> dict[int, int]:
    sums: defaultdict[int, int] = defaultdict(int)
    try:
        db.execute(f"CREATE VIRTUAL TABLE temp.{_POSTINGS} USING fts5vocab (main, {index}, instance)")
        rows: Iterator[tuple[Any, ...]] = db.execute(_COMPARED_POSTINGS, (one_of,))
        for row, term, column, offset in rows:
            # Diacritics alone are an empty term, which the vocabulary gives as NULL.
            sums[row] += _hashed(term or "", column, offset)
    finally:
        db.execute(f"DROP TABLE IF EXISTS temp.{_POSTINGS}")
    return sums


def _text_sums(db: apsw.Connection, source: _Source, one_of: int) -> Iterator[tuple[int, str, int]]:
    """Row ids, names and sums."""
    tokenizer = db.fts5_tokenizer(*TOKENIZER)
    rows: Iterator[tuple[Any, ...]] = db.execute(source.sql, (one_of,))
    for row, name, *given in rows:
        total = 0
        for column, text in zip(source.columns, source.columns_of(*given), strict=True):
            for offset, term in enumerate(_terms(tokenizer, text)):
                total += _hashed(term, column, offset)
        yield row, name, total


def _hashed(term: str, column: str, offset: int) -> int:
    """Of one string: the hash of a tuple is nearly linear in its members, and sums of it are equal for words turned."""
    return hash(f"{column} {offset} {term}")


def _terms(tokenizer: apsw.FTS5Tokenizer, text: str) -> Iterable[Any]:
    return tokenizer(text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)

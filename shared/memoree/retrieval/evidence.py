"""What a claim rests on, as an answer shows it: every locator, and the words behind the first of them (contract §3.2).

The words come out of the database, where the text of every indexed body is, so an answer waits for no blob. A revision
that is not returned as text has none; neither has one of a forgotten artifact, of which only the locator is told.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import apsw
import orjson

from memoree import limits
from memoree.citation import ArtifactCitation, Span
from memoree.database.connection import scalar
from memoree.errors import Code, MemoreeError, shown
from memoree.retrieval.excerpts import cut

_EVIDENCE = f"""
    SELECT v.claim_revision_row, a.artifact_id, r.revision_id, v.start_byte, v.end_byte, r.media_type, r.size_bytes,
        CASE a.status WHEN 'active' THEN r.title ELSE '' END, shown.row_id,
        CASE WHEN shown.row_id IS NOT NULL THEN substr(r.body, coalesce(v.start_byte, 0) + 1, :bytes_max) END
    FROM json_each(:claim_revisions) AS asked
    CROSS JOIN claim_evidence AS v ON v.claim_revision_row = asked.value
    CROSS JOIN artifact_revisions AS r ON r.row_id = v.artifact_revision_row
    CROSS JOIN artifacts AS a ON a.row_id = r.artifact_row
    LEFT JOIN artifact_chunks AS shown ON shown.revision_row = r.row_id AND shown.ordinal = 0 AND shown.end_byte > 0
        AND v.ordinal < {limits.RECALL_EVIDENCE_EXCERPTS_PER_CLAIM_MAX} AND a.status = 'active'
        AND r.media_type LIKE 'text/%'
    ORDER BY v.claim_revision_row, v.ordinal
"""  # noqa: S608 - a constant bound
"""`shown` is the first chunk of a revision with a preview; a body that is no text has the one chunk 0-0."""
_LAST_CHUNK = """
    SELECT row_id FROM artifact_chunks
    WHERE revision_row = (SELECT revision_row FROM artifact_chunks WHERE row_id = ?) ORDER BY ordinal DESC LIMIT 1
"""
_CHUNK_START = "SELECT start_byte FROM artifact_chunks WHERE row_id <= ? ORDER BY row_id DESC LIMIT 1"
_CHUNK_TEXTS = "SELECT start_byte, text FROM artifact_chunks WHERE row_id BETWEEN ? AND ? ORDER BY row_id"
_CHARACTER_BYTES_MAX = 4


@dataclass(frozen=True, slots=True)
class EvidenceItem:
    """One locator of a claim; offsets where it names a span. `title` is empty for a forgotten artifact. `excerpt`
    begins where the span does, and `excerpt_truncated` says that it ends before."""

    artifact_id: str
    revision_id: str
    citation: str
    start_byte: int | None
    end_byte: int | None
    title: str
    media_type: str
    excerpt: str | None
    excerpt_truncated: bool


def evidence_of(
    db: apsw.Connection, claim_revision_rows: Sequence[int], *, excerpt_bytes_max: int
) -> dict[int, list[EvidenceItem]]:
    """All evidence of claim revisions, by their rows, in stored order. Raises `INTEGRITY_ERROR` where the stored text
    of a revision has a hole."""
    bindings = {
        "claim_revisions": orjson.dumps(claim_revision_rows).decode(),
        "bytes_max": excerpt_bytes_max + _CHARACTER_BYTES_MAX,
    }
    found: dict[int, list[EvidenceItem]] = {}
    rows: list[tuple[Any, ...]] = db.execute(_EVIDENCE, bindings).fetchall()
    for claim_revision_row, *locator in rows:
        found.setdefault(claim_revision_row, []).append(_item(db, *locator, bytes_max=excerpt_bytes_max))
    return found


def _item(
    db: apsw.Connection,
    artifact_id: str,
    revision_id: str,
    start: int | None,
    end: int | None,
    media_type: str,
    size: int,
    title: str,
    first_chunk_row: int | None,
    inline: bytes | None,
    *,
    bytes_max: int,
) -> EvidenceItem:
    span = None if start is None or end is None else Span(start, end)
    excerpt, is_truncated = None, False
    if first_chunk_row is not None:
        whole = span or Span(0, size)
        wanted = min(whole.end - whole.start, bytes_max + _CHARACTER_BYTES_MAX)
        read = _chunk_bytes(db, first_chunk_row, whole.start, wanted) if inline is None else inline[:wanted]
        if len(read) < wanted:
            raise MemoreeError(
                Code.INTEGRITY_ERROR, f"the stored text of revision {shown(revision_id)} has a hole in {whole}"
            )
        text = read.decode(errors="replace")
        excerpt = cut(text, bytes_max)
        is_truncated = len(excerpt) < len(text) or wanted < whole.end - whole.start
    return EvidenceItem(
        artifact_id=artifact_id,
        revision_id=revision_id,
        citation=str(ArtifactCitation(artifact_id, revision_id, span)),
        start_byte=start,
        end_byte=end,
        title=title,
        media_type=media_type,
        excerpt=excerpt or None,
        excerpt_truncated=is_truncated,
    )


def _chunk_bytes(db: apsw.Connection, first_row: int, start: int, size: int) -> bytes:
    """Bytes of a body that is kept in chunks, whose rows are consecutive; fewer where chunks are missing."""
    last_row = scalar(db, _LAST_CHUNK, (first_row,))
    rows = range(first_row, last_row + 1)
    row = first_row + bisect_right(rows, start, key=lambda row: scalar(db, _CHUNK_START, (row,))) - 1
    read = bytearray()
    with closing(db.execute(_CHUNK_TEXTS, (row, last_row))) as chunks:
        for chunk_start, text in chunks:
            expected = start + len(read)
            if chunk_start > expected:
                break
            read += text.encode()[expected - chunk_start :]
            if len(read) >= size:
                break
    return bytes(read[:size])

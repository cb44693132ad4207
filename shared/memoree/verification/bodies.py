"""The bytes that live in the database: inline bodies, and the text that chunks keep of a blob.

A partition of the body, put together again, hashes to the name of the body: no blob is read for that.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw
from blake3 import blake3

from memoree.database.connection import scalar
from memoree.media import indexable_text
from memoree.verification.issue import Issue

_INLINE = """
    SELECT r.row_id, r.revision_id, r.media_type, r.blob_hash, r.size_bytes, r.body
    FROM artifact_revisions r JOIN artifacts a ON a.row_id = r.artifact_row
    WHERE r.body IS NOT NULL AND a.erasure_row IS NULL ORDER BY r.row_id
"""
_CHUNKED_BLOBS = """
    SELECT r.row_id, r.revision_id, r.blob_hash FROM artifact_revisions r
    WHERE r.body IS NULL AND EXISTS (
        SELECT 1 FROM artifact_chunks c WHERE c.revision_row = r.row_id AND c.end_byte > 0)
    ORDER BY r.row_id
"""
_TEXTS = "SELECT coalesce(text, '') FROM artifact_chunks WHERE revision_row = ? ORDER BY ordinal"
_INDEXED_BYTES = "SELECT max(end_byte) FROM artifact_chunks WHERE revision_row = ?"


def issues(db: apsw.Connection) -> Iterator[Issue]:
    for row, revision_id, media_type, digest, size, body in db.execute(_INLINE):
        if len(body) != size or blake3(body).digest() != digest:
            yield Issue("body", revision_id, "the body is not what its size and digest say")
        elif scalar(db, _INDEXED_BYTES, (row,)) not in (None, _indexable_bytes(media_type, body)):
            yield Issue("chunks", revision_id, "the chunks do not cover the text of the body, or cover what is no text")
    for row, revision_id, digest in db.execute(_CHUNKED_BLOBS):
        hasher = blake3()
        for (text,) in db.execute(_TEXTS, (row,)):
            hasher.update(text.encode())
        if hasher.digest() != digest:
            yield Issue("chunks", revision_id, "the text of the chunks, put together, is not the body")


def _indexable_bytes(media_type: str, body: bytes) -> int:
    return len(body) if indexable_text(media_type, body) is not None else 0

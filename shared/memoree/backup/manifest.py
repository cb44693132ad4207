"""The manifest of a backup: every blob that its database refers to, one line of JSON each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import apsw
import orjson

from memoree import limits
from memoree.backup.database import create_private, open_copy
from memoree.objects.audit import BlobRef
from memoree.verification.store import referenced_blobs

_FROM = """
    SELECT blob_hash, max(size_bytes) FROM artifact_revisions WHERE body IS NULL AND blob_hash >= ?
    GROUP BY blob_hash ORDER BY blob_hash LIMIT ?
"""


class Written(NamedTuple):
    """How many blobs, and how many bytes they have together."""

    blobs: int
    bytes: int


def write(database: Path, manifest: Path) -> Written:
    """Make the new file `manifest` of the finished copy `database`."""
    blobs = size = 0
    with closing(open_copy(database)) as db, create_private(manifest) as file:
        for ref in referenced_blobs(db):
            file.write(orjson.dumps({"digest": ref.digest.hex(), "size": ref.size}) + b"\n")
            blobs, size = blobs + 1, size + ref.size
    return Written(blobs, size)


def refs(manifest: Path) -> Iterator[BlobRef]:
    """In ascending order of digests."""
    with manifest.open("rb") as file:
        for line in file:
            entry = orjson.loads(line)
            yield BlobRef(bytes.fromhex(entry["digest"]), entry["size"])


def sample(database: Path) -> list[BlobRef]:
    """A few blobs that follow a random place among the digests: another few every time."""
    with closing(open_copy(database)) as db:
        found = _following(db, os.urandom(32)) or _following(db, b"")
    chosen: list[BlobRef] = []
    for ref in found:
        if sum(each.size for each in chosen) + ref.size <= limits.BACKUP_SAMPLE_BYTES_MAX:
            chosen.append(ref)
    return chosen


def _following(db: apsw.Connection, place: bytes) -> list[BlobRef]:
    return [BlobRef(*row) for row in db.execute(_FROM, (place, limits.BACKUP_SAMPLE_BLOBS_MAX))]

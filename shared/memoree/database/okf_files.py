"""The files of a bundle as the store has them: what each is now, and where these bytes came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import apsw

_PAGE = """
    SELECT n.node_id, i.external_revision, a.artifact_id, r.revision_id, n.tier, r.size_bytes, n.revision_row,
        r.provenance ->> '$.memoree_source.external_id', r.provenance ->> '$.memoree_source.external_revision',
        r.provenance ->> '$.base'
    FROM okf_nodes AS n
    CROSS JOIN artifacts AS a ON a.row_id = n.row_id
    CROSS JOIN artifact_revisions AS r ON r.row_id = n.revision_row
    CROSS JOIN source_items AS i ON i.source_row = n.bundle AND i.external_id = n.node_id || '.md'
    WHERE n.bundle = ? AND n.node_id > ? ORDER BY n.node_id
"""


class FileRow(NamedTuple):
    """`sha256` is hex. `delivered_as` and `delivered_sha256` are the path and the digest under which a source delivered
    the file, before anybody edited it in the store; `edit_base` is what an edit says it was made to."""

    node_id: str
    sha256: str
    artifact_id: str
    revision_id: str
    tier: str
    size_bytes: int
    revision_row: int
    delivered_as: str | None
    delivered_sha256: str | None
    edit_base: str | None

    @property
    def is_edited(self) -> bool:
        """Whether these bytes were written in the store."""
        return self.delivered_sha256 != self.sha256

    @property
    def base(self) -> str | None:
        """The digest of the file that was edited; `None` for one that nobody edited, or that was made in the store."""
        return (self.delivered_sha256 or self.edit_base) if self.is_edited else None


def after(db: apsw.Connection, bundle: int, node_id: str) -> Iterator[FileRow]:
    """Those behind an id, in the order of ids, one by one."""
    return (FileRow(*row) for row in db.execute(_PAGE, (bundle, node_id)))

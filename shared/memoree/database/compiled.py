"""Claims that were compiled from nodes: those whose current revision bears the compiler's name and cites a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import apsw

from memoree.owner import Owner

_COLUMNS = """c.claim_id, c.claim_type, c.status, c.valid_from, c.valid_until, v.revision_id, v.statement,
    min(e.artifact_revision_row)"""
_OF_ARTIFACT = f"""
    SELECT {_COLUMNS} FROM artifact_revisions r
    CROSS JOIN claim_evidence e ON e.artifact_revision_row = r.row_id
    CROSS JOIN claim_revisions v ON v.row_id = e.claim_revision_row
    CROSS JOIN claims c ON c.row_id = v.claim_row AND c.head_row = v.row_id
    WHERE r.artifact_row = ? AND v.actor = ? AND c.erasure_row IS NULL
    GROUP BY c.row_id ORDER BY c.row_id
"""  # noqa: S608 - constant columns
_OF_NO_NODE = f"""
    SELECT {_COLUMNS} FROM claims c
    CROSS JOIN claim_revisions v ON v.row_id = c.head_row
    CROSS JOIN claim_evidence e ON e.claim_revision_row = v.row_id
    CROSS JOIN artifact_revisions r ON r.row_id = e.artifact_revision_row
    WHERE c.workspace_id = ? AND c.project_id = ? AND c.status IN ('active', 'conflicted') AND v.actor = ?
        AND NOT EXISTS (SELECT 1 FROM okf_nodes n WHERE n.row_id = r.artifact_row)
    GROUP BY c.row_id ORDER BY c.row_id LIMIT ?
"""  # noqa: S608


class Compiled(NamedTuple):
    """A claim as it stands. Instants are in stored form, `cited_row` is the revision of the file that it cites."""

    claim_id: str
    claim_type: str
    status: str
    valid_from: str | None
    valid_until: str | None
    revision_id: str
    statement: str
    cited_row: int

    @property
    def is_live(self) -> bool:
        return self.status in ("active", "conflicted")


def of_artifact(db: apsw.Connection, artifact_row: int, actor: str) -> list[Compiled]:
    """In the order in which they were made, retracted and superseded ones among them."""
    return _compiled(db, _OF_ARTIFACT, (artifact_row, actor))


def of_no_node(db: apsw.Connection, owner: Owner, actor: str, limit: int) -> list[Compiled]:
    """Live ones of a project whose file is in its bundle no more."""
    return _compiled(db, _OF_NO_NODE, (owner.workspace_id, owner.project_id, actor, limit))


def _compiled(db: apsw.Connection, sql: str, bindings: tuple[Any, ...]) -> list[Compiled]:
    rows: Iterator[tuple[Any, ...]] = db.execute(sql, bindings)
    return [Compiled(*row) for row in rows]

"""Entries of the inbox, as curators page through them. They are artifacts of a kind of their own; what became of one is
told by its status and by the edge from what was made of it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import apsw

from memoree.database.artifacts import INBOX_KIND
from memoree.database.connection import one
from memoree.owner import Owner

State = Literal["quarantined", "promoted", "rejected"]
QUARANTINED, PROMOTED, REJECTED = get_args(State)

_BECAME = """
    SELECT e.source_id FROM relations e
    WHERE e.target_id = a.artifact_id AND e.target_type = 'artifact' AND e.relation = 'derived_from'
    ORDER BY e.row_id LIMIT 1
"""
_STATE = f"""
    CASE WHEN a.status = 'active' THEN '{QUARANTINED}' WHEN ({_BECAME}) IS NULL THEN '{REJECTED}'
    ELSE '{PROMOTED}' END
"""
_COLUMNS = f"""a.artifact_id, r.revision_id, r.provenance, r.size_bytes, r.created_at, a.forgotten_reason,
    ({_BECAME}) AS became, {_STATE} AS state, a.row_id"""
_FROM = "FROM artifacts a JOIN artifact_revisions r ON r.row_id = a.head_row"
_PAGE = f"""
    SELECT {_COLUMNS} {_FROM}
    WHERE a.workspace_id = :workspace AND a.project_id = :project AND a.kind = '{INBOX_KIND}' AND a.row_id < :before
        AND (:agent IS NULL OR r.provenance ->> 'agent' = :agent) AND (:state IS NULL OR {_STATE} = :state)
    ORDER BY a.row_id DESC LIMIT :limit
"""
_BY_ROW = f"SELECT {_COLUMNS} {_FROM} WHERE a.row_id = ?"


class EntryRow(NamedTuple):
    """`provenance` is JSON text, `became` the artifact that was made of it, `row_id` the commit that wrote it."""

    entry_id: str
    revision_id: str
    provenance: str
    size_bytes: int
    created_at: str
    reason: str | None
    became: str | None
    state: State
    row_id: int


def page(
    db: apsw.Connection, owner: Owner, *, agent: str | None, state: State | None, before: int, limit: int
) -> list[EntryRow]:
    """Up to `limit` entries of a project that were written before that commit, newest first."""
    bindings: dict[str, Any] = {
        "workspace": owner.workspace_id,
        "project": owner.project_id,
        "agent": agent,
        "state": state,
        "before": before,
        "limit": limit,
    }
    return [EntryRow(*row) for row in db.execute(_PAGE, bindings)]


def by_row(db: apsw.Connection, row_id: int) -> EntryRow:
    row = one(db, _BY_ROW, (row_id,))
    assert row is not None, f"artifact row {row_id} is not in the store"
    return EntryRow(*row)

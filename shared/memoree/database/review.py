"""What a review asks of the rows of a bundle beside its nodes."""

from __future__ import annotations

import apsw

from memoree import clock

_STORED_AT = """
    SELECT n.node_id, r.created_at FROM okf_nodes AS n JOIN artifact_revisions AS r ON r.row_id = n.revision_row
    WHERE n.bundle = ?
"""
_POINTED_AT = """
    SELECT DISTINCT e.target_id FROM okf_edges AS e JOIN okf_nodes AS n ON n.row_id = e.node_row
    WHERE e.bundle = ? AND n.tier IN ('canon', 'reserved') AND e.kind <> 'superseded_by' AND e.target_id <> n.node_id
"""


def stored_ms(db: apsw.Connection, bundle: int) -> dict[str, int]:
    """By node when its present revision was stored, in milliseconds since 1970."""
    found = db.execute(_STORED_AT, (bundle,))
    return {node_id: clock.milliseconds(clock.from_stored(created_at)) for node_id, created_at in found}


def pointed_at(db: apsw.Connection, bundle: int) -> set[str]:
    """Ids that another node of canon, or a reserved file, names; that it says it is replaced by them does not count."""
    return {target_id for (target_id,) in db.execute(_POINTED_AT, (bundle,))}

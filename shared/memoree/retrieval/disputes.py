"""Open contradictions that touch the claims of an answer (retrieval contract §3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apsw
import orjson

from memoree.retrieval.scope import VISIBLE

_TOUCHING = """
    SELECT asked.key, c.relation_row FROM json_each(:claim_revisions) AS asked
    CROSS JOIN claim_revisions AS r ON r.row_id = asked.value
    CROSS JOIN conflict_cases AS c ON c.state = 'open' AND c.{end}_claim_row = r.claim_row
"""
OPEN_DISPUTES = f"""
    WITH touching (position, relation_row) AS (
        {_TOUCHING.format(end="source")} UNION ALL {_TOUCHING.format(end="target")}
    )
    SELECT e.source_id, e.target_id, e.relation_id FROM (
        SELECT relation_row, min(position) AS position FROM touching GROUP BY relation_row
    ) AS found
    CROSS JOIN relations AS e ON e.row_id = found.relation_row
    WHERE {VISIBLE}
    ORDER BY found.position, e.row_id
"""  # noqa: S608 - constant predicates


@dataclass(frozen=True, slots=True)
class Dispute:
    """Two claims in an open contradiction, in the direction of its relation."""

    left_id: str
    right_id: str
    relation_id: str

    def touches(self, claim_ids: Iterable[str]) -> bool:
        return any(claim_id in (self.left_id, self.right_id) for claim_id in claim_ids)


def open_disputes(db: apsw.Connection, claim_revision_rows: Sequence[int], scope: Mapping[str, Any]) -> list[Dispute]:
    """The open conflicts of the claims whose revisions these are, one entry each, in the order of the claims, then of
    the relations. `scope` comes from `scope_bindings`: the relation must be visible there. An open conflict is always
    over the current revisions of its claims."""
    if not claim_revision_rows:
        return []
    bindings = {**scope, "claim_revisions": orjson.dumps(claim_revision_rows).decode()}
    return [Dispute(*row) for row in db.execute(OPEN_DISPUTES, bindings)]


def relation_ids(disputes: Iterable[Dispute]) -> dict[str, list[str]]:
    """Claim ids to the relations that put them in dispute, sorted."""
    found: dict[str, set[str]] = {}
    for dispute in disputes:
        for claim_id in (dispute.left_id, dispute.right_id):
            found.setdefault(claim_id, set()).add(dispute.relation_id)
    return {claim_id: sorted(relations) for claim_id, relations in found.items()}

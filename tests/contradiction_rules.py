"""The rules of conflict cases between two commits (machine protocol §6), as queries for what breaks them."""

from __future__ import annotations

import apsw

UNDISPUTED_IN_OPEN_CASES = """
    SELECT c.claim_id FROM claims c WHERE c.status <> 'conflicted' AND EXISTS (SELECT 1 FROM conflict_cases k
        WHERE k.state = 'open' AND c.row_id IN (k.source_claim_row, k.target_claim_row))
"""
DISPUTED_WITHOUT_A_CASE = """
    SELECT c.claim_id FROM claims c WHERE c.status = 'conflicted' AND NOT EXISTS (SELECT 1 FROM conflict_cases k
        WHERE k.state = 'open' AND (c.row_id, c.head_row) IN (
            VALUES (k.source_claim_row, k.source_revision_row), (k.target_claim_row, k.target_revision_row)))
"""
LIVE_CONTRADICTIONS_WITHOUT_A_CASE = """
    SELECT r.relation_id FROM relations r
    JOIN claims s ON s.claim_id = r.source_id JOIN claims t ON t.claim_id = r.target_id
    WHERE r.relation = 'contradicts' AND s.status IN ('active', 'conflicted') AND t.status IN ('active', 'conflicted')
    AND NOT EXISTS (SELECT 1 FROM conflict_cases k WHERE k.relation_row = r.row_id AND k.state = 'open'
        AND k.source_revision_row = s.head_row AND k.target_revision_row = t.head_row)
"""
CASES_THAT_CONTRADICT_THEIR_EVENTS = """
    SELECT k.case_id, k.state, group_concat(v.event ORDER BY v.row_id) AS events
    FROM conflict_cases k LEFT JOIN conflict_events v USING (case_sequence) GROUP BY k.case_sequence
    HAVING events IS NOT CASE k.state WHEN 'open' THEN 'opened' ELSE 'opened,' || k.state END
"""


_RULES = {
    "a claim of an open case is not conflicted": UNDISPUTED_IN_OPEN_CASES,
    "a conflicted claim has no open case over its current revision": DISPUTED_WITHOUT_A_CASE,
    "a contradiction of two live claims has no open case over their current revisions": (
        LIVE_CONTRADICTIONS_WITHOUT_A_CASE
    ),
    "a case is in another state than its events say": CASES_THAT_CONTRADICT_THEIR_EVENTS,
}


def broken_rules(db: apsw.Connection) -> list[str]:
    """Each rule that does not hold, with what breaks it."""
    found = {rule: list(db.execute(query)) for rule, query in _RULES.items()}
    return [f"{rule}: {rows}" for rule, rows in found.items() if rows]

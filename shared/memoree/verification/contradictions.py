"""Relations, conflict cases and the statuses that follow from them (machine protocol §6).

Cases are held against their relation, against the revisions they froze, against the present of both claims, and
against their own events, which replayed in order give the state a case is in (invariant W8, design §5.4).
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from memoree.verification.issue import Issue
from memoree.verification.rule import Rule, breaches

_LIVE = "('active', 'conflicted')"
_BOTH_CLAIMS = """
    JOIN claims s ON s.row_id = c.source_claim_row
    JOIN claims t ON t.row_id = c.target_claim_row
"""


def _endpoint(end: str) -> Rule:
    return Rule(
        "relation",
        f"its {end}, {{0}} {{1}}, does not exist",
        f"""
        SELECT relation_id, {end}_type, {end}_id FROM relations r
        WHERE CASE {end}_type
            WHEN 'artifact' THEN NOT EXISTS (SELECT 1 FROM artifacts WHERE artifact_id = r.{end}_id)
            ELSE NOT EXISTS (SELECT 1 FROM claims WHERE claim_id = r.{end}_id)
        END
        """,  # noqa: S608 - constant names
    )


RULES = (
    _endpoint("source"),
    _endpoint("target"),
    Rule(
        "conflict_case",
        "does not join the two claims of a contradiction, in its direction",
        f"""
        SELECT c.case_id FROM conflict_cases c {_BOTH_CLAIMS} JOIN relations r ON r.row_id = c.relation_row
        WHERE (r.relation, r.source_type, r.source_id, r.target_type, r.target_id)
            <> ('contradicts', 'claim', s.claim_id, 'claim', t.claim_id)
        """,  # noqa: S608
    ),
    Rule(
        "conflict_case",
        "froze a revision that is not of its claim, or that is younger than the case",
        """
        SELECT c.case_id FROM conflict_cases c
        LEFT JOIN claim_revisions s ON s.row_id = c.source_revision_row AND s.claim_row = c.source_claim_row
        LEFT JOIN claim_revisions t ON t.row_id = c.target_revision_row AND t.claim_row = c.target_claim_row
        WHERE s.row_id IS NULL OR t.row_id IS NULL OR max(s.row_id, t.row_id) > c.opened_commit_seq
        """,
    ),
    Rule(
        "conflict_case",
        "is {0}, but its events tell: {1}",
        """
        SELECT c.case_id, c.state, (
            SELECT group_concat(v.event, ', ' ORDER BY v.row_id) FROM conflict_events v
            WHERE v.case_sequence = c.case_sequence) AS told
        FROM conflict_cases c
        WHERE told IS NOT iif(c.state = 'open', 'opened', 'opened, ' || c.state)
        """,
    ),
    Rule(
        "conflict_case",
        "was opened at another commit or instant than its first event says",
        """
        SELECT c.case_id FROM conflict_cases c
        WHERE (c.opened_commit_seq, c.opened_at) IS NOT (
            SELECT v.commit_seq, v.created_at FROM conflict_events v
            WHERE v.case_sequence = c.case_sequence ORDER BY v.row_id LIMIT 1)
        """,
    ),
    Rule(
        "conflict_case",
        "has another reason or instant for its state than its last event says",
        """
        SELECT c.case_id FROM conflict_cases c
        WHERE (c.state_reason, c.updated_at) IS NOT (
            SELECT v.state_reason, v.created_at FROM conflict_events v
            WHERE v.case_sequence = c.case_sequence ORDER BY v.row_id DESC LIMIT 1)
        """,
    ),
    Rule(
        "conflict_case",
        "the commit {0} cannot have made it {1}",
        """
        SELECT c.case_id, v.commit_seq, v.event
        FROM conflict_events v
        JOIN conflict_cases c USING (case_sequence)
        LEFT JOIN events e ON e.commit_seq = v.commit_seq
        WHERE e.operation IS NULL OR NOT CASE v.event
            WHEN 'opened' THEN (e.operation = 'relation.put') = (v.commit_seq = c.relation_row)
                AND e.operation IN ('relation.put', 'claim.revise')
            WHEN 'stale' THEN e.operation = 'claim.revise'
            ELSE e.operation IN ('claim.retract', 'relation.put', 'store.erase')
        END
        """,
    ),
    Rule(
        "conflict_case",
        "was opened before the case that precedes it",
        """
        SELECT case_id FROM (
            SELECT case_id, opened_commit_seq, lag(opened_commit_seq) OVER (ORDER BY case_sequence) AS preceding
            FROM conflict_cases)
        WHERE opened_commit_seq < preceding
        """,
    ),
    Rule(
        "conflict_case",
        "is open, but not over the current revisions of two live claims",
        f"""
        SELECT c.case_id FROM conflict_cases c {_BOTH_CLAIMS}
        WHERE c.state = 'open' AND NOT (s.status IN {_LIVE} AND t.status IN {_LIVE}
            AND s.head_row = c.source_revision_row AND t.head_row = c.target_revision_row)
        """,  # noqa: S608
    ),
    Rule(
        "conflict_case",
        "is stale, but both revisions it froze are current",
        f"""
        SELECT c.case_id FROM conflict_cases c {_BOTH_CLAIMS}
        WHERE c.state = 'stale' AND s.head_row = c.source_revision_row AND t.head_row = c.target_revision_row
        """,  # noqa: S608
    ),
    Rule(
        "conflict_case",
        "is resolved, but both claims are live",
        f"""
        SELECT c.case_id FROM conflict_cases c {_BOTH_CLAIMS}
        WHERE c.state = 'resolved' AND s.status IN {_LIVE} AND t.status IN {_LIVE}
        """,  # noqa: S608
    ),
    Rule(
        "conflict_case",
        "the contradiction joins two live claims and has no open case",
        f"""
        SELECT r.relation_id FROM relations r
        JOIN claims s ON s.claim_id = r.source_id
        JOIN claims t ON t.claim_id = r.target_id
        WHERE r.relation = 'contradicts' AND s.status IN {_LIVE} AND t.status IN {_LIVE} AND NOT EXISTS (
            SELECT 1 FROM conflict_cases o WHERE o.relation_row = r.row_id AND o.state = 'open')
        """,  # noqa: S608
    ),
    Rule(
        "claim_status",
        "is {0}, which does not agree with its open conflict cases",
        f"""
        SELECT c.claim_id, c.status FROM claims c
        WHERE c.status IN {_LIVE} AND (c.status = 'conflicted') <> (
            EXISTS (SELECT 1 FROM conflict_cases WHERE state = 'open' AND source_claim_row = c.row_id)
            OR EXISTS (SELECT 1 FROM conflict_cases WHERE state = 'open' AND target_claim_row = c.row_id))
        """,  # noqa: S608
    ),
    Rule(
        "claim_status",
        "is {0}, which does not agree with what supersedes it",
        """
        SELECT c.claim_id, c.status FROM claims c
        WHERE c.status <> 'retracted' AND (c.status = 'superseded') <> EXISTS (
            SELECT 1 FROM relations r
            WHERE r.target_id = c.claim_id AND r.relation = 'supersedes' AND r.target_type = 'claim')
        """,
    ),
)


def issues(db: apsw.Connection) -> Iterator[Issue]:
    return breaches(db, RULES)

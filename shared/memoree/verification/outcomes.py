"""Idempotency records and attempts: every outcome points at something, and everything has an outcome."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from memoree.errors import Code
from memoree.verification.issue import Issue
from memoree.verification.rule import Rule, breaches

_CODES = ", ".join(f"'{code.value}'" for code in Code)

RULES = (
    Rule(
        "outcome",
        "the idempotency record names commit {0}, which has no event",
        """
        SELECT key, commit_seq FROM idempotency i
        WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.commit_seq = i.commit_seq)
        """,
    ),
    Rule(
        "outcome",
        "the idempotency record tells of a {0} that created something at commit {1}, which was a {2}",
        """
        SELECT i.key, i.operation, i.commit_seq, e.operation
        FROM idempotency i JOIN events e USING (commit_seq)
        WHERE i.operation <> e.operation AND i.result ->> 'created'
        """,
    ),
    Rule(
        "outcome",
        "commit {0} has an event and no idempotency record: its request would be done again",
        """
        SELECT 'commit', commit_seq FROM events e
        WHERE operation NOT LIKE 'store.%' AND NOT EXISTS (
            SELECT 1 FROM events next WHERE next.commit_seq = e.commit_seq + 1
                AND next.operation = e.operation AND next.payload ->> 'began' <= e.commit_seq)
        EXCEPT SELECT 'commit', commit_seq FROM idempotency
        """,
    ),
    Rule(
        "outcome",
        "the attempt counts as applied and has no idempotency record",
        """
        SELECT attempt_id FROM attempts a
        WHERE status = 'applied' AND NOT EXISTS (SELECT 1 FROM idempotency i WHERE i.row_id = a.idempotency_row)
        """,
    ),
    Rule(
        "outcome",
        "the attempt is of batch {0}; there were {1}",
        """
        SELECT attempt_id, batch, (SELECT batch FROM meta) FROM attempts
        WHERE batch NOT BETWEEN 1 AND (SELECT batch FROM meta)
        """,
    ),
    Rule(
        "outcome",
        "no attempt has such an id; by its age it would be kept for ever, or not at all",
        f"SELECT attempt_id FROM attempts WHERE attempt_id NOT GLOB 'att_[0-7]{25 * '[0-9A-HJKMNP-TV-Z]'}'",  # noqa: S608
    ),
    Rule(
        "outcome",
        "the attempt counts as {0}, with {1}, which is no code of that",
        f"""
        SELECT attempt_id, status, code FROM attempts
        WHERE status <> 'applied' AND (code NOT IN ({_CODES}) OR (status = 'expired' AND code <> 'TRANSPORT_ERROR'))
        """,  # noqa: S608 - constants
    ),
    Rule(
        "outcome",
        "the refusal kept of the attempt is not one with the code {0}",
        """
        SELECT attempt_id, code FROM attempts
        WHERE error IS NOT NULL AND (CASE WHEN json_valid(error) THEN error ->> 'code' = code END) IS NOT TRUE
        """,
    ),
    Rule(
        "outcome",
        "the refusal of batch {0} was dropped, while only those up to batch {1} may be",
        """
        SELECT a.attempt_id, a.batch, m.covered_batch FROM attempts a, meta m
        WHERE a.status <> 'applied' AND a.error IS NULL AND a.batch > m.covered_batch
        """,
    ),
    Rule(
        "outcome",
        "{0} attempts count as the one that made their idempotency record",
        """
        SELECT min(attempt_id), count(*) AS makers FROM attempts WHERE status = 'applied' AND NOT replayed
        GROUP BY idempotency_row HAVING makers > 1
        """,
    ),
)


def issues(db: apsw.Connection) -> Iterator[Issue]:
    return breaches(db, RULES)

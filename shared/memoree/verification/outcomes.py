"""Idempotency records and attempts: every outcome points at something, and everything has an outcome."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from memoree.verification.issue import Issue
from memoree.verification.rule import Rule, breaches

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
        SELECT 'commit', commit_seq FROM events WHERE operation NOT LIKE 'store.%'
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
)


def issues(db: apsw.Connection) -> Iterator[Issue]:
    return breaches(db, RULES)

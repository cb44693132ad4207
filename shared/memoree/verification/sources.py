"""What connectors delivered, and what was derived from it (machine protocol §4.21 to §4.26)."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from memoree.verification.issue import Issue
from memoree.verification.rule import Rule, breaches

RULES = (
    Rule(
        "source_item",
        "names the artifact revision {0}, which is not of its artifact",
        """
        SELECT s.source_id || ':' || i.external_id, r.revision_id
        FROM source_items i
        JOIN sources s ON s.row_id = i.source_row
        JOIN artifact_revisions r ON r.row_id = i.artifact_revision_row
        WHERE r.artifact_row <> i.artifact_row
        """,
    ),
    Rule(
        "source_item",
        "is {0}, but its artifact is {1}",
        """
        SELECT s.source_id || ':' || i.external_id, i.state, a.status
        FROM source_items i
        JOIN sources s ON s.row_id = i.source_row
        JOIN artifacts a ON a.row_id = i.artifact_row
        WHERE (i.state = 'withdrawn') <> (a.status = 'forgotten') AND NOT EXISTS (
            SELECT 1 FROM events e WHERE e.commit_seq = a.sys_to AND e.operation = 'artifact.forget')
        """,
    ),
    Rule(
        "source_item",
        "was touched by commit {0}, its source only by {1}",
        """
        SELECT s.source_id || ':' || i.external_id, i.commit_seq, s.commit_seq
        FROM source_items i JOIN sources s ON s.row_id = i.source_row
        WHERE i.commit_seq > s.commit_seq OR i.commit_seq < i.row_id OR i.row_id < s.row_id
        """,
    ),
    Rule(
        "projection",
        "its evidence is not a list of ascending spans within the {0} bytes of its revision",
        """
        SELECT p.projection_id, r.size_bytes FROM projections p JOIN artifact_revisions r ON r.row_id = p.revision_row
        WHERE NOT json_valid(p.evidence_spans) OR json_type(p.evidence_spans) <> 'array'
            OR json_array_length(p.evidence_spans) = 0
            OR EXISTS (
                SELECT 1 FROM (
                    SELECT span.value ->> 0 AS start_byte, span.value ->> 1 AS end_byte,
                        lag(span.value ->> 1, 1, 0) OVER (ORDER BY span.key) AS end_before
                    FROM json_each(p.evidence_spans) span)
                WHERE (end_before <= start_byte AND start_byte < end_byte AND end_byte <= r.size_bytes) IS NOT TRUE)
        """,
    ),
)


def issues(db: apsw.Connection) -> Iterator[Issue]:
    return breaches(db, RULES)

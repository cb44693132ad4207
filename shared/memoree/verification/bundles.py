"""Nodes of OKF bundles, against the items of bundles, and against what stands in their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from memoree.database import okf
from memoree.okf.ids import SUFFIX
from memoree.okf.indexing import index
from memoree.okf.node import parse
from memoree.verification.issue import Issue
from memoree.verification.rule import Rule, breaches

RULES = (
    Rule(
        "node",
        "is a file of a bundle that is not searched, or not in its current revision",
        """
        SELECT a.artifact_id FROM source_items i
        JOIN sources s ON s.row_id = i.source_row
        JOIN artifacts a ON a.row_id = i.artifact_row
        WHERE s.kind = 'okf' AND i.state = 'live' AND a.status = 'active' AND NOT EXISTS (
            SELECT 1 FROM okf_nodes n WHERE n.row_id = a.row_id AND n.revision_row = a.head_row
                AND n.bundle = s.row_id AND n.node_id || '.md' = i.external_id)
        """,
    ),
    Rule(
        "node",
        "is searched as row {0} of a bundle, and is no live file of it",
        """
        SELECT coalesce(a.artifact_id, n.row_id), n.row_id FROM okf_nodes n LEFT JOIN artifacts a ON a.row_id = n.row_id
        WHERE NOT EXISTS (
            SELECT 1 FROM source_items i JOIN sources s ON s.row_id = i.source_row
            WHERE i.artifact_row = n.row_id AND i.state = 'live' AND s.row_id = n.bundle AND s.kind = 'okf')
            OR a.status IS NOT 'active'
        """,
    ),
    *(
        Rule(
            "node",
            f"{table} has rows of a node that is not there",
            f"SELECT DISTINCT node_row FROM {table} WHERE node_row NOT IN (SELECT row_id FROM okf_nodes)",  # noqa: S608
        )
        for table in ("okf_postings", "okf_edges")
    ),
    Rule(
        "node",
        "has {0} postings, and terms for {1}",
        """
        SELECT a.artifact_id, coalesce(p.postings, 0), json_array_length(n.terms) FROM okf_nodes n
        JOIN artifacts a ON a.row_id = n.row_id
        LEFT JOIN (SELECT node_row, count(*) AS postings FROM okf_postings GROUP BY node_row) p ON p.node_row = n.row_id
        WHERE coalesce(p.postings, 0) <> json_array_length(n.terms)
        """,
    ),
)

_FILES = """
    SELECT n.row_id, n.bundle, n.revision_row, a.artifact_id, i.external_id, r.body,
        (SELECT group_concat(c.text, '') FROM (
            SELECT text FROM artifact_chunks WHERE revision_row = r.row_id ORDER BY ordinal) c)
    FROM okf_nodes n
    JOIN artifacts a ON a.row_id = n.row_id
    JOIN artifact_revisions r ON r.row_id = n.revision_row
    JOIN source_items i ON i.artifact_row = n.row_id AND i.source_row = n.bundle
    WHERE r.body IS NOT NULL
        OR EXISTS (SELECT 1 FROM artifact_chunks c WHERE c.revision_row = r.row_id AND c.text <> '')
    ORDER BY n.row_id
"""
_ROWS = (
    "SELECT * FROM okf_nodes WHERE row_id = ?",
    "SELECT * FROM okf_edges WHERE node_row = ? ORDER BY ordinal",
    """
    SELECT p.* FROM okf_nodes n CROSS JOIN json_each(n.terms) t
    CROSS JOIN okf_postings p ON p.bundle = n.bundle AND p.term = t.value AND p.node_row = n.row_id
    WHERE n.row_id = ? ORDER BY p.term
    """,
)


def issues(db: apsw.Connection) -> Iterator[Issue]:
    """The rules, and every node whose text the database has made anew beside what is stored of it."""
    yield from breaches(db, RULES)
    fresh = okf.empty()
    files: Iterator[tuple[Any, ...]] = db.execute(_FILES)
    for row_id, bundle, revision_row, artifact_id, external_id, body, text in files:
        data = text.encode() if body is None else body
        node = parse(str(external_id).removesuffix(SUFFIX), data)
        index(fresh, node, row_id=row_id, bundle=bundle, revision_row=revision_row)
        if any(db.execute(sql, (row_id,)).fetchall() != fresh.execute(sql, (row_id,)).fetchall() for sql in _ROWS):
            yield Issue("node", artifact_id, "is not searched as its file says")
        okf.delete(fresh, row_id)

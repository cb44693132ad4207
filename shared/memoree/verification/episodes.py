"""What is behind episode ids (MemoryProtocol §5), against the artifacts that it is made of."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from memoree.verification.issue import Issue
from memoree.verification.rule import Rule, breaches

RULES = (
    Rule(
        "episode",
        "is an episode, and its revision {0} is no version of one",
        """
        SELECT a.artifact_id, r.revision_id FROM artifacts a JOIN artifact_revisions r ON r.artifact_row = a.row_id
        WHERE a.kind = 'episode' AND NOT EXISTS (SELECT 1 FROM episodes p WHERE p.row_id = r.row_id)
        """,
    ),
    Rule(
        "episode",
        "its version {0} is of another artifact than its revision {1}",
        """
        SELECT p.episode_id, p.row_id, r.revision_id
        FROM episodes p JOIN artifact_revisions r ON r.row_id = p.row_id
        WHERE p.artifact_row <> r.artifact_row
        """,
    ),
    Rule(
        "episode",
        "its version {0} is of an artifact that is no episode",
        """
        SELECT p.episode_id, p.row_id FROM episodes p JOIN artifacts a ON a.row_id = p.artifact_row
        WHERE a.kind <> 'episode' AND a.erasure_row IS NULL
        """,
    ),
    Rule(
        "episode",
        "its version {0} ended at commit {1}, its revision at {2}",
        """
        SELECT p.episode_id, p.row_id, p.sys_to, r.sys_to
        FROM episodes p JOIN artifact_revisions r ON r.row_id = p.row_id
        WHERE p.sys_to IS NOT r.sys_to
        """,
    ),
    Rule(
        "episode",
        "is forgotten, and its version {0} is current",
        """
        SELECT p.episode_id, p.row_id FROM episodes p JOIN artifacts a ON a.row_id = p.artifact_row
        WHERE p.sys_to IS NULL AND a.status <> 'active'
        """,
    ),
    Rule(
        "episode",
        "the current version is not of its current revision",
        """
        SELECT a.artifact_id FROM artifacts a
        WHERE a.kind = 'episode' AND a.status = 'active' AND NOT EXISTS (
            SELECT 1 FROM episodes p WHERE p.row_id = a.head_row AND p.artifact_row = a.row_id AND p.sys_to IS NULL)
        """,
    ),
    Rule(
        "episode",
        "its version {0} ends at {1}, after the next one began",
        """
        SELECT episode_id, row_id, sys_to FROM (
            SELECT episode_id, row_id, sys_to, lead(row_id) OVER (PARTITION BY episode_id ORDER BY row_id) AS next_row
            FROM episodes)
        WHERE coalesce(sys_to, next_row + 1) > next_row OR sys_to <= row_id
        """,
    ),
    Rule(
        "episode",
        "says of itself what is no JSON object",
        "SELECT episode_id FROM episodes WHERE NOT json_valid(metadata) OR json_type(metadata) <> 'object'",
    ),
    Rule(
        "episode",
        "the preview of forgetting was used by commit {0}, which did not come after it, or not yet",
        """
        SELECT row_id, used_by FROM forget_previews
        WHERE used_by <= row_id OR used_by > (SELECT commit_seq FROM meta)
        """,
    ),
)


def issues(db: apsw.Connection) -> Iterator[Issue]:
    return breaches(db, RULES)

"""Artifacts, claims, their revisions and their evidence: what every entity owes its history."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from memoree import limits
from memoree.verification.issue import Issue
from memoree.verification.rule import Rule, breaches


def _lifecycle(entity: str, ended: str) -> tuple[Rule, ...]:
    """The rules that artifacts and claims share. `ended` is the condition of a status that is no longer current."""
    entities, revisions, owner, name = f"{entity}s", f"{entity}_revisions", f"{entity}_row", f"{entity}_id"
    return (
        Rule(
            "revision",
            f"the {entity} has no first revision of its own commit",
            f"""
            SELECT {name} FROM {entities} e WHERE NOT EXISTS (
                SELECT 1 FROM {revisions} r
                WHERE r.row_id = e.row_id AND r.{owner} = e.row_id AND r.revision_number = 1)
            """,  # noqa: S608 - constant names, here and below
        ),
        Rule(
            "revision",
            f"the head of the {entity} is not its own newest revision",
            f"""
            SELECT {name} FROM {entities} e WHERE NOT EXISTS (
                SELECT 1 FROM {revisions} r
                WHERE r.row_id = e.head_row AND r.{owner} = e.row_id AND r.revision_number = (
                    SELECT max(revision_number) FROM {revisions} WHERE {owner} = e.row_id))
            """,  # noqa: S608
        ),
        Rule(
            "revision",
            f"the {entity} has {{0}} revisions, numbered up to {{1}}, where {{2}} are counted",
            f"""
            SELECT {name}, count(r.row_id) AS present, max(r.revision_number) AS newest, e.revision_count
            FROM {entities} e LEFT JOIN {revisions} r ON r.{owner} = e.row_id
            GROUP BY e.row_id HAVING present <> e.revision_count OR newest <> e.revision_count
            """,  # noqa: S608
        ),
        Rule(
            "revision",
            "the revision was not current from its own commit until the next revision's",
            f"""
            SELECT r.revision_id
            FROM {revisions} r JOIN {entities} e ON e.row_id = r.{owner}
            LEFT JOIN {revisions} n ON n.{owner} = r.{owner} AND n.revision_number = r.revision_number + 1
            WHERE r.sys_from <> r.row_id OR n.row_id <= r.row_id
                OR r.sys_to IS NOT coalesce(n.row_id, e.sys_to)
            """,  # noqa: S608
        ),
        Rule(
            "revision",
            f"the status of the {entity} is {{0}}, which does not agree with the commit that ended it",
            f"""
            SELECT {name}, status FROM {entities}
            WHERE ({ended}) <> (sys_to IS NOT NULL) OR sys_from <> row_id OR sys_to <= sys_from
            """,  # noqa: S608
        ),
    )


RULES = (
    *_lifecycle("artifact", "status = 'forgotten'"),
    *_lifecycle("claim", "status IN ('superseded', 'retracted')"),
    Rule(
        "revision",
        "{0} bytes do not live where a body of that size does",
        f"""
        SELECT revision_id, size_bytes FROM artifact_revisions r
        WHERE (body IS NOT NULL) <> (size_bytes <= {limits.INLINE_BODY_BYTES_MAX})
            AND NOT EXISTS (SELECT 1 FROM artifacts a WHERE a.row_id = r.artifact_row AND a.erasure_row IS NOT NULL)
        """,  # noqa: S608
    ),
    Rule(
        "evidence",
        "cites bytes {0} to {1} of an artifact revision that has {2}",
        """
        SELECT c.revision_id, e.start_byte, e.end_byte, r.size_bytes
        FROM claim_evidence e
        JOIN claim_revisions c ON c.row_id = e.claim_revision_row
        JOIN artifact_revisions r ON r.row_id = e.artifact_revision_row
        WHERE e.start_byte < 0 OR e.end_byte > r.size_bytes
        """,
    ),
    Rule(
        "evidence",
        "cites the artifact revision {0}, which is younger than the claim revision",
        """
        SELECT c.revision_id, r.revision_id
        FROM claim_evidence e
        JOIN claim_revisions c ON c.row_id = e.claim_revision_row
        JOIN artifact_revisions r ON r.row_id = e.artifact_revision_row
        WHERE e.artifact_revision_row >= e.claim_revision_row
        """,
    ),
    Rule(
        "evidence",
        "the citations of the claim revision are not numbered from 0 on",
        f"""
        SELECT c.revision_id FROM claim_evidence e JOIN claim_revisions c ON c.row_id = e.claim_revision_row
        GROUP BY e.claim_revision_row
        HAVING min(e.ordinal) <> 0 OR max(e.ordinal) <> count(*) - 1 OR count(*) > {limits.EVIDENCE_ITEMS_MAX}
        """,  # noqa: S608
    ),
)


def issues(db: apsw.Connection) -> Iterator[Issue]:
    return breaches(db, RULES)

"""The audit log against the counters and the tables: replayed in order it gives the same store (invariants W2 and W8,
design §5.4).

Rows bear the number of the commit that made them, so each is held against its event by that number, and nothing of
either has to be kept in memory. Only statuses are replayed, and of those only the ones that differ from what an entity
is born with.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import orjson

from memoree.database.events import Change
from memoree.verification.counters import no_instant
from memoree.verification.issue import Issue
from memoree.verification.rule import Rule, breaches

BORN = "active"
_ITEM_ID = "(SELECT s.source_id FROM sources s WHERE s.row_id = t.source_row) || ':' || t.external_id"

_STATUS_CHANGES = """
    SELECT entity_type, entity_id, revision_id, payload ->> 'status', payload -> 'also' FROM events
    WHERE entity_type IN ('artifact', 'claim') OR payload -> 'also' IS NOT NULL
    ORDER BY commit_seq
"""
_STATUSES = """
    SELECT 'artifact', artifact_id, status FROM artifacts UNION ALL SELECT 'claim', claim_id, status FROM claims
"""


def _told(entity: str, entity_id: str, revision_id: str, commit_seq: str) -> str:
    """The condition that an event of a commit tells of a revision, as its own subject or among what else it did."""
    return f"""EXISTS (
        SELECT 1 FROM events v WHERE v.commit_seq = {commit_seq} AND (
            (v.entity_type, v.entity_id, v.revision_id) = ('{entity}', {entity_id}, {revision_id})
            OR EXISTS (
                SELECT 1 FROM json_each(v.payload, '$.also') also
                WHERE (also.value ->> 0, also.value ->> 1, also.value ->> 2) = ('{entity}', {entity_id}, {revision_id})
            )))"""  # noqa: S608 - constant names, here and below


def _revisions(entity: str) -> tuple[Rule, ...]:
    """Every revision has its event, and every event's revision is there."""
    entities, revisions, owner, name = f"{entity}s", f"{entity}_revisions", f"{entity}_row", f"{entity}_id"
    return (
        Rule(
            "events",
            "the event of its commit does not tell of the revision",
            f"""
            SELECT r.revision_id FROM {revisions} r JOIN {entities} e ON e.row_id = r.{owner}
            WHERE NOT {_told(entity, f"e.{name}", "r.revision_id", "r.row_id")}
            """,  # noqa: S608
        ),
        Rule(
            "events",
            f"commit {{0}} tells of a revision of the {entity} that is not there",
            f"""
            SELECT told.entity_id, told.commit_seq FROM (
                SELECT commit_seq, entity_id, revision_id FROM events
                WHERE entity_type = '{entity}' AND revision_id IS NOT NULL
                UNION ALL
                SELECT v.commit_seq, also.value ->> 1, also.value ->> 2
                FROM events v, json_each(v.payload, '$.also') also
                WHERE also.value ->> 0 = '{entity}' AND also.value ->> 2 IS NOT NULL) told
            WHERE NOT EXISTS (
                SELECT 1 FROM {revisions} r JOIN {entities} e ON e.row_id = r.{owner}
                WHERE r.row_id = told.commit_seq AND r.revision_id = told.revision_id AND e.{name} = told.entity_id)
            """,  # noqa: S608
        ),
    )


def _made(entity: str, table: str, entity_id: str) -> tuple[Rule, ...]:
    """The rules of what holds only its present: a commit made each, and each that events tell of is there. `entity_id`
    is an expression over a row `t` of the table."""
    return (
        Rule(
            "events",
            f"commit {{0}} is not told to have made the {entity}",
            f"""
            SELECT {entity_id}, t.row_id FROM {table} t
            WHERE NOT EXISTS (
                SELECT 1 FROM events v
                WHERE v.commit_seq = t.row_id AND (
                    (v.entity_type = '{entity}' AND v.entity_id = {entity_id})
                    OR EXISTS (
                        SELECT 1 FROM json_each(v.payload, '$.also') also
                        WHERE (also.value ->> 0, also.value ->> 1) = ('{entity}', {entity_id}))))
                AND {entity_id} NOT IN (
                    SELECT v.entity_id FROM events v
                    WHERE v.entity_type = '{entity}' AND v.payload ->> 'renamed_from' IS NOT NULL)
            """,  # noqa: S608
        ),
        Rule(
            "events",
            f"commit {{0}} tells of a {entity} that is not there",
            f"""
            SELECT entity_id, commit_seq FROM events
            WHERE entity_type = '{entity}' AND entity_id NOT IN (SELECT {entity_id} FROM {table} t)
                AND entity_id NOT IN (
                    SELECT payload ->> 'renamed_from' FROM events
                    WHERE entity_type = '{entity}' AND payload ->> 'renamed_from' IS NOT NULL)
            """,  # noqa: S608
        ),
    )


def _touched(entity: str, table: str) -> Rule:
    return Rule(
        "events",
        f"the {entity} made by this commit says it was last changed by {{0}}, which came before it or not yet",
        f"""
        SELECT row_id, commit_seq FROM {table}
        WHERE commit_seq < row_id OR commit_seq > (SELECT commit_seq FROM meta)
        """,  # noqa: S608
    )


RULES = (
    Rule(
        "events",
        "the counter stands at {0}; the newest event is {1}",
        """
        SELECT 'counter', m.commit_seq, newest FROM meta m, (SELECT coalesce(max(commit_seq), 0) AS newest FROM events)
        WHERE m.commit_seq <> newest
        """,
    ),
    Rule(
        "events",
        "follows commit {0} without the restore that alone may leave a gap",
        """
        SELECT commit_seq, preceding FROM (
            SELECT commit_seq, operation, lag(commit_seq, 1, 0) OVER (ORDER BY commit_seq) AS preceding FROM events)
        WHERE commit_seq <> preceding + 1 AND operation <> 'store.restored'
        """,
    ),
    Rule(
        "events",
        "its clock is not ahead of the one before it, or its instant is behind",
        """
        SELECT commit_seq FROM (
            SELECT commit_seq, hlc, created_at, lag(hlc, 1, 0) OVER (ORDER BY commit_seq) AS hlc_before,
                lag(created_at, 1, '') OVER (ORDER BY commit_seq) AS instant_before
            FROM events)
        WHERE hlc <= hlc_before OR created_at < instant_before
        """,
    ),
    Rule(
        "events",
        "its clock, {0}, is ahead of the store's, {1}",
        """
        SELECT v.commit_seq, v.hlc, m.hlc FROM meta m JOIN events v ON v.commit_seq = m.commit_seq WHERE v.hlc > m.hlc
        """,
    ),
    Rule(
        "events",
        "when it was is not told by an instant, or by one that no clock can have read",
        f"SELECT commit_seq FROM events WHERE {no_instant('created_at')}",  # noqa: S608
    ),
    *_revisions("artifact"),
    *_revisions("claim"),
    Rule(
        "events",
        "the event of its commit does not tell of this relation, or of other ends",
        """
        SELECT r.relation_id FROM relations r WHERE NOT EXISTS (
            SELECT 1 FROM events v WHERE v.commit_seq = r.row_id AND v.entity_type = 'relation'
                AND v.entity_id = r.relation_id
                AND (v.payload ->> 'source_type', v.payload ->> 'source_id', v.payload ->> 'relation',
                    v.payload ->> 'target_type', v.payload ->> 'target_id')
                = (r.source_type, r.source_id, r.relation, r.target_type, r.target_id))
        """,
    ),
    Rule(
        "events",
        "commit {0} tells of a relation that is not there",
        """
        SELECT v.entity_id, v.commit_seq FROM events v WHERE v.entity_type = 'relation' AND NOT EXISTS (
            SELECT 1 FROM relations r WHERE r.row_id = v.commit_seq AND r.relation_id = v.entity_id)
        """,
    ),
    *_made("source", "sources", "t.source_id"),
    *_made("source_item", "source_items", _ITEM_ID),
    *_made("projection", "projections", "t.projection_id"),
    *_made("feedback", "feedback", "t.feedback_id"),
    *_made("erasure", "erasures", "t.erasure_id"),
    _touched("source", "sources"),
    _touched("source_item", "source_items"),
    _touched("projection", "projections"),
)


def issues(db: apsw.Connection) -> Iterator[Issue]:
    yield from breaches(db, RULES)
    yield from _replayed_statuses(db)


def _replayed_statuses(db: apsw.Connection) -> Iterator[Issue]:
    changed = _changed_statuses(db)
    for entity_type, entity_id, status in db.execute(_STATUSES):
        told = changed.pop((entity_type, entity_id), BORN)
        if told != status:
            yield Issue("events", entity_id, f"the {entity_type} is {status}; its events leave it {told}")
    for entity_type, entity_id in changed:
        yield Issue("events", entity_id, f"the {entity_type} of which events tell is not there")


def _changed_statuses(db: apsw.Connection) -> dict[tuple[str, str], str]:
    """The status of every entity that its events leave in another one than it was born with."""
    changed: dict[tuple[str, str], str] = {}
    for entity_type, entity_id, revision_id, status, also in db.execute(_STATUS_CHANGES):
        own = Change(entity_type, entity_id, revision_id, status)
        for change in (own, *map(Change._make, orjson.loads(also or "[]"))):
            if change.entity_type not in ("artifact", "claim"):
                continue
            if change.status == BORN:
                changed.pop((change.entity_type, change.entity_id), None)
            else:
                changed[change.entity_type, change.entity_id] = change.status
    return changed

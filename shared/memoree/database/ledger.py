"""Events of projects' ledgers: audit events about a topic, see migration 0007. Their payload is the event as a line of
a ledger has it, and whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw
import orjson

from memoree.database.connection import one
from memoree.owner import Owner

TOPIC = "okf_topic"
"""The entity type of audit events about a topic."""

_OF_PROJECT = """
    entity_type = 'okf_topic' AND payload ->> 'workspace_id' = ?1 AND payload ->> 'project_id' = ?2
"""
_EVERY = f"SELECT payload FROM events INDEXED BY ledger_events WHERE {_OF_PROJECT} ORDER BY commit_seq"  # noqa: S608
_OF_TOPIC = f"""
    SELECT payload FROM events INDEXED BY ledger_events WHERE {_OF_PROJECT} AND entity_id = ?3
    ORDER BY payload ->> 'ts_ms' DESC, commit_seq DESC LIMIT ?4
"""  # noqa: S608 - constants, here and below
_COMMITS_OF_TOPIC = f"SELECT commit_seq FROM events INDEXED BY ledger_events WHERE {_OF_PROJECT} AND entity_id = ?3"  # noqa: S608
_BY_REF = f"""
    SELECT payload, commit_seq FROM events INDEXED BY ledger_refs WHERE {_OF_PROJECT} AND payload ->> 'ref' = ?3
    ORDER BY commit_seq LIMIT 1
"""  # noqa: S608
_ACTIVITY = f"""
    SELECT count(*), max(payload ->> 'ts_ms') FROM events INDEXED BY ledger_events
    WHERE {_OF_PROJECT} AND entity_id = ?3
"""  # noqa: S608
_ACTIVITIES = f"""
    SELECT entity_id, count(*), max(payload ->> 'ts_ms') FROM events INDEXED BY ledger_events
    WHERE {_OF_PROJECT} GROUP BY entity_id
"""  # noqa: S608


def every(db: apsw.Connection, owner: Owner) -> Iterator[dict[str, Any]]:
    """Payloads of a project's ledger, in the order in which they were appended."""
    return (orjson.loads(payload) for (payload,) in db.execute(_EVERY, _project(owner)))


def of_topic(db: apsw.Connection, owner: Owner, topic: str, *, most: int) -> list[dict[str, Any]]:
    """The newest payloads of a topic, the oldest of them first."""
    found = [orjson.loads(payload) for (payload,) in db.execute(_OF_TOPIC, (*_project(owner), topic, most))]
    return found[::-1]


def commits_of_topic(db: apsw.Connection, owner: Owner, topic: str) -> list[int]:
    return [int(str(commit)) for (commit,) in db.execute(_COMMITS_OF_TOPIC, (*_project(owner), topic))]


def without_name(payload: str, topic: str) -> str:
    """The payload of an event whose topic goes by another name now, and without what was made, which has the name."""
    return orjson.dumps(orjson.loads(payload) | {"topic": topic, "artifact": None}).decode()


def by_ref(db: apsw.Connection, owner: Owner, ref: str) -> tuple[dict[str, Any], int] | None:
    """The payload that was appended first under a reference, and its commit."""
    row = one(db, _BY_REF, (*_project(owner), ref))
    return None if row is None else (orjson.loads(row[0]), row[1])


def activity(db: apsw.Connection, owner: Owner, topic: str) -> tuple[int, int | None]:
    """How many events a topic has, and when the last one was, in milliseconds since 1970."""
    row = one(db, _ACTIVITY, (*_project(owner), topic))
    assert row is not None, "aggregates have a row"
    return row[0], row[1]


def activities(db: apsw.Connection, owner: Owner) -> dict[str, tuple[int, int]]:
    """The same of every topic that has events."""
    return {topic: (count, last_ms) for topic, count, last_ms in db.execute(_ACTIVITIES, _project(owner))}


def _project(owner: Owner) -> tuple[str, str]:
    return owner.workspace_id, owner.project_id

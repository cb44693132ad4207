"""The audit log: one event per consumed commit number, never changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import apsw
import orjson
from blake3 import blake3

from memoree.database.connection import scalar
from memoree.database.entry import Entry

_ALL = """
    SELECT commit_seq, event_id, hlc, operation, entity_type, entity_id, revision_id, actor, payload, created_at
    FROM events ORDER BY commit_seq
"""
_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


_FIRST = "SELECT event_id FROM events ORDER BY commit_seq LIMIT 1"


def birth(db: apsw.Connection) -> str:
    """What tells a store apart from another one in the same place; empty until the first commit."""
    return str(scalar(db, _FIRST) or "")


class Change(NamedTuple):
    """What a commit did to an artifact or a claim: the revision it added, if it added one, and the status since then.

    An event states this of its own entity; of others that the commit touched too, its payload does, under `also`.
    """

    entity_type: str
    entity_id: str
    revision_id: str | None
    status: str


class Event(NamedTuple):
    commit_seq: int
    event_id: str
    hlc: int
    operation: str
    entity_type: str
    entity_id: str
    revision_id: str | None
    actor: str | None
    payload: str
    created_at: str


def insert(db: apsw.Connection, event: Event) -> None:
    db.execute(_INSERT, event)


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every event."""
    for row in db.execute(_ALL):
        yield entry(Event(*row))


def entry(event: Event) -> Entry:
    return Entry("events", event.event_id, event.operation, blake3(orjson.dumps([*event])).digest())

"""The audit log: one event per consumed commit number, never changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import apsw
import orjson
from blake3 import blake3

from memoree.database.connection import one, scalar
from memoree.database.entry import Entry

BEGAN = "began"
"""What the payload of an event has whose request took more than one commit number: the first of them."""

_ALL = """
    SELECT commit_seq, event_id, hlc, operation, entity_type, entity_id, revision_id, actor, payload, created_at
    FROM events ORDER BY commit_seq
"""
_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_AT = """
    SELECT commit_seq, event_id, hlc, operation, entity_type, entity_id, revision_id, actor, payload, created_at
    FROM events WHERE commit_seq = ?
"""
_AFTER = """
    SELECT commit_seq, event_id, hlc, operation, entity_type, entity_id, revision_id, actor, payload, created_at
    FROM events WHERE commit_seq > ? ORDER BY commit_seq
"""
_WITH_REST = f"""
    WITH RECURSIVE reached (commit_seq) AS (
        SELECT value FROM json_each(?1)
        UNION SELECT e.commit_seq FROM reached r JOIN events e ON e.commit_seq = r.commit_seq + 1
        WHERE e.payload ->> '{BEGAN}' <= r.commit_seq)
    SELECT commit_seq FROM reached ORDER BY commit_seq
"""  # noqa: S608 - a constant
_ID_AT = "SELECT event_id FROM events WHERE commit_seq = ?"
_UPDATE = "UPDATE events SET entity_id = ?2, revision_id = ?3, actor = ?4, payload = ?5 WHERE commit_seq = ?1"


RESTORED = "store.restored"
"""The operation of the one event that may leave a gap before it: an earlier state took the place of a later one."""

_FIRST = "SELECT event_id FROM events ORDER BY commit_seq LIMIT 1"
_LAST_RESTORE = f"SELECT max(created_at) FROM events WHERE operation = '{RESTORED}'"  # noqa: S608 - a constant
_REWOUND_TO = f"""
    SELECT coalesce(min(payload ->> 'to') FILTER (WHERE commit_seq > :after), min(payload ->> 'to'), 0)
    FROM events WHERE operation = '{RESTORED}' AND payload ->> 'to' < :after
"""  # noqa: S608


def birth(db: apsw.Connection) -> str:
    """What tells a store apart from another one in the same place; empty until the first commit."""
    return str(scalar(db, _FIRST) or "")


def last_restore(db: apsw.Connection) -> str | None:
    """When this store was last put back to an earlier state, in stored form; looks through the whole log."""
    found: str | None = scalar(db, _LAST_RESTORE)
    return found


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


def at(db: apsw.Connection, commit_seq: int) -> Event:
    row = one(db, _AT, (commit_seq,))
    assert row is not None, "every commit number but those of a restore has its event"
    return Event(*row)


def after(db: apsw.Connection, commit_seq: int) -> Iterator[Event]:
    """What was committed after a commit number, in its order."""
    return (Event(*row) for row in db.execute(_AFTER, (commit_seq,)))


def with_rest_of_requests(db: apsw.Connection, commits: Sequence[int]) -> list[int]:
    """Commits, and what the same requests committed after them: the last one has the acknowledgement."""
    return [int(str(commit)) for (commit,) in db.execute(_WITH_REST, (orjson.dumps(commits).decode(),))]


def id_at(db: apsw.Connection, commit_seq: int) -> str | None:
    """Whose event a commit number is; `None` for one that a restore took back, or that is still to come."""
    found: str | None = scalar(db, _ID_AT, (commit_seq,))
    return found


def rewound_to(db: apsw.Connection, commit_seq: int) -> int:
    """The last commit that this store has in common with one that had come to a number which this store does not have,
    or has of something else; 0 where no restore tells. Looks through the whole log."""
    return int(scalar(db, _REWOUND_TO, {"after": commit_seq}))


def replace_content(db: apsw.Connection, event: Event) -> None:
    """For an erasure: store an event again without what it told of content."""
    db.execute(_UPDATE, (event.commit_seq, event.entity_id, event.revision_id, event.actor, event.payload))


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every event."""
    for row in db.execute(_ALL):
        yield entry(Event(*row))


def entry(event: Event) -> Entry:
    return Entry("events", event.event_id, event.operation, blake3(orjson.dumps([*event])).digest())

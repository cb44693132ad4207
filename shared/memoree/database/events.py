"""The audit log: one event per consumed commit number, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import apsw

_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Change(NamedTuple):
    """What a commit did to an artifact or a claim: the revision it added, if it added one, and the status since then.

    An event states this of its own entity; of others that the commit touched too, its payload does, under `also`.
    """

    entity_type: str
    entity_id: str
    revision_id: str | None
    status: str


@dataclass(frozen=True, slots=True)
class Event:
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
    db.execute(
        _INSERT,
        (
            event.commit_seq,
            event.event_id,
            event.hlc,
            event.operation,
            event.entity_type,
            event.entity_id,
            event.revision_id,
            event.actor,
            event.payload,
            event.created_at,
        ),
    )

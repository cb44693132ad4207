"""An order-independent digest of everything a tenant holds: it proves database = log = copy (design §8).

The sum, modulo 2**256, of one BLAKE3 digest per entry: every immutable row, every lifecycle change, and the present
state of rows that change. Addition commutes, so any order of the same entries gives the same sum, and the writer keeps
it current at the cost of a hash or two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import apsw
import orjson
from blake3 import blake3

from memoree.database import artifacts, claims, conflicts, feedback, projections, relations, sources
from memoree.database.entry import Entry
from memoree.database.events import Change

_EVENTS = """
    SELECT entity_type, entity_id, revision_id, payload ->> 'status', coalesce(payload -> 'also', '[]') FROM events
    ORDER BY commit_seq
"""
_HEADS = """
    SELECT 'artifact', artifact_id, r.revision_id, r.revision_number, revision_count, status
    FROM artifacts a JOIN artifact_revisions r ON r.row_id = a.head_row
    UNION ALL
    SELECT 'claim', claim_id, r.revision_id, r.revision_number, revision_count, status
    FROM claims c JOIN claim_revisions r ON r.row_id = c.head_row
"""
_KEEPERS = (artifacts, claims, relations, conflicts, sources, projections, feedback)
"""The modules whose tables are counted; each tells its entries."""

_BYTES = 32
_MODULUS = 2 ** (8 * _BYTES)


class Sum:
    """A running sum; start it from the stored 32 bytes."""

    __slots__ = ("_value",)

    def __init__(self, stored: bytes = bytes(_BYTES)) -> None:
        self._value = int.from_bytes(stored)

    def add(self, entry: Entry) -> None:
        self._value = (self._value + _number(entry)) % _MODULUS

    def replace(self, old: Entry, new: Entry) -> None:
        """Count the present state of a row that changes in place of its last one."""
        self._value = (self._value - _number(old) + _number(new)) % _MODULUS

    def to_bytes(self) -> bytes:
        return self._value.to_bytes(_BYTES)


def _number(entry: Entry) -> int:
    """The parts are length-prefixed, so that no two entries share an encoding."""
    hasher = blake3()
    for part in (entry.table.encode(), entry.key.encode(), entry.revision.encode(), entry.content):
        hasher.update(len(part).to_bytes(8))
        hasher.update(part)
    return int.from_bytes(hasher.digest())


def recompute(db: apsw.Connection) -> bytes:
    """The sum over the tables as they are, 32 bytes. A sound store has the same in `meta.integrity`."""
    found = Sum()
    for keeper in _KEEPERS:
        for entry in keeper.entries(db):
            found.add(entry)
    return found.to_bytes()


class Head(NamedTuple):
    """Where an entity stands: its current revision, how many it has, and its status."""

    revision_id: str
    revision_number: int
    revision_count: int
    status: str


EntityKey = tuple[str, str]
"""Entity type and id."""
_UNBORN = Head("", 0, 0, "")


def heads(db: apsw.Connection) -> Mapping[EntityKey, Head]:
    """Where every artifact and claim stands by its own row."""
    return {(entity_type, entity_id): Head(*head) for entity_type, entity_id, *head in db.execute(_HEADS)}


def replayed_heads(db: apsw.Connection) -> Mapping[EntityKey, Head]:
    """Where every artifact and claim stands by the audit events, replayed in order; equal to `heads` in a sound
    store (invariant W8, design §5.4). A change with a revision id added that revision."""
    found: dict[EntityKey, Head] = {}
    for entity_type, entity_id, revision_id, status, also in db.execute(_EVENTS):
        for change in (Change(entity_type, entity_id, revision_id, status), *map(Change._make, orjson.loads(also))):
            if change.entity_type in ("artifact", "claim"):
                key = (change.entity_type, change.entity_id)
                found[key] = _moved(found.get(key, _UNBORN), change)
    return found


def _moved(head: Head, change: Change) -> Head:
    if change.revision_id is None:
        return head._replace(status=change.status)
    number = head.revision_number + 1
    return Head(change.revision_id, number, number, change.status)

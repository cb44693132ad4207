"""An order-independent digest of everything a tenant holds: it proves database = log = copy (design §8).

The sum, modulo 2**256, of one BLAKE3 digest per entry: every immutable row, every lifecycle change, and the present
state of rows that change. Addition commutes, so any order of the same entries gives the same sum, and the writer keeps
it current at the cost of a hash or two. Beside it goes what the entries take of the tenant's quota.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import chain
from struct import Struct

import apsw
from blake3 import blake3

from memoree.database import (
    artifacts,
    claims,
    condemned,
    conflicts,
    episodes,
    erasures,
    events,
    feedback,
    idempotency,
    projections,
    quota,
    relations,
    sources,
)
from memoree.database.entry import Entry
from memoree.database.meta import Meta

_KEEPERS = (
    artifacts,
    claims,
    relations,
    conflicts,
    sources,
    projections,
    feedback,
    events,
    idempotency,
    condemned,
    erasures,
    episodes,
    quota,
)
"""The modules whose tables are counted; each tells its entries."""

_BYTES = 32
_length = Struct(">Q").pack
_MODULUS = 2 ** (8 * _BYTES)


class Sum:
    """A running sum; start it from the stored 32 bytes, and from what is held."""

    __slots__ = ("_value", "held_bytes", "held_rows")

    def __init__(self, stored: bytes = bytes(_BYTES), held_rows: int = 0, held_bytes: int = 0) -> None:
        self._value = int.from_bytes(stored)
        self.held_rows = held_rows
        self.held_bytes = held_bytes

    @classmethod
    def of(cls, counters: Meta) -> Sum:
        return cls(counters.integrity, counters.held_rows, counters.held_bytes)

    def keep_in(self, counters: Meta) -> None:
        counters.integrity = self.to_bytes()
        counters.held_rows, counters.held_bytes = self.held_rows, self.held_bytes

    def add(self, entry: Entry) -> None:
        self._value = (self._value + _number(entry)) % _MODULUS
        self.held_rows += entry.held_rows
        self.held_bytes += entry.held_bytes

    def remove(self, entry: Entry) -> None:
        """Count a row no longer that holds only the present and is gone."""
        self._value = (self._value - _number(entry)) % _MODULUS
        self.held_rows -= entry.held_rows
        self.held_bytes -= entry.held_bytes

    def replace(self, old: Entry, new: Entry) -> None:
        """Count the present state of a row that changes in place of its last one."""
        self.remove(old)
        self.add(new)

    def to_bytes(self) -> bytes:
        return self._value.to_bytes(_BYTES)


def _number(entry: Entry) -> int:
    """The parts are length-prefixed, so that no two entries share an encoding."""
    key, revision, content = entry.key.encode(), entry.revision.encode(), entry.content
    encoded = b"".join(
        (
            _prefixed(entry.table),
            _length(len(key)),
            key,
            _length(len(revision)),
            revision,
            _length(len(content)),
            content,
        )
    )
    return int.from_bytes(blake3(encoded).digest())


@cache
def _prefixed(table: str) -> bytes:
    return _length(len(table.encode())) + table.encode()


def with_log(stored: bytes, db: apsw.Connection) -> bytes:
    """A sum from before events and idempotency records were counted, and those on top: what was damaged stays so."""
    return _with(stored, events.entries(db), idempotency.entries(db))


def with_episodes(stored: bytes, db: apsw.Connection) -> bytes:
    """The same of a sum from before there were episodes."""
    return _with(stored, episodes.entries(db))


def _with(stored: bytes, *counted: Iterable[Entry]) -> bytes:
    found = Sum(stored)
    for entry in chain(*counted):
        found.add(entry)
    return found.to_bytes()


def recompute(db: apsw.Connection) -> bytes:
    """The sum over the tables as they are, 32 bytes. A sound store has the same in `meta.integrity`."""
    return recount(db).to_bytes()


def recount(db: apsw.Connection) -> Sum:
    """The same with what the tables hold."""
    found = Sum()
    for keeper in _KEEPERS:
        for entry in keeper.entries(db):
            found.add(entry)
    return found

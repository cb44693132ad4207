"""What a tenant may hold and how often it may ask: its own quota, in its own database (`docs/operations.md`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import apsw
import orjson
from blake3 import blake3

from memoree.database.connection import one
from memoree.database.entry import Entry

FIRST_SCHEMA_VERSION = 6
"""That has quotas, and counts what they bound."""

_FIND = "SELECT rows_max, bytes_max, rate_per_second, rate_burst, commit_seq FROM quota"
_REPLACE = "INSERT OR REPLACE INTO quota VALUES (1, ?, ?, ?, ?, ?)"


class Quota(NamedTuple):
    """`None`: nothing but what the deployment allows every tenant. Rows and bytes are those of `Meta.held_rows` and
    `held_bytes`; requests refill at `rate_per_second` up to `rate_burst`."""

    rows_max: int | None = None
    bytes_max: int | None = None
    rate_per_second: float | None = None
    rate_burst: int | None = None

    def over(self, default: Quota) -> Quota:
        """This one, completed by another."""
        if self == NONE:
            return default
        own = {name: value for name, value in self._asdict().items() if value is not None}
        return default._replace(**own)


NONE = Quota()


class Granted(NamedTuple):
    """A quota and the commit that set it."""

    quota: Quota
    commit_seq: int


def find(db: apsw.Connection) -> Granted | None:
    row = one(db, _FIND)
    return Granted(Quota(*row[:-1]), row[-1]) if row else None


def read(db: apsw.Connection) -> Quota:
    """The tenant's own."""
    return found.quota if (found := find(db)) is not None else NONE


def replace(db: apsw.Connection, new: Granted) -> None:
    db.execute(_REPLACE, (*new.quota, new.commit_seq))


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: the quota as it is now."""
    if (found := find(db)) is not None:
        yield entry(found)


def entry(found: Granted) -> Entry:
    return Entry("quota", "", str(found.commit_seq), blake3(orjson.dumps([*found.quota])).digest())

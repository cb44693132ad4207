"""What the integrity sum counts (see `memoree.database.integrity`)."""

from __future__ import annotations

from typing import NamedTuple

ERASED = "erased"
"""What stands in place of a text that was erased and of which one is required."""


class Entry(NamedTuple):
    """One counted fact: a row of a table, or a change of it. `content` is a digest of what it holds, or its text;
    `held_rows` and `held_bytes` are what it takes of the tenant's quota."""

    table: str
    key: str
    revision: str
    content: bytes
    held_rows: int = 0
    held_bytes: int = 0


def erased_entry(table: str, entity_id: str, erasure_row: int) -> Entry:
    return Entry(table, entity_id, ERASED, str(erasure_row).encode())

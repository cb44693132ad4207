"""What the integrity sum counts (see `memoree.database.integrity`)."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One counted fact: a row of a table, or a change of it. `content` is a digest of what it holds, or its text."""

    table: str
    key: str
    revision: str
    content: bytes

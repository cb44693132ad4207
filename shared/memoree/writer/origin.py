"""Where a new epoch may begin, other than with what the prefix before it holds (design §8)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

import apsw

from memoree.replication.head import Head


class Origin(Protocol):
    """A database from elsewhere: a backup, an earlier point in time, an export."""

    @property
    def kind(self) -> Literal["restore", "import"]:
        """How the ledger of epochs tells it."""

    async def fetch(self, path: Path) -> None:
        """Write the database to `path`, where nothing is yet. Whatever it raises ends the reign."""

    def adopt(self, db: apsw.Connection, head: Head) -> None:
        """In one transaction, on a database of this program's schema and before anything of it is replicated: let its
        counters go on from what `head` covers, so that nothing of the past is taken for the present."""

"""The floor of the writer: the same rows and full-text rows, inserted by a bare loop.

The statements are the product's own. A group committer applies the claims to a database of its own while a trace
records every INSERT and UPDATE with its bindings; only the replay of these into a second database, one transaction per
`CLAIMS_PER_TRANSACTION` claims, is timed. Both databases have the product's schema and pragmas. Nobody checkpoints for
them as Litestream does for the writer, so SQLite does, at its default interval and inside the timed loop.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from memoree.command import Command
from memoree.database.connection import open_writer
from memoree.database.schema import create_or_migrate
from memoree.operations.view import ServiceFacts
from memoree.writer.group_commit import GroupCommitter
from memoree.writer.staging import ProvedBlobs

CLAIMS_PER_TRANSACTION = 200
CHECKPOINT_PAGES = 1000
"""SQLite's default."""
FACTS = ServiceFacts("none", connections_max=1, authorization=False, pid=0, running=True, lifecycle_owner="bench")

Recorded = list[tuple[str, Any]]


class NoBlobs:
    """The benchmark's documents travel in their rows."""

    def read(self, digest: bytes, size: int) -> bytes:
        raise AssertionError("nothing in the benchmark is stored as a blob")


class BareSqlite:
    """A recorder and a replayer, each with a database in `directory`. `close` both."""

    def __init__(self, directory: Path) -> None:
        self.recorder = _database(directory / "recorded.sqlite3")
        self._replayed = _database(directory / "bare.sqlite3")
        self._committer = GroupCommitter(self.recorder, NoBlobs(), FACTS)
        self.claims = 0
        self.seconds = 0.0

    def prepare(self, commands: Sequence[Command]) -> None:
        """Apply without timing: what claims need to be there."""
        self._replay(self._record(commands))

    def insert(self, commands: Sequence[Command]) -> None:
        """Add these claims to both databases, and the replay's time to `seconds`."""
        for first in range(0, len(commands), CLAIMS_PER_TRANSACTION):
            batch = commands[first : first + CLAIMS_PER_TRANSACTION]
            recorded = self._record(batch)
            began = time.perf_counter()
            self._replay(recorded)
            self.seconds += time.perf_counter() - began
            self.claims += len(batch)

    def close(self) -> None:
        self.recorder.close()
        self._replayed.close()

    def _record(self, commands: Sequence[Command]) -> Recorded:
        recorded: Recorded = []

        def note(_: apsw.Cursor, sql: str, bindings: Any) -> bool:
            if sql.lstrip().startswith(("INSERT", "UPDATE")):
                recorded.append((sql, bindings))
            return True

        self.recorder.exec_trace = note
        try:
            committed = self._committer.commit(commands, ProvedBlobs())
        finally:
            self.recorder.exec_trace = None
        refused = [attempt.error for attempt in committed.attempts if attempt.status != "applied"]
        assert not refused, refused[0]
        return recorded

    def _replay(self, recorded: Recorded) -> None:
        execute = self._replayed.execute
        execute("BEGIN IMMEDIATE")
        for sql, bindings in recorded:
            execute(sql, bindings)
        execute("COMMIT")


def _database(path: Path) -> apsw.Connection:
    db = open_writer(path, replicated=True)
    db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    create_or_migrate(db)
    return db

"""What a connector has sent to one destination: a small SQLite file of its own.

Losing it costs a full scan and no second revision: the other side knows what it has. Only what vanished from the
external system while the file was gone stays, for nobody remembers that it was sent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import apsw
from blake3 import blake3

from memoree.connectors import Change, Gone, Item, Reached, Reminder, Skipped, Unchanged
from memoree.database.connection import one, scalar
from memoree.errors import Code, MemoreeError
from memoree.paths import APP_NAME

STATE_VERSION = 1
_SCHEMA = """
    CREATE TABLE sent (
        external_id TEXT PRIMARY KEY,
        external_revision TEXT NOT NULL,
        hint TEXT
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE remembered (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""
_SEEN = "CREATE TEMP TABLE seen (external_id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID"
_FIND = "SELECT external_revision, hint FROM sent WHERE external_id = ?"
_SEND = """
    INSERT INTO sent VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET external_revision = excluded.external_revision, hint = excluded.hint
"""
_RECOGNISE = "UPDATE sent SET hint = ? WHERE external_id = ?"
_DROP = "DELETE FROM sent WHERE external_id = ?"
_COUNT = "SELECT count(*) FROM sent"
_SEE = "INSERT OR IGNORE INTO seen VALUES (?)"
_UNSEEN = """
    SELECT external_id FROM sent
    WHERE external_id > ? AND external_id NOT IN (SELECT external_id FROM seen)
    ORDER BY external_id LIMIT 1
"""
_RECALL = "SELECT value FROM remembered WHERE name = ?"
_REMEMBER = "INSERT INTO remembered VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
_FORGET = "DELETE FROM remembered WHERE name = ?"
_FORGET_ALL = "DELETE FROM remembered WHERE name GLOB ?"
_REMINDERS = "SELECT substr(name, ?), value FROM remembered WHERE name GLOB ?"
_POSITION, _REMINDER, _CURSOR = "position:", "reminder:", "cursor"


@dataclass(frozen=True, slots=True)
class Sent:
    """What was last sent of an item; `hint` as the connector left it."""

    external_revision: str
    hint: str | None


class State:
    """Belongs to one process at a time: opening it elsewhere is `CONFIG_ERROR`. Not safe for use by two threads at
    once."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    @classmethod
    def open(cls, path: Path) -> Self:
        """Made when missing. Raises `CONFIG_ERROR` for a file that is in use, foreign, damaged or out of reach."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            db = apsw.Connection(str(path))
        except (OSError, apsw.Error) as error:
            raise _unusable(path, str(error)) from error
        try:
            _prepare(db)
        except apsw.BusyError:
            db.close()
            raise _unusable(path, "another run of this connector has it open") from None
        except (apsw.Error, MemoreeError) as error:
            db.close()
            raise _unusable(path, str(error)) from error
        return cls(db)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what was sent ------------------------------------------------------------------------------------------

    def sent(self, external_id: str) -> Sent | None:
        row = one(self._db, _FIND, (external_id,))
        return Sent(*row) if row else None

    def sent_count(self) -> int:
        return int(scalar(self._db, _COUNT))

    def record(self, changes: Iterable[Change]) -> None:
        """What was handed over, in one step."""
        with self._db:
            for change in changes:
                match change:
                    case Item():
                        self._db.execute(_SEND, (change.external_id, change.external_revision, change.hint))
                        if change.reminder is not None:
                            self._db.execute(_FORGET, (_REMINDER + change.reminder.name,))
                    case Unchanged():
                        self._db.execute(_RECOGNISE, (change.hint, change.external_id))
                    case Gone():
                        self._db.execute(_DROP, (change.external_id,))
                    case Reached():
                        for name, value in {**change.remember, _CURSOR: change.cursor}.items():
                            self.remember(_POSITION + name, value)
                        self._db.executemany(_FORGET, ((_REMINDER + name,) for name in change.settled))
                    case Skipped(reminder=Reminder(name, value)):
                        self.remember(_REMINDER + name, value)

    # --- one scan -----------------------------------------------------------------------------------------------

    def begin_scan(self) -> None:
        self._db.execute("DELETE FROM temp.seen")

    def see(self, external_id: str) -> bool:
        """Note that an item exists. False when this scan saw it before."""
        self._db.execute(_SEE, (external_id,))
        return self._db.changes() == 1

    def saw_nothing_of(self) -> int:
        """How many items were sent, when the scan saw none at all; otherwise 0."""
        return 0 if scalar(self._db, "SELECT EXISTS (SELECT 1 FROM seen)") else self.sent_count()

    def unseen(self) -> Iterator[str]:
        """What was sent and not seen by the scan. Recording while this goes on is fine."""
        last = ""
        while (row := one(self._db, _UNSEEN, (last,))) is not None:
            last = row[0]
            yield last

    # --- positions and words ------------------------------------------------------------------------------------

    @property
    def cursor(self) -> str | None:
        """Of the last `Reached` that was recorded."""
        return self.position(_CURSOR)

    def position(self, name: str) -> str | None:
        """What the last `Reached` said is to be remembered."""
        return self.recall(_POSITION + name)

    def recall(self, name: str) -> str | None:
        found: str | None = scalar(self._db, _RECALL, (name,))
        return found

    def remember(self, name: str, value: str) -> None:
        self._db.execute(_REMEMBER, (name, value))

    def reminders(self) -> dict[str, str]:
        """What was skipped and is to be tried again, by its name."""
        return dict(self._db.execute(_REMINDERS, (len(_REMINDER) + 1, f"{_REMINDER}*")))

    def forget(self) -> None:
        """As if nothing had been sent yet. What source it is stays."""
        with self._db:
            self._db.execute("DELETE FROM sent")
            self._db.executemany(_FORGET_ALL, ((f"{kind}*",) for kind in (_POSITION, _REMINDER)))

    @contextmanager
    def rehearsed(self) -> Iterator[None]:
        """Whatever is recorded within is forgotten afterwards."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where states are unless somebody says otherwise: beside the data, not in it."""
    if home := environ.get("MEMOREE_HOME"):
        return Path(home) / "connectors"
    import platformdirs

    return platformdirs.user_state_path(APP_NAME, appauthor=False) / "connectors"


def state_path(directory: Path, *destination: Any) -> Path:
    """Of the state for one destination: everything that tells one stream of messages from another."""
    return directory / f"{blake3(repr(destination).encode()).hexdigest()[:32]}.sqlite3"


def _prepare(db: apsw.Connection) -> None:
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute("BEGIN EXCLUSIVE")
    with_tables = scalar(db, "PRAGMA user_version")
    if with_tables == 0:
        db.execute(_SCHEMA)
        db.execute(f"PRAGMA user_version = {STATE_VERSION}")
    elif with_tables != STATE_VERSION:
        raise MemoreeError(Code.CONFIG_ERROR, f"it is of version {with_tables}, made by another program version")
    db.execute("COMMIT")
    db.execute(_SEEN)


def _unusable(path: Path, reason: str) -> MemoreeError:
    return MemoreeError(Code.CONFIG_ERROR, f"the connector's state {path} cannot be used: {reason}")

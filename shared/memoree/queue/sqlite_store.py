"""The tables of the SQLite queue and every statement on them.

`message` rows never change; `delivery` holds what changes about those delivered at least once; `message_group` is the
line in which groups wait, so that a receive costs what it returns and not what is waiting. `locked_until` is the
latest `visible_at` of a group's deliveries, and 0 once that has passed. A group that was served goes to the end of the
line (`turn`), so that one tenant's backlog delays nobody else.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import uuid
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw
import orjson

from memoree.queue import (
    DEDUPLICATION_SECONDS,
    PATIENT_GROUPS,
    DeadLetter,
    Message,
    OutgoingMessage,
    QueueError,
    QueueStats,
)

APPLICATION_ID = 0x4D656D51  # "MemQ"
SCHEMA_VERSION = 1
FILE_MODE = 0o600
BUSY_MILLISECONDS_MAX = 5_000
WAL_BYTES_KEPT_MAX = 64 * 1024 * 1024
DEAD_LETTER_RETENTION_SECONDS = 14 * 24 * 3600
DEDUPLICATIONS_PRUNED_MIN = 16
DELIVERY_CHARACTERS_MAX = 8 * 1024 * 1024
"""Characters of bodies in one delivery, the last message left out: thousands of small messages are welcome, and a
hundred of the largest are not."""

SCHEMA = """
CREATE TABLE message (
    sequence    INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id  TEXT NOT NULL,
    group_id    TEXT NOT NULL,
    sent_at     REAL NOT NULL,
    body        TEXT NOT NULL
) STRICT;
CREATE INDEX message_by_group ON message (group_id, sequence);

CREATE TABLE delivery (
    sequence       INTEGER PRIMARY KEY,
    group_id       TEXT NOT NULL,
    receipt        TEXT NOT NULL,
    receive_count  INTEGER NOT NULL,
    visible_at     REAL NOT NULL
) STRICT;
CREATE INDEX delivery_by_group ON delivery (group_id, visible_at);
CREATE INDEX delivery_by_visibility ON delivery (visible_at);

CREATE TABLE message_group (
    group_id      TEXT PRIMARY KEY,
    locked_until  REAL NOT NULL,
    turn          INTEGER NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;
CREATE INDEX message_group_line ON message_group (locked_until, turn);

CREATE TABLE deduplication (
    dedup_id    TEXT PRIMARY KEY,
    message_id  TEXT NOT NULL,
    expires_at  REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX deduplication_by_expiry ON deduplication (expires_at);

CREATE TABLE dead_letter (
    sequence       INTEGER PRIMARY KEY,
    message_id     TEXT NOT NULL,
    group_id       TEXT NOT NULL,
    sent_at        REAL NOT NULL,
    dead_at        REAL NOT NULL,
    receive_count  INTEGER NOT NULL,
    reason         TEXT NOT NULL,
    body           TEXT NOT NULL
) STRICT;
CREATE INDEX dead_letter_by_time ON dead_letter (dead_at);
"""

_DEAD_LETTER = "sequence, message_id, group_id, body, receive_count, sent_at, dead_at, reason"
NEXT_TURN = "(SELECT coalesce(max(turn), 0) + 1 FROM message_group)"


def open_database(path: Path) -> apsw.Connection:
    """Open the queue's file, making it when there is none. Raises `QueueError` for another program's database, or
    one of a newer version; `apsw.Error` for damage."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _create_private(path)
    connection = apsw.Connection(os.fspath(path))
    try:
        connection.set_busy_timeout(BUSY_MILLISECONDS_MAX)
        connection.execute("BEGIN IMMEDIATE")
        _create_or_check_schema(connection, path)
        connection.execute("COMMIT")
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("journal_size_limit", WAL_BYTES_KEPT_MAX)
        # A body that was acknowledged must not stay readable in free pages.
        connection.pragma("secure_delete", True)
    except BaseException:
        connection.close(True)
        raise
    return connection


def scrub(path: Path) -> None:
    """Rewrite an existing queue's file and empty its log: `secure_delete` leaves copies that SQLite made when it moved
    rows (see `memoree.database.compaction`). Others may use it meanwhile; raises `QueueError` when they keep it busy.
    """
    connection = open_database(path)
    try:
        connection.execute("VACUUM")
        [(busy, _, _)] = _rows(connection, "PRAGMA wal_checkpoint(TRUNCATE)", ())
    except apsw.BusyError as error:
        raise QueueError(f"{path} is in use and could not be rewritten") from error
    finally:
        connection.close()
    if busy:
        raise QueueError(f"{path} is in use and its log could not be emptied")


def _create_private(path: Path) -> None:
    """SQLite gives the WAL the mode of the database. An existing file is left alone: closing any descriptor of it
    would drop the locks this process holds on it."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))


def _create_or_check_schema(connection: apsw.Connection, path: Path) -> None:
    version = connection.pragma("user_version")
    if version == 0 and not connection.pragma("schema_version"):
        connection.execute(SCHEMA)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", SCHEMA_VERSION)
    elif connection.pragma("application_id") != APPLICATION_ID:
        raise QueueError(f"{path} is a database, but not a queue")
    elif version != SCHEMA_VERSION:
        raise QueueError(f"{path} has queue format {version}, this program reads format {SCHEMA_VERSION}")


def enqueue(connection: apsw.Connection, messages: Sequence[OutgoingMessage], now: float) -> list[str]:
    """The id of each message; for a repeat within the deduplication interval, the id of the first."""
    ids = [_enqueue_one(connection, message, now) for message in messages]
    # Prunes faster than sends add, yet never more than is owed to this call.
    connection.execute(
        "DELETE FROM deduplication WHERE dedup_id IN"
        " (SELECT dedup_id FROM deduplication WHERE expires_at <= ? LIMIT ?)",
        (now, DEDUPLICATIONS_PRUNED_MIN + 2 * len(messages)),
    )
    return ids


def _enqueue_one(connection: apsw.Connection, message: OutgoingMessage, now: float) -> str:
    earlier = _rows(
        connection,
        "SELECT message_id FROM deduplication WHERE dedup_id = ? AND expires_at > ?",
        (message.dedup_id, now),
    )
    if earlier:
        return str(earlier[0][0])
    message_id = str(uuid.uuid4())
    connection.execute(
        "INSERT OR REPLACE INTO deduplication (dedup_id, message_id, expires_at) VALUES (?, ?, ?)",
        (message.dedup_id, message_id, now + DEDUPLICATION_SECONDS),
    )
    connection.execute(
        "INSERT INTO message (message_id, group_id, sent_at, body) VALUES (?, ?, ?, ?)",
        (message_id, message.group, now, message.body),
    )
    connection.execute(
        f"INSERT INTO message_group (group_id, locked_until, turn) VALUES (?, 0, {NEXT_TURN})"  # noqa: S608
        " ON CONFLICT (group_id) DO NOTHING",
        (message.group,),
    )
    return message_id


def has_deliverable(connection: apsw.Connection, except_groups: Collection[str], now: float) -> bool:
    """Whether some group is unlocked; reads only."""
    found = _rows(
        connection,
        "SELECT 1 FROM message_group WHERE locked_until <= ?"
        " AND group_id NOT IN (SELECT value FROM json_each(?)) LIMIT 1",
        (now, _json_array(except_groups)),
    )
    return bool(found)


def deliver(
    connection: apsw.Connection,
    *,
    max_messages: int,
    visibility_seconds: float,
    except_groups: Collection[str],
    receive_count_max: int,
    now: float,
) -> list[Message]:
    """Take up to `max_messages`, of about `DELIVERY_CHARACTERS_MAX`, from the groups first in line, hide them, and
    lock their groups."""
    connection.execute("UPDATE message_group SET locked_until = 0 WHERE locked_until > 0 AND locked_until <= ?", (now,))
    messages: list[Message] = []
    characters_left = DELIVERY_CHARACTERS_MAX
    # A round without a message has buried whole groups, so the next one looks behind them.
    while not messages and (line := _line(connection, except_groups, max_messages)):
        for group in line:
            _bury_exhausted(connection, group, receive_count_max, now)
            taken = _take(connection, group, max_messages - len(messages), characters_left, now + visibility_seconds)
            messages += taken
            characters_left -= sum(len(message.body) for message in taken)
            if len(messages) == max_messages or characters_left <= 0:
                break
    return messages


def _line(connection: apsw.Connection, except_groups: Collection[str], limit: int) -> list[str]:
    """The groups next in line; each of them holds a message."""
    rows = _rows(
        connection,
        "SELECT group_id FROM message_group WHERE locked_until = 0"
        " AND group_id NOT IN (SELECT value FROM json_each(?)) ORDER BY turn LIMIT ?",
        (_json_array(except_groups), limit),
    )
    return [group for (group,) in rows]


def _take(connection: apsw.Connection, group: str, limit: int, characters_max: int, visible_at: float) -> list[Message]:
    """The group's first messages, up to both bounds; the one that reaches the second is still taken."""
    statement = (
        "SELECT sequence, message_id, body, sent_at, coalesce(receive_count, 0) + 1"
        " FROM message LEFT JOIN delivery USING (sequence)"
        " WHERE message.group_id = ? ORDER BY sequence LIMIT ?"
    )
    rows: list[tuple[Any, ...]] = []
    with contextlib.closing(connection.execute(statement, (group, limit))) as found:
        for row in found:
            rows.append(row)
            characters_max -= len(row[2])
            if characters_max <= 0:
                break
    if not rows:  # all of it was buried
        connection.execute("DELETE FROM message_group WHERE group_id = ?", (group,))
        return []
    messages = [
        Message(message_id, body, group, _new_receipt(sequence), receive_count, sent_at)
        for sequence, message_id, body, sent_at, receive_count in rows
    ]
    connection.executemany(
        "INSERT OR REPLACE INTO delivery (sequence, group_id, receipt, receive_count, visible_at)"
        " VALUES (?, ?, ?, ?, ?)",
        (
            (row[0], group, message.receipt, message.receive_count, visible_at)
            for row, message in zip(rows, messages, strict=True)
        ),
    )
    connection.execute(
        f"UPDATE message_group SET locked_until = ?, turn = {NEXT_TURN} WHERE group_id = ?",  # noqa: S608
        (visible_at, group),
    )
    return messages


def _bury_exhausted(connection: apsw.Connection, group: str, receive_count_max: int, now: float) -> None:
    exhausted = _rows(
        connection,
        "SELECT sequence FROM delivery WHERE group_id = ? AND receive_count >= ?",
        (group, receive_count_max),
    )
    for (sequence,) in exhausted:
        connection.execute(
            "INSERT INTO dead_letter SELECT sequence, message_id, group_id, sent_at, ?, ?, ?, body"
            " FROM message WHERE sequence = ?",
            (
                now,
                receive_count_max,
                f"received {receive_count_max} times without an acknowledgement",
                sequence,
            ),
        )
        _delete(connection, sequence)
    if exhausted:
        _forget_old_dead_letters(connection, now)


def remove(connection: apsw.Connection, receipts: Iterable[str]) -> None:
    """Delete the messages of these deliveries for good; a receipt that a later delivery replaced does nothing."""
    groups = set()
    for receipt in receipts:
        held = _held_by(connection, receipt)
        if held is not None:
            sequence, group = held
            _delete(connection, sequence)
            groups.add(group)
    _settle_groups(connection, groups)


def set_visible_at(connection: apsw.Connection, receipts: Iterable[str], visible_at: float) -> None:
    """Hide these deliveries until then; a receipt that a later delivery replaced does nothing."""
    groups = set()
    for receipt in receipts:
        held = _held_by(connection, receipt)
        if held is not None:
            sequence, group = held
            connection.execute("UPDATE delivery SET visible_at = ? WHERE sequence = ?", (visible_at, sequence))
            groups.add(group)
    _settle_groups(connection, groups)


def stats(connection: apsw.Connection, now: float) -> QueueStats:
    total, in_flight, dead, oldest = _rows(
        connection,
        "SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM delivery WHERE visible_at > ?1),"
        " (SELECT count(*) FROM dead_letter), (SELECT sent_at FROM message WHERE substr(group_id, 1, ?2) <> ?3"
        " OR sequence NOT IN (SELECT sequence FROM delivery WHERE visible_at > ?1) ORDER BY sequence LIMIT 1)",
        (now, len(PATIENT_GROUPS), PATIENT_GROUPS),
    )[0]
    return QueueStats(
        waiting=total - in_flight,
        in_flight=in_flight,
        dead=dead,
        oldest_age_seconds=None if oldest is None else max(0.0, now - oldest),
    )


def waiting_in(connection: apsw.Connection, group: str, most: int) -> int:
    counted = "SELECT count(*) FROM (SELECT 1 FROM message WHERE group_id = ? LIMIT ?)"
    return int(_rows(connection, counted, (group, most))[0][0])


def bury(connection: apsw.Connection, message: Message, body: str, reason: str, now: float) -> None:
    """Keep a dead letter for a delivered message; the first one of a message stays."""
    sequence = int(message.receipt.partition(".")[0])
    connection.execute(
        "INSERT INTO dead_letter (sequence, message_id, group_id, sent_at, dead_at, receive_count, reason, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (sequence) DO NOTHING",
        (sequence, message.message_id, message.group, message.sent_at, now, message.receive_count, reason, body),
    )
    _forget_old_dead_letters(connection, now)


def remove_dead(connection: apsw.Connection, message_ids: Collection[str]) -> int:
    connection.execute(
        "DELETE FROM dead_letter WHERE message_id IN (SELECT value FROM json_each(?))", (_json_array(message_ids),)
    )
    return connection.changes()


def dead_letters(connection: apsw.Connection, after_sequence: int, limit: int) -> list[DeadLetter]:
    statement = f"SELECT {_DEAD_LETTER} FROM dead_letter WHERE sequence > ? ORDER BY sequence LIMIT ?"  # noqa: S608
    return [DeadLetter(*row) for row in _rows(connection, statement, (after_sequence, limit))]


def find_dead(connection: apsw.Connection, message_ids: Collection[str]) -> list[DeadLetter]:
    statement = (
        f"SELECT {_DEAD_LETTER} FROM dead_letter"  # noqa: S608
        " WHERE message_id IN (SELECT value FROM json_each(?)) ORDER BY sequence"
    )
    return [DeadLetter(*row) for row in _rows(connection, statement, (_json_array(message_ids),))]


def _forget_old_dead_letters(connection: apsw.Connection, now: float) -> None:
    connection.execute("DELETE FROM dead_letter WHERE dead_at <= ?", (now - DEAD_LETTER_RETENTION_SECONDS,))


def _new_receipt(sequence: int) -> str:
    """Names one delivery. The random part keeps a receipt from matching in a file that replaced the one it is of."""
    return f"{sequence}.{secrets.token_hex(8)}"


def _held_by(connection: apsw.Connection, receipt: str) -> tuple[int, str] | None:
    sequence, _, _ = receipt.partition(".")
    if not sequence.isdecimal():
        return None
    rows = _rows(
        connection,
        "SELECT sequence, group_id FROM delivery WHERE sequence = ? AND receipt = ?",
        (int(sequence), receipt),
    )
    return (rows[0][0], rows[0][1]) if rows else None


def _delete(connection: apsw.Connection, sequence: int) -> None:
    connection.execute("DELETE FROM delivery WHERE sequence = ?", (sequence,))
    connection.execute("DELETE FROM message WHERE sequence = ?", (sequence,))


def _settle_groups(connection: apsw.Connection, groups: Iterable[str]) -> None:
    """Bring the line in step with the messages that were removed or hidden."""
    for group in groups:
        if not _rows(connection, "SELECT 1 FROM message WHERE group_id = ? LIMIT 1", (group,)):
            connection.execute("DELETE FROM message_group WHERE group_id = ?", (group,))
        else:
            connection.execute(
                "UPDATE message_group SET locked_until ="
                " (SELECT coalesce(max(visible_at), 0) FROM delivery WHERE group_id = ?1) WHERE group_id = ?1",
                (group,),
            )


def _rows(connection: apsw.Connection, statement: str, bindings: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return connection.execute(statement, bindings).fetchall()


def _json_array(values: Collection[str]) -> str:
    return orjson.dumps(list(values)).decode()

"""Retrieval feedback, and the key of its query fingerprints.

A record is made by one commit, whose number is its row id, and never changes. The key is random, made by the writer
when it is first needed, and the same as long as the store lives: equal queries of one store have equal fingerprints,
and those of two stores cannot be compared.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apsw
import orjson
from blake3 import blake3

from memoree.database.connection import one, scalar
from memoree.database.entry import Entry
from memoree.owner import Owner

KEY_BYTES = 32

_COLUMNS = """feedback_id, outcome, query_fingerprint, retained_query, citations, note, actor, workspace_id, project_id,
    task_id, component, created_at, row_id"""

_FIND = f"SELECT {_COLUMNS} FROM feedback WHERE feedback_id = ?"  # noqa: S608 - constant columns
_PAGE = f"""
    SELECT {_COLUMNS} FROM feedback
    WHERE workspace_id = :workspace_id AND project_id = :project_id
        AND (:task_id IS NULL OR task_id IS NULL OR task_id = :task_id)
        AND (NOT :retained OR retained_query IS NOT NULL)
        AND row_id < :before
    ORDER BY row_id DESC LIMIT :limit
"""  # noqa: S608
_ALL = f"SELECT {_COLUMNS} FROM feedback ORDER BY row_id"  # noqa: S608
_INSERT = f"INSERT INTO feedback ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608

_NAMING = f"""
    SELECT {_COLUMNS} FROM feedback WHERE EXISTS (
        SELECT 1 FROM json_each(?) named
        WHERE instr(feedback.citations, named.value) OR instr(feedback.note, named.value))
"""  # noqa: S608
_ERASE = """
    UPDATE feedback SET query_fingerprint = ?2, retained_query = NULL, citations = '[]', note = NULL, actor = NULL
    WHERE row_id = ?1
"""

_KEY = "SELECT key FROM feedback_key"
_INSERT_KEY = "INSERT INTO feedback_key (id, key) VALUES (1, ?)"


@dataclass(frozen=True, slots=True)
class Feedback:
    """What somebody said of an answer. `retained_query` is there only where they asked to keep it; `citations` is a
    JSON array of strings; `row_id` is the commit."""

    feedback_id: str
    outcome: str
    query_fingerprint: str
    retained_query: str | None
    citations: str
    note: str | None
    actor: str | None
    owner: Owner
    created_at: str
    row_id: int


def find(db: apsw.Connection, feedback_id: str) -> Feedback | None:
    row = one(db, _FIND, (feedback_id,))
    return _feedback(row) if row else None


def page(db: apsw.Connection, reader: Owner, *, before: int, limit: int, retained_only: bool) -> Iterator[Feedback]:
    """Up to `limit` records below the commit `before`, newest first, read as they are asked for: those that the
    context of `reader` sees without a wider horizon (machine protocol §2.5)."""
    bindings = {
        "workspace_id": reader.workspace_id,
        "project_id": reader.project_id,
        "task_id": reader.task_id,
        "retained": retained_only,
        "before": before,
        "limit": limit,
    }
    return map(_feedback, db.execute(_PAGE, bindings))


def naming(db: apsw.Connection, entity_ids: Sequence[str]) -> list[Feedback]:
    """Every record whose citations or note name one of the entities. Looks through the whole table."""
    return [_feedback(row) for row in db.execute(_NAMING, (orjson.dumps(entity_ids).decode(),))]


def erase(db: apsw.Connection, feedback: Feedback) -> Feedback:
    """Leave the outcome, whose it was and when. With the key at hand, a fingerprint gives a short query away."""
    erased = replace(
        feedback,
        query_fingerprint=bytes(KEY_BYTES).hex(),
        retained_query=None,
        citations="[]",
        note=None,
        actor=None,
    )
    db.execute(_ERASE, (erased.row_id, erased.query_fingerprint))
    return erased


def insert(db: apsw.Connection, feedback: Feedback) -> None:
    owner = feedback.owner
    db.execute(
        _INSERT,
        (
            feedback.feedback_id,
            feedback.outcome,
            feedback.query_fingerprint,
            feedback.retained_query,
            feedback.citations,
            feedback.note,
            feedback.actor,
            owner.workspace_id,
            owner.project_id,
            owner.task_id,
            owner.component,
            feedback.created_at,
            feedback.row_id,
        ),
    )


def key(db: apsw.Connection) -> bytes | None:
    """The key of this store's fingerprints; `None` before its first use."""
    stored: bytes | None = scalar(db, _KEY)
    return stored


def make_key(db: apsw.Connection) -> bytes:
    """A store has one key: making it a second time fails."""
    made = secrets.token_bytes(KEY_BYTES)
    db.execute(_INSERT_KEY, (made,))
    return made


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every record, and the key, without which no fingerprint can be made again."""
    for row in db.execute(_ALL):
        yield entry(_feedback(row))
    if (stored := key(db)) is not None:
        yield key_entry(stored)


def entry(feedback: Feedback) -> Entry:
    owner = feedback.owner
    content = (
        feedback.outcome,
        feedback.query_fingerprint,
        feedback.retained_query,
        feedback.citations,
        feedback.note,
        feedback.actor,
        owner.workspace_id,
        owner.project_id,
        owner.task_id,
        owner.component,
        feedback.created_at,
        feedback.row_id,
    )
    return Entry("feedback", feedback.feedback_id, "", blake3(orjson.dumps(content)).digest(), held_rows=1)


def key_entry(key: bytes) -> Entry:
    return Entry("feedback_key", "", "", key)


def _feedback(row: tuple[Any, ...]) -> Feedback:
    feedback_id, outcome, fingerprint, retained_query, citations, note, actor, *owner, created_at, row_id = row
    told = (feedback_id, outcome, fingerprint, retained_query, citations, note, actor)
    return Feedback(*told, Owner(*owner), created_at, row_id)

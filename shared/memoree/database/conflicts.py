"""Conflict cases, and the append-only events of what became of each (machine protocol §6.3).

A case freezes the two claim revisions that contradict each other. Only an open case ever changes, and only once: it
becomes stale or resolved for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apsw
import orjson
from blake3 import blake3

from memoree.database.connection import scalar
from memoree.database.entry import Entry
from memoree.retrieval.scope import VISIBLE

State = Literal["open", "stale", "resolved"]
ClosedState = Literal["stale", "resolved"]
CaseEvent = Literal["opened", "stale", "resolved"]

_COLUMNS = """c.case_sequence, c.case_id, c.relation_row, c.source_claim_row, c.source_revision_row,
    c.target_claim_row, c.target_revision_row, c.state, c.state_reason, c.opened_commit_seq, c.opened_at,
    c.updated_at"""

OPEN_OF_CLAIM = f"""
    SELECT {_COLUMNS} FROM conflict_cases c WHERE c.state = 'open' AND c.source_claim_row = ?1
    UNION ALL
    SELECT {_COLUMNS} FROM conflict_cases c WHERE c.state = 'open' AND c.target_claim_row = ?1
    ORDER BY case_sequence
"""  # noqa: S608 - constant columns
_CONTESTED = """
    SELECT EXISTS (SELECT 1 FROM conflict_cases WHERE state = 'open' AND source_claim_row = ?1)
        OR EXISTS (SELECT 1 FROM conflict_cases WHERE state = 'open' AND target_claim_row = ?1)
"""
_PAGE = f"""
    SELECT {_COLUMNS} FROM conflict_cases c JOIN relations e ON e.row_id = c.relation_row
    WHERE c.state IN ('open', 'stale') AND (:include_stale OR c.state = 'open') AND c.case_sequence < :before
    AND {VISIBLE} AND NOT EXISTS (
        SELECT 1 FROM claims x
        WHERE x.row_id IN (c.source_claim_row, c.target_claim_row) AND x.erasure_row IS NOT NULL)
    ORDER BY c.case_sequence DESC
"""  # noqa: S608
_EVENTS = """
    SELECT v.event_id, v.event, v.state_reason, v.commit_seq, v.created_at,
        c.case_id, c.case_sequence, c.relation_row, c.source_revision_row, c.target_revision_row
    FROM conflict_events v JOIN conflict_cases c USING (case_sequence) ORDER BY v.row_id
"""
_NEXT_SEQUENCE = "SELECT coalesce(max(case_sequence), 0) + 1 FROM conflict_cases"
_INSERT = "INSERT INTO conflict_cases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_CLOSE = "UPDATE conflict_cases SET state = ?2, state_reason = ?3, updated_at = ?4 WHERE case_sequence = ?1"
_INSERT_EVENT = """
    INSERT INTO conflict_events (event_id, case_sequence, event, state_reason, commit_seq, created_at)
    VALUES (?, ?, ?, ?, ?, ?)
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A contradiction between two revisions. `case_sequence` grows in creation order; source and target follow the
    direction of the relation; revision rows and `opened_commit_seq` are commit numbers."""

    case_sequence: int
    case_id: str
    relation_row: int
    source_claim_row: int
    source_revision_row: int
    target_claim_row: int
    target_revision_row: int
    state: State
    state_reason: str
    opened_commit_seq: int
    opened_at: str
    updated_at: str

    def other_claim_row(self, claim_row: int) -> int:
        return self.target_claim_row if claim_row == self.source_claim_row else self.source_claim_row


@dataclass(frozen=True, slots=True)
class Event:
    event_id: str
    event: CaseEvent
    state_reason: str
    commit_seq: int
    created_at: str


def open_cases(db: apsw.Connection, claim_row: int) -> Sequence[Case]:
    """The open cases of a claim, oldest first."""
    return [Case(*row) for row in db.execute(OPEN_OF_CLAIM, (claim_row,))]


def is_contested(db: apsw.Connection, claim_row: int) -> bool:
    """Whether an open case names the claim; open cases are always over current revisions."""
    return bool(scalar(db, _CONTESTED, (claim_row,)))


def newest_first(db: apsw.Connection, scope: Mapping[str, Any], *, include_stale: bool, before: int) -> Iterator[Case]:
    """Cases opened before that one whose relation is visible in the scope; never resolved ones, nor those of a claim
    that was erased."""
    bindings = {**scope, "include_stale": include_stale, "before": before}
    for row in db.execute(_PAGE, bindings):
        yield Case(*row)


def next_sequence(db: apsw.Connection) -> int:
    return int(scalar(db, _NEXT_SEQUENCE))


def insert(db: apsw.Connection, case: Case, opened: Event) -> None:
    db.execute(
        _INSERT,
        (
            case.case_sequence,
            case.case_id,
            case.relation_row,
            case.source_claim_row,
            case.source_revision_row,
            case.target_claim_row,
            case.target_revision_row,
            case.state,
            case.state_reason,
            case.opened_commit_seq,
            case.opened_at,
            case.updated_at,
        ),
    )
    _insert_event(db, case, opened)


def close(db: apsw.Connection, case: Case, closed: Event) -> None:
    """Make an open case stale or resolved, for good."""
    db.execute(_CLOSE, (case.case_sequence, closed.event, closed.state_reason, closed.created_at))
    _insert_event(db, case, closed)


def _insert_event(db: apsw.Connection, case: Case, event: Event) -> None:
    db.execute(
        _INSERT_EVENT,
        (event.event_id, case.case_sequence, event.event, event.state_reason, event.commit_seq, event.created_at),
    )


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every event with what its case froze. A case's state follows from its events."""
    for event_id, event, reason, commit_seq, created_at, *case in db.execute(_EVENTS):
        yield _entry(Event(event_id, event, reason, commit_seq, created_at), *case)


def entry(case: Case, event: Event) -> Entry:
    return _entry(
        event, case.case_id, case.case_sequence, case.relation_row, case.source_revision_row, case.target_revision_row
    )


def _entry(event: Event, case_id: str, *frozen: int) -> Entry:
    content = (event.event_id, event.state_reason, event.commit_seq, event.created_at, *frozen)
    return Entry("conflict_events", case_id, event.event, blake3(orjson.dumps(content)).digest())

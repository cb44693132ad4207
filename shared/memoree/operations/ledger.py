"""The ledger of a project: what agents did on which topic (OKF contract §3.2).

An event is an audit event of its own. Nothing about a secret node is ever read back (SEC-7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Annotated, Any

import apsw
from pydantic import BaseModel, Field

from memoree import clock
from memoree.database import ledger as rows
from memoree.database import okf
from memoree.envelope import WireModel, bounded
from memoree.okf import detectors, ledger
from memoree.okf.hygiene import Activity
from memoree.okf.ids import id_of
from memoree.okf.ledger import ACTION_BYTES_MAX, REFERENCE_BYTES_MAX, TOPIC_BYTES_MAX, Event
from memoree.okf.plan import Cursor, secret_digest
from memoree.operations import okf_nodes
from memoree.operations.call import Call
from memoree.operations.registry import EXTENSION, mutation, read
from memoree.operations.shapes import Actor, EmptyInput, Timestamp
from memoree.operations.view import Applied, Transaction, View
from memoree.owner import Owner

APPEND, STATUS, READ = "ledger.append", "ledger.status", "ledger.read"
READ_LIMIT_DEFAULT, READ_LIMIT_MAX = 200, 1000

Topic = Annotated[str, bounded(TOPIC_BYTES_MAX)]
Reference = Annotated[str, bounded(REFERENCE_BYTES_MAX)]


class LedgerAppend(WireModel):
    """`occurred_at` is for events that were written down elsewhere before; without it they happen now. A `ref` names an
    event for good: what comes under it again is not appended."""

    topic: Topic
    phase: str
    action: Annotated[str, bounded(ACTION_BYTES_MAX)]
    status: str | None = None
    artifact: Reference | None = None
    ref: Reference | None = None
    actor: Actor | None = None
    occurred_at: Timestamp | None = None


class LedgerRead(WireModel):
    topic: Topic
    limit: Annotated[int, Field(ge=1, le=READ_LIMIT_MAX)] = READ_LIMIT_DEFAULT


class LedgerAppended(BaseModel):
    """The payload of `memory_ledger_append`; `deduped` is there when the event was known by its `ref`."""

    ok: bool = True
    actor: str
    topic: str
    phase: str
    status: str
    quarantine: bool
    matches: list[str]
    deduped: bool | None = None

    @classmethod
    def of(cls, event: Event, *, deduped: bool | None = None) -> LedgerAppended:
        return cls(
            actor=event.actor,
            topic=event.topic,
            phase=event.phase,
            status=event.status,
            quarantine=event.quarantine,
            matches=list(event.matches),
            deduped=deduped,
        )


class LedgerStatus(BaseModel):
    """The payload of `memory_ledger_status`."""

    topics: list[dict[str, Any]]
    openFailures: list[dict[str, Any]]


class LedgerEvents(BaseModel):
    """The newest events of a topic, the oldest of them first."""

    topic: str
    count: int
    events: list[dict[str, Any]]


@mutation(APPEND, position=EXTENSION, input=LedgerAppend, result=LedgerAppended, scope="inbox")
def append(tx: Transaction, call: Call[LedgerAppend]) -> Applied:
    """Raises `INVALID_REQUEST` for a phase or status that is none."""
    wanted = call.input
    event = ledger.made(
        ts_ms=instant_ms(tx.now if wanted.occurred_at is None else wanted.occurred_at),
        actor=wanted.actor,
        topic=wanted.topic,
        phase=wanted.phase,
        action=wanted.action,
        status=wanted.status,
        artifact=wanted.artifact,
        ref=wanted.ref,
        detect=detectors.labels,
    )
    known = None if event.ref is None else rows.by_ref(tx.db, call.owner, event.ref)
    if known is not None:
        payload, commit_seq = known
        before = _event(payload)
        told = event if ledger.is_secret(before, secret_ids(tx, call.owner)) else before
        return Applied(LedgerAppended.of(told, deduped=True), commit_seq, created=False)
    return Applied(LedgerAppended.of(event), record(tx, APPEND, call.owner, event))


@read(STATUS, position=EXTENSION, input=EmptyInput, result=LedgerStatus, needs_context=True)
def status(view: View, call: Call[EmptyInput]) -> LedgerStatus:
    """What each topic stands at; goes through all of the project's ledger."""
    events = (_event(payload) for payload in rows.every(view.db, call.owner))
    found = ledger.summary(_visible(view, call.owner, events))
    return LedgerStatus(
        topics=[topic.to_json() for topic in found.topics],
        openFailures=[failure.told() for failure in found.open_failures],
    )


@read(READ, position=EXTENSION, input=LedgerRead, result=LedgerEvents, needs_context=True)
def read_topic(view: View, call: Call[LedgerRead]) -> LedgerEvents:
    wanted = call.input
    topic = wanted.topic.strip()
    payloads = rows.of_topic(view.db, call.owner, topic, most=wanted.limit)
    told = [event.told() for event in _visible(view, call.owner, map(_event, payloads))]
    return LedgerEvents(topic=topic, count=len(told), events=told)


def record(tx: Transaction, operation: str, owner: Owner, event: Event) -> int:
    """Append an event, and consume the commit number for it."""
    payload = {
        **event.to_json(),
        "ts_ms": event.ts_ms,
        "workspace_id": owner.workspace_id,
        "project_id": owner.project_id,
    }
    return tx.record_event(operation, rows.TOPIC, event.topic, actor=event.actor, payload=payload)


def activity(db: apsw.Connection, owner: Owner, topic: str) -> Activity | None:
    """What a project's ledger has of a topic, for the ranker."""
    count, last_ms = rows.activity(db, owner, topic)
    return None if last_ms is None else Activity(count, last_ms)


def activities(db: apsw.Connection, owner: Owner) -> dict[str, Activity]:
    return {topic: Activity(*found) for topic, found in rows.activities(db, owner).items()}


def secret_ids(view: View, owner: Owner) -> AbstractSet[str]:
    """Ids of the project's nodes that are secret, as far as the store knows of any."""
    bundle = okf_nodes.bundle_of(view, owner)
    if bundle is None:
        return frozenset()
    hidden = okf.of_tiers(view.db, bundle.row_id, [okf.SECRET])
    found = (okf.by_row(view.db, row_id) for row_id in hidden)
    return {row.node_id for row in found if row is not None}


def _visible(view: View, owner: Owner, events: Iterable[Event]) -> Iterator[Event]:
    """Without those that tell of a secret node, be it one that an import left where it was (SEC-7)."""
    bundle = okf_nodes.bundle_of(view, owner)
    cursor = None if bundle is None else Cursor.read(bundle.cursor)
    left_out = frozenset() if cursor is None else cursor.secrets
    for event in ledger.visible(events, secret_ids(view, owner)):
        named = (id_of(each.strip()) for each in (event.topic, event.artifact, event.ref) if each)
        if not any(secret_digest(each) in left_out for each in named):
            yield event


def instant_ms(stored: str) -> int:
    return clock.milliseconds(clock.from_stored(stored))


def _event(payload: dict[str, Any]) -> Event:
    event = ledger.of_json(payload)
    assert event is not None, "what was appended is an event"
    return event

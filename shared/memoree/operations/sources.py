"""Sources: external systems that deliver items (machine protocol §4.19, §4.20, §4.22). Adapters run elsewhere and keep
their own credentials; `source_items` is about what they deliver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
from pydantic import BaseModel, Field

from memoree import clock
from memoree.database import sources as rows
from memoree.database.sources import Health, Source
from memoree.envelope import WireModel
from memoree.errors import invalid, not_found, shown
from memoree.operations import okf_nodes
from memoree.operations.call import Call
from memoree.operations.context import require_write_scope
from memoree.operations.registry import mutation, read
from memoree.operations.shapes import (
    Acknowledgement,
    Actor,
    EntityId,
    HealthMessage,
    Kind,
    Metadata,
    RecordContext,
    SourceCursor,
    SourceLocator,
    SourceName,
    Timestamp,
)
from memoree.operations.view import Applied, Transaction, View


class SourceRegister(WireModel):
    name: SourceName
    kind: Kind
    locator: SourceLocator | None = None
    metadata: Metadata = Field(default_factory=dict)
    actor: Actor | None = None


class SourceGet(WireModel):
    source_id: EntityId


class SourceCheckpoint(WireModel):
    """An absent cursor is kept, an absent message clears the last one."""

    source_id: EntityId
    health: Health
    cursor: SourceCursor | None = None
    message: HealthMessage | None = None
    observed_at: Timestamp | None = None
    actor: Actor | None = None


class SourceRecord(BaseModel):
    """An external system and how it fares; `commit_seq` is the last commit that touched it (§4.19)."""

    source_id: str
    name: str
    kind: str
    locator: str | None = None
    metadata: dict[str, Any]
    health: Health
    cursor: str | None = None
    health_message: str | None = None
    last_observed_at: str | None = None
    context: RecordContext
    created_at: str
    updated_at: str
    commit_seq: int

    @classmethod
    def of(cls, source: Source) -> SourceRecord:
        return cls(
            source_id=source.source_id,
            name=source.name,
            kind=source.kind,
            locator=source.locator,
            metadata=orjson.loads(source.metadata),
            health=source.health,
            cursor=source.cursor,
            health_message=source.health_message,
            last_observed_at=source.last_observed_at and clock.wire(source.last_observed_at),
            context=RecordContext.of(source.owner),
            created_at=clock.wire(source.created_at),
            updated_at=clock.wire(source.updated_at),
            commit_seq=source.commit_seq,
        )


class SourceAcknowledgement(SourceRecord, Acknowledgement):
    """The result of `source.register` and `source.checkpoint`."""


def existing(view: View, source_id: str) -> Source:
    """Raises `NOT_FOUND` for an unknown source."""
    source = rows.find(view.db, source_id)
    if source is None:
        not_found("source", source_id)
    return source


def in_write_scope(view: View, call: Call[Any]) -> Source:
    """The source that the input names. Raises `NOT_FOUND`, then `SCOPE_VIOLATION`."""
    source = existing(view, call.input.source_id)
    require_write_scope(call, source.owner, f"source {shown(source.source_id)}")
    return source


def _exists_in_write_scope(view: View, call: Call[SourceCheckpoint]) -> None:
    in_write_scope(view, call)


@mutation("source.register", position=18, input=SourceRegister, result=SourceAcknowledgement)
def register(tx: Transaction, call: Call[SourceRegister]) -> Applied:
    wanted = call.input
    if wanted.kind == okf_nodes.BUNDLE_KIND:
        okf_nodes.refuse_second_bundle(tx, call.owner)
    if (holder := rows.named(tx.db, call.owner, wanted.name)) is not None:
        invalid(
            f"name: source {holder} of this workspace, project and task is already called {shown(wanted.name)}; "
            "deliver to that one, or choose another name"
        )
    source = Source(
        source_id=tx.new_id("src"),
        name=wanted.name,
        kind=wanted.kind,
        locator=wanted.locator,
        metadata=orjson.dumps(wanted.metadata).decode(),
        owner=call.owner,
        health="unknown",
        health_message=None,
        cursor=None,
        last_observed_at=None,
        created_at=tx.now,
        updated_at=tx.now,
        commit_seq=tx.commit_seq,
        row_id=tx.commit_seq,
    )
    rows.insert(tx.db, source)
    tx.sum.add(rows.entry(source))
    return _recorded(tx, call, source)


@read("source.get", position=19, input=SourceGet, result=SourceRecord, needs_context=True, short=True)
def get(view: View, call: Call[SourceGet]) -> SourceRecord:
    return SourceRecord.of(in_write_scope(view, call))


@mutation(
    "source.checkpoint",
    position=21,
    input=SourceCheckpoint,
    result=SourceAcknowledgement,
    before_replay=_exists_in_write_scope,
)
def checkpoint(tx: Transaction, call: Call[SourceCheckpoint]) -> Applied:
    wanted = call.input
    source = existing(tx, wanted.source_id)
    changed = update(
        tx,
        source,
        health=wanted.health,
        health_message=wanted.message,
        cursor=source.cursor if wanted.cursor is None else wanted.cursor,
        last_observed_at=wanted.observed_at or tx.now,
    )
    return _recorded(tx, call, changed)


def update(tx: Transaction, source: Source, **changes: Any) -> Source:
    """The source as this commit leaves it, with these fields changed. The caller records the event."""
    changed = replace(source, **changes, updated_at=tx.now, commit_seq=tx.commit_seq)
    rows.update(tx.db, changed)
    tx.sum.replace(rows.entry(source), rows.entry(changed))
    return changed


def _recorded(tx: Transaction, call: Call[SourceRegister] | Call[SourceCheckpoint], source: Source) -> Applied:
    """Consume the commit number. The event keeps what the next one overwrites in the row."""
    payload = {"health": source.health, "message": source.health_message, "cursor": source.cursor}
    commit_seq = tx.record_event(
        call.operation.name, "source", source.source_id, actor=call.input.actor, payload=payload
    )
    return Applied(SourceRecord.of(source), commit_seq)

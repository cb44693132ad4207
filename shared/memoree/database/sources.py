"""Sources and the items they delivered.

A row holds the present; what it was before is in the audit events. The row id is the commit that made the row,
`commit_seq` the last one that touched it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import apsw
import orjson
from blake3 import blake3

from memoree.database.connection import one, scalar
from memoree.database.entry import ERASED, Entry
from memoree.owner import Owner

Health = Literal["unknown", "healthy", "degraded", "error"]
ItemState = Literal["live", "withdrawn"]

_SOURCE = """s.source_id, s.name, s.kind, s.locator, s.metadata, s.workspace_id, s.project_id, s.task_id, s.component,
    s.health, s.health_message, s.cursor, s.last_observed_at, s.created_at, s.updated_at, s.commit_seq, s.row_id"""
_ITEM = """i.external_id, i.external_revision, i.payload_digest, a.artifact_id, i.artifact_row, r.revision_id,
    i.artifact_revision_row, i.state, i.observed_at, i.withdrawn_at, i.withdrawal_reason, i.updated_at, i.commit_seq,
    i.row_id"""
_ITEMS = """
    FROM source_items i JOIN artifacts a ON a.row_id = i.artifact_row
    JOIN artifact_revisions r ON r.row_id = i.artifact_revision_row
"""

_FIND = f"SELECT {_SOURCE} FROM sources s WHERE s.source_id = ?"  # noqa: S608 - constant columns
_ALL = f"SELECT {_SOURCE} FROM sources s ORDER BY s.row_id"  # noqa: S608
_OF_KIND = f"""
    SELECT {_SOURCE} FROM sources s
    WHERE s.workspace_id = ? AND s.project_id = ? AND s.task_id IS NULL AND s.kind = ? ORDER BY s.row_id
"""  # noqa: S608
_NAMED = """
    SELECT source_id FROM sources
    WHERE workspace_id = ? AND project_id = ? AND coalesce(task_id, '') = coalesce(?, '') AND name = ?
"""
_FIND_ITEM = f"SELECT {_ITEM} {_ITEMS} WHERE i.source_row = ? AND i.external_id = ?"
_ITEMS_OF_ARTIFACT = f"""
    SELECT s.source_id, {_ITEM} {_ITEMS} JOIN sources s ON s.row_id = i.source_row WHERE i.artifact_row = ?
"""
_ITEMS_OF = f"SELECT {_ITEM} {_ITEMS} WHERE i.source_row = ? ORDER BY i.row_id"

_INSERT = "INSERT INTO sources VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_UPDATE = """
    UPDATE sources SET health = ?2, health_message = ?3, cursor = ?4, last_observed_at = ?5, updated_at = ?6,
        commit_seq = ?7
    WHERE row_id = ?1
"""
_INSERT_ITEM = "INSERT INTO source_items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_UPDATE_ITEM = """
    UPDATE source_items SET external_revision = ?2, payload_digest = ?3, artifact_row = ?4, artifact_revision_row = ?5,
        state = ?6, observed_at = ?7, withdrawn_at = ?8, withdrawal_reason = ?9, updated_at = ?10, commit_seq = ?11
    WHERE row_id = ?1
"""
_RENAME_ITEM = "UPDATE source_items SET external_id = ?2 WHERE row_id = ?1"


@dataclass(frozen=True, slots=True)
class Source:
    """An external system. `metadata` is JSON text; instants are in stored form."""

    source_id: str
    name: str
    kind: str
    locator: str | None
    metadata: str
    owner: Owner
    health: Health
    health_message: str | None
    cursor: str | None
    last_observed_at: str | None
    created_at: str
    updated_at: str
    commit_seq: int
    row_id: int


@dataclass(frozen=True, slots=True)
class Item:
    """What a source delivered under one external id, and the artifact revision that keeps it."""

    external_id: str
    external_revision: str
    payload_digest: bytes
    artifact_id: str
    artifact_row: int
    artifact_revision_id: str
    artifact_revision_row: int
    state: ItemState
    observed_at: str
    withdrawn_at: str | None
    withdrawal_reason: str | None
    updated_at: str
    commit_seq: int
    row_id: int


def find(db: apsw.Connection, source_id: str) -> Source | None:
    row = one(db, _FIND, (source_id,))
    return _source(row) if row else None


def named(db: apsw.Connection, owner: Owner, name: str) -> str | None:
    """The id of the source that has the name in exactly this workspace, project and task."""
    found: str | None = scalar(db, _NAMED, (owner.workspace_id, owner.project_id, owner.task_id, name))
    return found


def of_kind(db: apsw.Connection, owner: Owner, kind: str) -> list[Source]:
    """The project's own sources of a kind, in the order in which they were registered."""
    return [_source(row) for row in db.execute(_OF_KIND, (owner.workspace_id, owner.project_id, kind))]


def find_item(db: apsw.Connection, source: Source, external_id: str) -> Item | None:
    row = one(db, _FIND_ITEM, (source.row_id, external_id))
    return Item(*row) if row else None


def items_of_artifact(db: apsw.Connection, artifact_row: int) -> list[tuple[str, Item]]:
    """The items that an artifact stands for now, each with the id of its source."""
    rows: Iterator[tuple[Any, ...]] = db.execute(_ITEMS_OF_ARTIFACT, (artifact_row,))
    return [(source_id, Item(*row)) for source_id, *row in rows]


def erase_item(db: apsw.Connection, item: Item, *, at: str, commit_seq: int) -> Item:
    """Withdrawn, and known by its row only: what it was called elsewhere goes with what it said."""
    erased = replace(
        item,
        external_id=f"{ERASED}:{item.row_id}",
        external_revision=ERASED,
        payload_digest=bytes(len(item.payload_digest)),
        state="withdrawn",
        withdrawn_at=item.withdrawn_at or at,
        withdrawal_reason=ERASED,
        updated_at=at,
        commit_seq=commit_seq,
    )
    update_item(db, erased)
    db.execute(_RENAME_ITEM, (erased.row_id, erased.external_id))
    return erased


def rename_item(db: apsw.Connection, item: Item, external_id: str) -> Item:
    """The item under another name, for a system that tells of renames."""
    db.execute(_RENAME_ITEM, (item.row_id, external_id))
    return replace(item, external_id=external_id)


def insert(db: apsw.Connection, source: Source) -> None:
    owner = source.owner
    db.execute(
        _INSERT,
        (
            source.row_id,
            source.source_id,
            source.name,
            source.kind,
            source.locator,
            source.metadata,
            owner.workspace_id,
            owner.project_id,
            owner.task_id,
            owner.component,
            source.health,
            source.health_message,
            source.cursor,
            source.last_observed_at,
            source.created_at,
            source.updated_at,
            source.commit_seq,
        ),
    )


def update(db: apsw.Connection, source: Source) -> None:
    """Store what changes about a source; what it was registered with stays."""
    db.execute(
        _UPDATE,
        (
            source.row_id,
            source.health,
            source.health_message,
            source.cursor,
            source.last_observed_at,
            source.updated_at,
            source.commit_seq,
        ),
    )


def insert_item(db: apsw.Connection, source: Source, item: Item) -> None:
    db.execute(_INSERT_ITEM, (item.row_id, source.row_id, item.external_id, *_present(item)))


def update_item(db: apsw.Connection, item: Item) -> None:
    db.execute(_UPDATE_ITEM, (item.row_id, *_present(item)))


def _present(item: Item) -> tuple[Any, ...]:
    """What changes about an item, in the order of its columns."""
    return (
        item.external_revision,
        item.payload_digest,
        item.artifact_row,
        item.artifact_revision_row,
        item.state,
        item.observed_at,
        item.withdrawn_at,
        item.withdrawal_reason,
        item.updated_at,
        item.commit_seq,
    )


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every source and every item as it is now."""
    for source in map(_source, db.execute(_ALL)):
        yield entry(source)
        for row in db.execute(_ITEMS_OF, (source.row_id,)):
            yield item_entry(source, Item(*row))


def entry(source: Source) -> Entry:
    owner = source.owner
    content = (
        source.name,
        source.kind,
        source.locator,
        source.metadata,
        owner.workspace_id,
        owner.project_id,
        owner.task_id,
        owner.component,
        source.health,
        source.health_message,
        source.cursor,
        source.last_observed_at,
        source.created_at,
        source.updated_at,
        source.commit_seq,
        source.row_id,
    )
    return Entry("sources", source.source_id, "", blake3(orjson.dumps(content)).digest(), held_rows=1)


def item_entry(source: Source, item: Item) -> Entry:
    content = (
        item.external_revision,
        item.payload_digest.hex(),
        item.artifact_id,
        item.artifact_revision_id,
        item.state,
        item.observed_at,
        item.withdrawn_at,
        item.withdrawal_reason,
        item.updated_at,
        item.commit_seq,
        item.row_id,
    )
    digest = blake3(orjson.dumps(content)).digest()
    return Entry("source_items", source.source_id, item.external_id, digest, held_rows=1)


def _source(row: tuple[Any, ...]) -> Source:
    source_id, name, kind, locator, metadata, workspace_id, project_id, task_id, component, *present = row
    owner = Owner(workspace_id, project_id, task_id, component)
    return Source(source_id, name, kind, locator, metadata, owner, *present)

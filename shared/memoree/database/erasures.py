"""Erasures, and how to find what the rows of others tell of an erased artifact or claim.

Artifacts and claims name the erasure that emptied them; `artifacts.erase` and `claims.erase` say what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apsw
import orjson

from memoree.database.connection import scalar
from memoree.database.entry import Entry

_INSERT = "INSERT INTO erasures VALUES (?, ?, ?)"
_ALL = "SELECT row_id, erasure_id, created_at FROM erasures ORDER BY row_id"
_COUNT = "SELECT count(*) FROM erasures"
_ENTITIES = """
    SELECT artifact_id FROM artifacts WHERE erasure_row = ?1 UNION ALL
    SELECT claim_id FROM claims WHERE erasure_row = ?1 ORDER BY 1
"""
_DERIVED = """
    SELECT r.revision_id FROM derivations d JOIN artifact_revisions r ON r.row_id = d.revision_row
    WHERE EXISTS (SELECT 1 FROM json_each(?) named WHERE instr(d.citations, '/' || named.value || '@'))
    ORDER BY d.revision_row
"""
_PERMIT = "UPDATE meta SET erasing = ?"

_TOLD = """
    SELECT commit_seq FROM events WHERE entity_id IN (SELECT value FROM json_each(?1))
    UNION
    SELECT v.commit_seq FROM events v, json_each(v.payload, '$.also') also
    WHERE v.operation LIKE 'source.%' AND also.value ->> 1 IN (SELECT value FROM json_each(?1))
    ORDER BY 1
"""
"""Of a delivery the event is the item's; the artifact is among what else it changed."""
_DELIVERIES = """
    SELECT entity_id, commit_seq, (
        SELECT also.value ->> 1 FROM json_each(v.payload, '$.also') also WHERE also.value ->> 0 = 'artifact')
    FROM events v WHERE entity_type = 'source_item' AND entity_id IN (
        SELECT entity_id FROM events WHERE entity_type = 'source_item'
            AND commit_seq IN (SELECT value FROM json_each(?)))
    ORDER BY entity_id, commit_seq
"""
_RENAMED = """
    SELECT commit_seq, payload ->> 'renamed_from' FROM events
    WHERE entity_type = 'source_item' AND entity_id = ? AND payload ->> 'renamed_from' IS NOT NULL
"""


class Erasure(NamedTuple):
    """`row_id` is the commit, `created_at` in stored form."""

    row_id: int
    erasure_id: str
    created_at: str


def insert(db: apsw.Connection, erasure: Erasure) -> None:
    db.execute(_INSERT, erasure)


def every(db: apsw.Connection) -> Iterator[Erasure]:
    """In the order of their commits."""
    for row in db.execute(_ALL):
        yield Erasure(*row)


def count(db: apsw.Connection) -> int:
    return int(scalar(db, _COUNT))


def entities(db: apsw.Connection, erasure: Erasure) -> tuple[str, ...]:
    """The artifacts and claims that it erased."""
    return tuple(str(entity_id) for (entity_id,) in db.execute(_ENTITIES, (erasure.row_id,)))


def permit(db: apsw.Connection, *, allowed: bool) -> None:
    """Lift the triggers that keep history as it is, or put them back. Within one transaction only."""
    db.execute(_PERMIT, (int(allowed),))


def commits_telling(db: apsw.Connection, entity_ids: Sequence[str]) -> list[int]:
    """The commits whose events tell of the entities, or of the items that an artifact among them was delivered as.
    Looks through the whole log."""
    ids = orjson.dumps(entity_ids).decode()
    told = [int(str(commit)) for (commit,) in db.execute(_TOLD, (ids,))]
    return sorted({*told, *_of_deliveries(db, frozenset(entity_ids), told)})


def former_names(db: apsw.Connection, item_id: str) -> list[tuple[str, int]]:
    """What a source's item was called before, with the commit that renamed it: later ones may mean another item."""
    return [(str(name), int(str(commit))) for commit, name in db.execute(_RENAMED, (item_id,))]


def _of_deliveries(db: apsw.Connection, entity_ids: frozenset[str], told: Sequence[int]) -> Iterator[int]:
    """An item may have stood for several artifacts, one after the other; a withdrawal that found its artifact forgotten
    names none."""
    standing: dict[str, str] = {}
    rows: Iterator[tuple[Any, ...]] = db.execute(_DELIVERIES, (orjson.dumps(told).decode(),))
    for item, commit, artifact_id in rows:
        standing[item] = artifact_id or standing[item]
        if standing[item] in entity_ids:
            yield commit


def derived_from(db: apsw.Connection, entity_ids: Sequence[str]) -> list[str]:
    """The revisions that are marked with a citation of one of the entities: they may hold some of its text."""
    return [str(revision_id) for (revision_id,) in db.execute(_DERIVED, (orjson.dumps(entity_ids).decode(),))]


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every erasure."""
    return map(entry, every(db))


def entry(erasure: Erasure) -> Entry:
    return Entry("erasures", erasure.erasure_id, str(erasure.row_id), erasure.created_at.encode())

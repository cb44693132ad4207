"""An order-independent digest of everything a tenant holds: it proves database = log = copy (design §8).

The sum, modulo 2**256, of one BLAKE3 digest per immutable revision and per lifecycle change. Addition commutes,
so any order of the same entries gives the same sum, and the writer keeps it current at the cost of one hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import apsw
from blake3 import blake3

from memoree.database import artifacts, claims

_EVENTS = """
    SELECT entity_type, entity_id, revision_id, payload ->> 'status' FROM events
    WHERE entity_type IN ('artifact', 'claim') ORDER BY commit_seq
"""
_FORGOTTEN = "SELECT artifact_id, forgotten_reason FROM artifacts WHERE status = 'forgotten'"
_RETRACTED = "SELECT claim_id, retraction_reason FROM claims WHERE status = 'retracted'"
_HEADS = """
    SELECT 'artifact', artifact_id, r.revision_id, r.revision_number, revision_count, status
    FROM artifacts a JOIN artifact_revisions r ON r.row_id = a.head_row
    UNION ALL
    SELECT 'claim', claim_id, r.revision_id, r.revision_number, revision_count, status
    FROM claims c JOIN claim_revisions r ON r.row_id = c.head_row
"""

_BYTES = 32
_MODULUS = 2 ** (8 * _BYTES)


class Sum:
    """A running sum; start it from the stored 32 bytes."""

    __slots__ = ("_value",)

    def __init__(self, stored: bytes = bytes(_BYTES)) -> None:
        self._value = int.from_bytes(stored)

    def add(self, table: str, key: str, revision: str, content: bytes) -> None:
        """Count one entry. The parts are length-prefixed, so that no two entries share an encoding."""
        hasher = blake3()
        for part in (table.encode(), key.encode(), revision.encode(), content):
            hasher.update(len(part).to_bytes(8))
            hasher.update(part)
        self._value = (self._value + int.from_bytes(hasher.digest())) % _MODULUS

    def to_bytes(self) -> bytes:
        return self._value.to_bytes(_BYTES)


def recompute(db: apsw.Connection) -> bytes:
    """The sum over the tables as they are, 32 bytes. A sound store has the same in `meta.integrity`."""
    found = Sum()
    for artifact, artifact_revision in artifacts.every_revision(db):
        content = artifacts.revision_digest(artifact, artifact_revision)
        found.add("artifact_revisions", artifact.artifact_id, artifact_revision.revision_id, content)
    for claim, claim_revision in claims.every_revision(db):
        cited = claims.evidence(db, [claim_revision.row_id]).get(claim_revision.row_id, ())
        content = claims.revision_digest(claim, claim_revision, cited)
        found.add("claim_revisions", claim.claim_id, claim_revision.revision_id, content)
    for artifact_id, reason in db.execute(_FORGOTTEN):
        found.add("artifacts", artifact_id, "forgotten", reason.encode())
    for claim_id, reason in db.execute(_RETRACTED):
        found.add("claims", claim_id, "retracted", reason.encode())
    return found.to_bytes()


class Head(NamedTuple):
    """Where an entity stands: its current revision, how many it has, and its status."""

    revision_id: str
    revision_number: int
    revision_count: int
    status: str


EntityKey = tuple[str, str]
"""Entity type and id."""
_UNBORN = Head("", 0, 0, "")


def heads(db: apsw.Connection) -> Mapping[EntityKey, Head]:
    """Where every artifact and claim stands by its own row."""
    return {(entity_type, entity_id): Head(*head) for entity_type, entity_id, *head in db.execute(_HEADS)}


def replayed_heads(db: apsw.Connection) -> Mapping[EntityKey, Head]:
    """Where every artifact and claim stands by the audit events, replayed in order; equal to `heads` in a sound
    store (invariant W8, design §5.4). An event with a revision id added that revision; its payload has the status."""
    found: dict[EntityKey, Head] = {}
    for entity_type, entity_id, revision_id, status in db.execute(_EVENTS):
        key = (entity_type, entity_id)
        head = found.get(key, _UNBORN)
        if revision_id is not None:
            number = head.revision_number + 1
            head = Head(revision_id, number, number, status)
        found[key] = head._replace(status=status)
    return found

"""The independent model: what was acknowledged, what head covered, and what must be true of it at every step (W1–W8).

It shares nothing with writers and readers but the words of the design: heads are JSON, states are pages, and rows are
looked at with SQL of its own. Every violation is an `AssertionError` that begins with the invariant's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import orjson
from blake3 import blake3

from contradiction_rules import broken_rules
from memoree.database import integrity
from operations.bench import disagreements
from simulation.litestream import Change, Files, chain, database_bytes, file_ends
from simulation.loop import Process
from simulation.store import Bucket

_STATEMENTS = "SELECT statement, count(*) FROM claim_revisions GROUP BY statement"
_NUMBERS = """
    SELECT claim_id, sys_from FROM claims UNION ALL SELECT artifact_id, sys_from FROM artifacts
"""
_REVISIONS = """
    SELECT revision_id, row_id FROM claim_revisions UNION ALL SELECT revision_id, row_id FROM artifact_revisions
"""
_CITED = """
    SELECT r.body, e.start_byte, e.end_byte FROM claim_revisions c
    JOIN claim_evidence e ON e.claim_revision_row = c.row_id
    JOIN artifact_revisions r ON r.row_id = e.artifact_revision_row WHERE c.revision_id = ?
"""
_BLOBS = "SELECT DISTINCT blob_hash, size_bytes FROM artifact_revisions WHERE body IS NULL"
_EVENTS = "SELECT commit_seq, event_id, hlc FROM events ORDER BY commit_seq"
_META = "SELECT history, epoch, batch, commit_seq, hlc, hex(integrity) FROM meta"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """A write as its client knows it."""

    key: str
    commit_seq: int
    entity_id: str
    revision_id: str
    quoted: bytes | None = None


@dataclass(frozen=True, slots=True)
class State:
    """What a reader was shown: counters and every event."""

    history: int
    epoch: int
    batch: int
    commit_seq: int
    hlc: int
    integrity: str
    events: Sequence[tuple[int, str, int]]

    @classmethod
    def of(cls, db: apsw.Connection) -> State:
        return cls(*next(iter(db.execute(_META))), list(db.execute(_EVENTS)))


@dataclass(slots=True)
class Record:
    """Of one tenant."""

    head: Json | None = None
    owners: dict[int, tuple[str | None, Process]] = field(default_factory=dict)
    states: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    """By batch, as heads told: commit number, clock, integrity sum."""
    events: dict[int, str] = field(default_factory=dict)
    written: dict[str, Written] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    """Attempts whose messages left the queue."""
    kept: int = 0
    """Takeovers that began with commits no head had covered."""

    @property
    def commit_seq(self) -> int:
        return self.head["commit_seq"] if self.head is not None else 0


class Judge:
    """`scratch` is a directory for the states it looks into."""

    def __init__(self, bucket: Bucket, files: Files, scratch: Path) -> None:
        self._bucket, self._files, self._scratch = bucket, files, scratch
        self._records: dict[str, Record] = {}
        self._looked = 0
        bucket.on_write.append(self._stored)

    def record(self, tenant: str) -> Record:
        return self._records.setdefault(tenant, Record())

    # --- the store's side ---------------------------------------------------------------------------------------

    def _stored(self, key: str, before: bytes | None, body: bytes, by: Process) -> None:
        _, tenant, rest = key.split("/", 2) if key.startswith("tenants/") else ("", "", "")
        if rest == "head.json":
            self._head_moved(tenant, orjson.loads(body), by)
        elif rest.startswith("epochs/"):
            assert before is None, f"W4: {key} was written twice"
            head = self.record(tenant).head
            self.record(tenant).kept += head is not None and orjson.loads(body)["parent_batch"] > head["batch"]

    def _head_moved(self, tenant: str, head: Json, by: Process) -> None:
        """W2 and W4: one writer per epoch, one step per revision, nothing ever falls, and nothing is named that the
        store does not have."""
        record = self.record(tenant)
        last, record.head = record.head, head
        owner = record.owners.setdefault(head["epoch"], (head["owner"], by))
        assert owner == (head["owner"], by), f"W4: {owner} and {(head['owner'], by)} both moved head in one epoch"
        if last is not None:
            assert head["revision"] == last["revision"] + 1, f"W4: revision {head['revision']} after {last['revision']}"
            assert head["epoch"] - last["epoch"] in (0, 1), f"W4: epoch {head['epoch']} after {last['epoch']}"
            for counter in ("history", "batch", "commit_seq", "hlc"):
                assert last[counter] <= head[counter], f"W2: {counter} of head went back"
        if head["prefix"] is None:
            return
        state = (head["commit_seq"], head["hlc"], head["integrity"])
        assert record.states.setdefault(head["batch"], state) == state, f"W4: two states of batch {head['batch']}"
        of_prefix = int(head["prefix"][4:12])
        assert of_prefix <= head["epoch"], "W4: head names a prefix of the future"
        if last is not None and (last["prefix"], last["batch"]) != (head["prefix"], head["batch"]):
            assert of_prefix == head["epoch"], f"W4: epoch {head['epoch']} covers a batch of epoch {of_prefix}"
            self._is_there(tenant, head)

    def _is_there(self, tenant: str, head: Json) -> None:
        """W1, before it can be broken: head names only what a restore would bring."""
        ends = file_ends(self._bucket.keys(f"tenants/{tenant}/{head['prefix']}"))
        assert any(end >= head["txid"] for end in ends), f"W1: head names TXID {head['txid']}, the prefix ends {ends}"

    # --- the queue's side ---------------------------------------------------------------------------------------

    def taken(self, group: str, body: str) -> None:
        """A writer acknowledged the message: it will not be delivered again."""
        document = orjson.loads(body)
        self.record(group).taken.append(document.get("attempt_id") or document["parked"])

    # --- the client's side --------------------------------------------------------------------------------------

    def acknowledged(self, tenant: str, written: Written) -> None:
        """W1: covered when it is told, one number per write, and the same answer to every repeat."""
        record = self.record(tenant)
        assert written.commit_seq <= record.commit_seq, f"W1: {written} was acknowledged before head covered it"
        known = record.written.setdefault(written.key, written)
        assert known == written, f"W1: {written.key} was answered {known} and {written}"
        if known is written:
            same = [each for each in record.written.values() if each.commit_seq == written.commit_seq]
            assert len(same) == 1, f"W4: one number, two writes: {same}"

    def shown(self, tenant: str, state: State, *, least: int) -> None:
        """W3: what a reader was shown is covered, whole, not older than asked for, and of the one lineage."""
        record = self.record(tenant)
        head = record.head
        assert state.commit_seq >= least, f"W3: commit {state.commit_seq} was shown where {least} was asked for"
        if not state.commit_seq:
            return
        assert head is not None and head["prefix"] is not None, "W3: something was shown of a tenant without a head"
        assert state.history == head["history"], "W3: another history was shown"
        assert (state.batch, state.commit_seq) <= (head["batch"], head["commit_seq"]), (
            f"W3: batch {state.batch} was shown, head covers {head['batch']}"
        )
        named = (state.commit_seq, state.hlc, state.integrity.lower())
        known = record.states.get(state.batch)
        assert known is None or known == named, f"W3: batch {state.batch} of another lineage: {named}, not {known}"
        self._dense(record, state)

    def _dense(self, record: Record, state: State) -> None:
        """W2: numbers without a gap, one event for each, for all readers the same."""
        numbers = [number for number, _, _ in state.events]
        assert numbers == list(range(1, state.commit_seq + 1)), f"W2: {numbers} up to {state.commit_seq}"
        clocks = [clock for _, _, clock in state.events]
        assert all(earlier < later for earlier, later in pairwise(clocks)), "W2: the clock fell"
        for number, event_id, _ in state.events:
            assert record.events.setdefault(number, event_id) == event_id, f"W3: two different events {number}"

    # --- everything, once more ----------------------------------------------------------------------------------

    def audit(self, tenant: str, *, thorough: bool) -> None:
        """All of W1 to W8 over the state that head covers now."""
        record = self.record(tenant)
        if record.head is None or record.head["prefix"] is None:
            assert not record.written, f"W1: nothing is covered, and {record.written} was acknowledged"
            return
        db = self._covered(tenant, record.head)
        try:
            state = State.of(db)
            assert (state.batch, state.commit_seq) >= (record.head["batch"], record.head["commit_seq"]), (
                "W1: head covers more than there is"
            )
            assert state.epoch == int(record.head["prefix"][4:12]), "W3: head's prefix holds another epoch"
            self._dense(record, state)
            self._once(db, record)
            self._blobs(db, tenant)
            self._spans(db, record)
            self._decided(db, record)
            foreign = [each for name, other in self._records.items() if name != tenant for each in other.written]
            assert not [key for (key,) in db.execute("SELECT key FROM idempotency") if key in foreign], "W6"
            if thorough:
                assert integrity.recompute(db).hex().upper() == state.integrity, "W8: the sum is not that of the rows"
                assert disagreements(db) == [], "W8: the events, replayed, lead elsewhere"
                assert broken_rules(db) == [], "W8: conflict cases disagree with what they are about"
        finally:
            db.close()

    def _covered(self, tenant: str, head: Json) -> apsw.Connection:
        keys = self._bucket.keys(f"tenants/{tenant}/{head['prefix']}")
        reached = min((end for end in file_ends(keys) if end >= head["txid"]), default=None)
        assert reached is not None, f"W1: nothing restores to TXID {head['txid']}"
        found = Change({}, 0)
        for key in chain(keys, reached):
            body = self._bucket.body(key)
            assert body is not None
            found = found.then(self._files.changes[body])
        self._looked += 1
        path = self._scratch / f"judged-{self._looked}.sqlite3"
        path.write_bytes(database_bytes(found))
        return apsw.Connection(f"{path.as_uri()}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)

    def _once(self, db: apsw.Connection, record: Record) -> None:
        """W1: present exactly once, under the number that was told."""
        statements = dict(db.execute(_STATEMENTS))
        assert not [text for text, times in statements.items() if times > 1], "W1: a write took effect twice"
        numbers, revisions = dict(db.execute(_NUMBERS)), dict(db.execute(_REVISIONS))
        for written in record.written.values():
            assert written.entity_id in numbers, f"W1: {written} was acknowledged and is not there"
            assert revisions.get(written.revision_id) == written.commit_seq, f"W1: {written} is somewhere else"

    def _blobs(self, db: apsw.Connection, tenant: str) -> None:
        for digest, size in db.execute(_BLOBS):
            name = digest.hex()
            body = self._bucket.body(f"tenants/{tenant}/blobs/b3/{name[:2]}/{name}")
            assert body is not None, f"W5: blob {name} is missing"
            assert (len(body), blake3(body).digest()) == (size, digest), f"W5: blob {name} is damaged"

    def _spans(self, db: apsw.Connection, record: Record) -> None:
        for written in record.written.values():
            if written.quoted is not None:
                quoted = [body[start:end] for body, start, end in db.execute(_CITED, (written.revision_id,))]
                assert quoted == [written.quoted], f"W7: {written.key} cites {quoted}"

    def _decided(self, db: apsw.Connection, record: Record) -> None:
        """W1 without a client's help: what was taken from the queue is decided."""
        decided = {attempt_id for (attempt_id,) in db.execute("SELECT attempt_id FROM attempts")}
        lost = [attempt_id for attempt_id in record.taken if attempt_id not in decided]
        assert not lost, f"W1: {lost} left the queue undecided"

"""A tenant as a writer and Litestream would have left it in the store, recorded commit by commit in memory."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from memoree import clock, ids
from memoree.command import Command
from memoree.database import meta
from memoree.database.connection import open_writer
from memoree.database.schema import create_or_migrate
from memoree.operations.call import decode, validate
from memoree.process_directory import ProcessDirectory
from memoree.reader.environment import ReaderEnvironment
from memoree.replication import layout
from memoree.replication.head import Head
from memoree.replication.litestream import NotRestorable
from memoree.replication.ltx import LtxName, format_name, parse_name
from memoree.service import Request
from memoree.writer.group_commit import GroupCommitter
from memoree.writer.staging import ProvedBlobs
from operations.bench import FACTS
from replication.memory_store import MemoryStore
from replication.test_ltx import encode

TENANT = "t"
OWNER = "01M8PH26EJXJ6FX1M8AXJ6N993"
CONTEXT = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
PAGE_SIZE = 4096


class NoBlobs:
    def read(self, digest: bytes, size: int) -> bytes:
        raise NotImplementedError


class Recorder:
    """One reign: `commit` changes its database and uploads the change; `cover` moves head to it."""

    def __init__(
        self, store: MemoryStore, directory: Path, *, epoch: int = 1, history: int = 0, parent: Recorder | None = None
    ) -> None:
        self.store = store
        self.prefix = layout.epoch_prefix(epoch, OWNER)
        self.txid = 0
        self.states: dict[int, bytes] = {}
        self._path = directory / f"writer-{history}-{epoch}.sqlite3"
        if parent is not None:
            self._path.write_bytes(parent.states[parent.txid])
        self.db = open_writer(self._path, replicated=True)
        create_or_migrate(self.db)
        counters = meta.read(self.db)
        counters.epoch, counters.history = epoch, history
        meta.write(self.db, counters)
        self._committer = GroupCommitter(self.db, NoBlobs(), FACTS)
        self.upload()

    def close(self) -> None:
        self.db.close()

    def key(self, name: LtxName) -> str:
        return f"tenants/{TENANT}/{self.prefix}{format_name(name)}"

    def commit(self, *statements: str) -> None:
        """One batch, uploaded and not covered."""
        self._committer.commit([self._command(statement) for statement in statements], ProvedBlobs())
        self.upload()

    def write(self, *statements: str) -> None:
        self.commit(*statements)
        self.cover()

    def upload(self) -> None:
        """What changed since the last upload, as the next raw file; the first is the whole database."""
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        body = self._path.read_bytes()
        before = self.states.get(self.txid, b"")
        self.txid += 1
        self.states[self.txid] = body
        self.store.place(self.key(LtxName(0, self.txid, self.txid)), _encoded(before, body, self.txid, self.txid))

    def compact(self, first: int, last: int, level: int = 1) -> None:
        """Replace raw files by one of a higher level."""
        before = self.states.get(first - 1, b"")
        self.store.place(self.key(LtxName(level, first, last)), _encoded(before, self.states[last], first, last))
        for txid in range(first, last + 1):
            self.store.remove(self.key(LtxName(0, txid, txid)))

    def head(self, **changes: Any) -> Head:
        counters = meta.read(self.db)
        head = Head(
            write_id=ids.new_ulid(),
            revision=len(self.store.versions.get(f"tenants/{TENANT}/head.json", [])),
            history=counters.history,
            epoch=counters.epoch,
            owner=OWNER,
            released_at=None,
            prefix=self.prefix,
            txid=self.txid,
            batch=counters.batch,
            commit_seq=counters.commit_seq,
            hlc=counters.hlc,
            schema_version=counters.schema_version,
            integrity=counters.integrity.hex(),
            updated_at="",
        )
        return replace(head, **changes)

    def cover(self, **changes: Any) -> None:
        self.store.place(f"tenants/{TENANT}/head.json", self.head(**changes).to_bytes())

    def _command(self, statement: str) -> Command:
        history = meta.read(self.db).history
        call = request("claim.assert", {"claim_type": "fact", "statement": statement}).call
        return Command(ids.new_attempt_id(), TENANT, history, clock.milliseconds(clock.utc_now()), call)


def request(op: str, input: dict[str, Any], *, key: str | None = None) -> Request:
    body = {"request_id": "r", "op": op, "idempotency_key": key or ids.new_ulid(), "context": CONTEXT, "input": input}
    envelope = decode(json.dumps(body).encode())
    return Request(envelope, validate(envelope))


def _encoded(before: bytes, after: bytes, first: int, last: int) -> bytes:
    count = len(after) // PAGE_SIZE
    pages = [(number + 1, after[number * PAGE_SIZE : (number + 1) * PAGE_SIZE]) for number in range(count)]
    changed = [
        (number, page) for number, page in pages if before[(number - 1) * PAGE_SIZE : number * PAGE_SIZE] != page
    ]
    return encode(changed, page_size=PAGE_SIZE, commit_pages=count, txids=(first, last))


class Restores:
    """Stands in for `litestream restore`, which needs an S3 to read from; counts how often it was asked."""

    def __init__(self, store: MemoryStore) -> None:
        self.recorders: dict[str, Recorder] = {}
        self.count = 0
        self.store = store

    def know(self, recorder: Recorder) -> Recorder:
        self.recorders[f"tenants/{TENANT}/{recorder.prefix}".rstrip("/")] = recorder
        return recorder

    def child(self, database: Path, prefix: str) -> NoReturn:
        raise AssertionError("a reader replicates nothing")

    async def restore(self, prefix: str, txid: int, output: Path) -> None:
        self.count += 1
        recorder = self.recorders[prefix.rstrip("/")]
        names = [parse_name(key) for key in self.store.keys(f"tenants/{TENANT}/{recorder.prefix}")]
        if not any(name is not None and name.max_txid == txid for name in names):
            raise NotRestorable("no matching backup files available")
        await asyncio.to_thread(output.write_bytes, recorder.states[txid])


def environment(restores: Restores, directory: Path, *, staleness: float = 60.0) -> ReaderEnvironment:
    return ReaderEnvironment(
        store=restores.store,
        replicator=restores,
        directory=ProcessDirectory(directory),
        facts=FACTS,
        executor=ThreadPoolExecutor(2),
        staleness_seconds_max=staleness,
    )

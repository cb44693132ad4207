"""A store of its own for each test: real SQLite, real blobs in a directory, and the group committer between them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import orjson

from memoree import clock, ids
from memoree.command import Command
from memoree.database import integrity, meta
from memoree.database.attempts import Attempt
from memoree.database.connection import open_writer
from memoree.database.schema import create_or_migrate
from memoree.errors import MemoreeError
from memoree.objects.blobs import LocalBlobStore
from memoree.objects.filesystem import FilesystemStore
from memoree.operations.call import Call, decode, validate
from memoree.operations.execute import outcome_of, run_read
from memoree.operations.view import ServiceFacts, View
from memoree.verification import history, revisions
from memoree.verification.issue import Issue
from memoree.writer.group_commit import GroupCommitter

Json = dict[str, Any]

LAB: Json = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
FACTS = ServiceFacts(
    blob_store="filesystem",
    connections_max=7,
    authorization=False,
    pid=4711,
    running=True,
    lifecycle_owner="external",
)


class ManualClock:
    """A wall clock that moves only when a test says so."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 2, 20, 41, 7, 250_000, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        self.now += timedelta(**duration)


class Blobs:
    """The blobs of a directory as the operations see them; `root` is for tests that damage one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._store = LocalBlobStore(FilesystemStore(root), "local")

    def read(self, digest: bytes, size: int) -> bytes:
        return self._store.read(digest.hex(), size=size)

    def holds(self, digest: bytes) -> bool:
        return self._store.exists(digest.hex())

    def put(self, data: bytes) -> None:
        self._store.put(data)

    def path(self, digest: str) -> Path:
        (found,) = (path for path in self.root.rglob(digest) if path.is_file())
        return found


class Bench:
    """Sends requests the way an api does, straight to the group committer and to reads of the same database."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.blobs = Blobs(directory / "objects")
        self.db: apsw.Connection = open_writer(directory / "store.sqlite3", replicated=True)
        create_or_migrate(self.db)
        self.committer = GroupCommitter(self.db, self.blobs, FACTS, self.clock)
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self.db.close()

    def request(
        self,
        op: str,
        input: Mapping[str, Any] | None = None,
        *,
        context: Mapping[str, Any] | None = LAB,
        key: str | None = None,
    ) -> Call[Any]:
        """A validated request; mutations get a fresh key unless one is given."""
        number = next(self._numbers)
        envelope = {
            "request_id": f"req_{number}",
            "op": op,
            "idempotency_key": key or f"key/{number}",
            "context": context,
            "input": input or {},
        }
        return validate(decode(json.dumps(envelope, ensure_ascii=False).encode()))

    def commit(self, calls: Iterable[Call[Any]], *, upload: bool = True) -> Sequence[Attempt]:
        """One group commit. Content too large for its row is stored first, and travels without its bytes."""
        return self.committer.commit([self._command(call, upload) for call in calls], self.blobs).attempts

    def _command(self, call: Call[Any], upload: bool) -> Command:
        content = call.content
        if content is not None and not content.inline:
            if upload:
                assert content.data is not None
                self.blobs.put(content.data)
            call = replace(call, content=replace(content, data=None))
        return Command(ids.new_attempt_id(), "local", 0, clock.milliseconds(self.clock()), call)

    def write(self, op: str, input: Mapping[str, Any], **how: Any) -> Json:
        """The acknowledgement of one mutation. Raises its refusal."""
        (attempt,) = self.commit([self.request(op, input, **how)])
        return outcome_of(self.db, attempt).result

    def read(self, op: str, input: Mapping[str, Any] | None = None, **how: Any) -> Json:
        view = View(self.db, self.blobs, FACTS, meta.read(self.db), clock.stored(self.clock()))
        result: Json = orjson.loads(orjson.dumps(run_read(view, self.request(op, input, **how))))
        return result

    def put(self, body: str = "cone 6 reached at 21:40", **fields: Any) -> Json:
        return self.write("artifact.put", put_input(body, **fields))

    def revise(self, artifact: Json, body: str = "cone 6 reached at 21:52", **fields: Any) -> Json:
        wanted = {"artifact_id": artifact["artifact_id"], "if_revision": artifact["revision_id"], "content": text(body)}
        return self.write("artifact.revise", wanted | fields)

    def claim(self, statement: str = "Firing 12 reached cone 6.", **fields: Any) -> Json:
        return self.write("claim.assert", {"claim_type": "observation", "statement": statement} | fields)

    def revise_claim(self, claim: Json, statement: str = "It was cone 5.5.", **fields: Any) -> Json:
        wanted = {"claim_id": claim["claim_id"], "if_revision": claim["revision_id"], "statement": statement}
        return self.write("claim.revise", wanted | fields)

    def meta(self) -> meta.Meta:
        return meta.read(self.db)

    @contextmanager
    def nothing_but_a_record(self) -> Iterator[None]:
        """The block may leave one more idempotency record, counted in the integrity sum, and nothing else."""
        before = dump(self.db)
        yield
        after = dump(self.db)
        assert _counted_apart(after) == _counted_apart(before) + 1
        assert after == before
        assert integrity.recompute(self.db) == self.meta().integrity

    @contextmanager
    def refused_without_a_trace(self, code: str) -> Iterator[None]:
        """The block must be refused with `code`, and every table must be as it was."""
        before = dump(self.db)
        try:
            yield
        except MemoreeError as error:
            assert error.code == code, f"expected {code}, got {error.code}: {error.message}"
        else:
            raise AssertionError(f"it succeeded where {code} was expected")
        assert dump(self.db) == before


def _counted_apart(rows: dict[str, list[tuple[Any, ...]]]) -> int:
    """How many idempotency records there are; they and the sum that counts them are taken out."""
    rows["meta"] = [(history, epoch, commit_seq, erasing) for history, epoch, commit_seq, _, erasing in rows["meta"]]
    return len(rows.pop("idempotency"))


def disagreements(db: apsw.Connection) -> list[Issue]:
    """Where the audit events, replayed, lead to something else than the tables hold (invariant W8)."""
    return [*history.issues(db), *revisions.issues(db)]


def text(data: str) -> Json:
    return {"type": "text", "data": data}


def put_input(body: str = "cone 6 reached at 21:40", **fields: Any) -> Json:
    return {"kind": "log", "title": "Kiln firing 12", "content": text(body)} | fields


def dump(db: apsw.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, index tables included, except what each attempt leaves on purpose: its own row, and
    the batch and clock of the commit that decided it."""
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    rows = {
        table: sorted(db.execute(f'SELECT * FROM "{table}"'), key=repr)
        for table in tables
        if table not in ("attempts", "meta", "artifact_vocabulary", "claim_vocabulary")
    }
    rows["meta"] = list(db.execute("SELECT history, epoch, commit_seq, integrity, erasing FROM meta"))
    return rows

"""A store for retrieval tests: the real operations over real SQLite, one group commit per call."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from memoree import clock, ids
from memoree.command import Command
from memoree.database import meta
from memoree.database.connection import open_writer
from memoree.database.schema import create_or_migrate
from memoree.envelope import Envelope
from memoree.operations.call import Call, validate
from memoree.operations.execute import outcome_of, run_read
from memoree.operations.view import ServiceFacts, View
from memoree.writer.group_commit import GroupCommitter

Json = dict[str, Any]

HERE: Json = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
ELSEWHERE: Json = {"workspace_id": "wsp_lab", "project_id": "prj_glaze"}
FACTS = ServiceFacts("memory", 1, False, 1, True, "external")


class MemoryBlobs(dict[bytes, bytes]):
    """Blobs by digest. What becomes of lost or damaged ones is not this folder's subject."""

    def holds(self, digest: bytes) -> bool:
        return digest in self

    def read(self, digest: bytes, size: int) -> bytes:
        assert len(self[digest]) == size
        return self[digest]


class Store:
    """`now` moves only when a test moves it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.now = datetime(2026, 3, 5, 8, 0, tzinfo=UTC)
        self.blobs = MemoryBlobs()
        self.db = open_writer(directory / "store.sqlite3", replicated=True)
        create_or_migrate(self.db)
        self._committer = GroupCommitter(self.db, self.blobs, FACTS, lambda: self.now)
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self.db.close()

    def advance(self, **duration: float) -> None:
        self.now += timedelta(**duration)

    def write(self, op: str, input: Json, context: Json = HERE) -> Json:
        return self.write_many(op, [input], context)[0]

    def write_many(self, op: str, inputs: Iterable[Json], context: Json = HERE) -> list[Json]:
        """The acknowledgements of mutations in one group commit. Raises the first refusal."""
        calls = [self._call(op, input, context) for input in inputs]
        for call in calls:
            if call.content is not None and call.content.data is not None and not call.content.inline:
                self.blobs[call.content.digest] = call.content.data
        at_ms = clock.milliseconds(self.now)
        commands = [Command(ids.new_attempt_id(), "local", 0, at_ms, call) for call in calls]
        committed = self._committer.commit(commands, self.blobs)
        return [outcome_of(self.db, attempt).result for attempt in committed.attempts]

    def artifact(self, title: str, body: str | bytes, context: Json = HERE, **fields: Any) -> Json:
        return self.write("artifact.put", artifact_input(title, body, **fields), context)

    def claim(self, statement: str, context: Json = HERE, **fields: Any) -> Json:
        return self.write("claim.assert", claim_input(statement, **fields), context)

    def claims(self, statements: Iterable[str], context: Json = HERE) -> list[Json]:
        return self.write_many("claim.assert", map(claim_input, statements), context)

    def read_bytes(self, op: str, input: Json, context: Json = HERE) -> bytes:
        """The result as it is sent."""
        view = View(self.db, self.blobs, FACTS, meta.read(self.db), clock.stored(self.now))
        return orjson.dumps(run_read(view, self._call(op, input, context)))

    def read(self, op: str, input: Json, context: Json = HERE) -> Json:
        result: Json = orjson.loads(self.read_bytes(op, input, context))
        return result

    def search_bytes(self, query: str, context: Json = HERE, **input: Any) -> bytes:
        return self.read_bytes("search", {"query": query, **input}, context)

    def search(self, query: str, context: Json = HERE, **input: Any) -> Json:
        result: Json = orjson.loads(self.search_bytes(query, context, **input))
        return result

    def hits(self, query: str, context: Json = HERE, **input: Any) -> list[Json]:
        found: list[Json] = self.search(query, context, **input)["hits"]
        return found

    def excerpts(self, query: str, context: Json = HERE, **input: Any) -> list[str]:
        return [hit["excerpt"] for hit in self.hits(query, context, **input)]

    def qualified(self, query: str, context: Json = HERE, **input: Any) -> list[str]:
        """Excerpts of the hits that count as answers."""
        return [hit["excerpt"] for hit in self.hits(query, context, **input) if hit["ranking"]["qualified"]]

    def _call(self, op: str, input: Json, context: Json) -> Call[Any]:
        number = next(self._numbers)
        envelope = Envelope(
            request_id=f"req_{number}", op=op, idempotency_key=f"key_{number}", context=context, input=input
        )
        return validate(envelope)


def artifact_input(title: str, body: str | bytes, **fields: Any) -> Json:
    if isinstance(body, str):
        content = {"type": "text", "data": body}
    else:
        content = {"type": "base64", "data": base64.b64encode(body).decode()}
    return {"kind": "note", "title": title, "content": content, "provenance": {}, **fields}


def claim_input(statement: str, **fields: Any) -> Json:
    return {"claim_type": "fact", "statement": statement, **fields}

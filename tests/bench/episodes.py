"""Episodes in a data directory, stored by the product's own commands in transactions of the writer's size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from memoree import ids, limits
from memoree.assembly import embedded_facts
from memoree.clock import utc_now
from memoree.command import Command
from memoree.data_directory import DATABASE_NAME
from memoree.database.connection import open_writer
from memoree.database.schema import create_or_migrate
from memoree.embedded import LOCAL_TENANT
from memoree.envelope import Envelope
from memoree.operations.call import validate
from memoree.operations.episodes import INGEST
from memoree.service import Request, new_command
from memoree.writer.group_commit import GroupCommitter
from memoree.writer.staging import ProvedBlobs

from . import data

WORDS_PER_QUERY = 4
SAID_EVERY = 20_000


class _NoBlobs:
    def read(self, digest: bytes, size: int) -> bytes:
        raise NotImplementedError


def fill(directory: Path, episodes: int, texts: Iterator[str], say: Callable[[str], None]) -> None:
    """Into a new directory."""
    directory.mkdir(parents=True)
    with closing(open_writer(directory / DATABASE_NAME, replicated=True)) as db:
        create_or_migrate(db)
        committer = GroupCommitter(db, _NoBlobs(), embedded_facts(running=False))
        commands = (_stored(text, number) for number, text in enumerate(islice(texts, episodes)))
        done = 0
        while some := list(islice(commands, limits.BATCH_COMMANDS_MAX)):
            committed = committer.commit(some, ProvedBlobs())
            assert all(attempt.status == "applied" for attempt in committed.attempts)
            done += len(some)
            if done % SAID_EVERY == 0:
                say(f"filled {done} episodes")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def request(operation: str, input: Mapping[str, Any]) -> Request:
    """As the routes of MemoryProtocol make one."""
    envelope = Envelope(
        request_id="req_bench",
        op=operation,
        idempotency_key=ids.new_ulid(),
        context=data.CONTEXT,
        context_source="explicit",
        input=dict(input),
    )
    return Request(envelope, validate(envelope))


def queries(number: int) -> list[str]:
    """A few words each of one of the first documents."""
    words = (document.body.rstrip(".").split() for document in data.documents(number))
    return [" ".join(each[:: max(1, len(each) // WORDS_PER_QUERY)][:WORDS_PER_QUERY]) for each in words]


def _stored(text: str, number: int) -> Command:
    content = {"type": "text", "data": text}
    asked = request(INGEST, {"source": f"bench:{number}", "content": content, "metadata": {}, "t_ref": None})
    return new_command(LOCAL_TENANT, asked.call, history=0, clock_now=utc_now)

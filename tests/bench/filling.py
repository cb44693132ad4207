"""A tenant full of claims, made by the real queue and writer, and timed against the bare loop of `bare_sqlite`.

Messages are built before the clock starts: that is an api's work, measured elsewhere. Timed is from the first send to
the head that covers the last claim. Rounds of the product and of the floor alternate, so that both meet the same sizes
and the same machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memoree.clock import utc_now
from memoree.command import Command, to_message
from memoree.objects.s3 import S3Store
from memoree.operations.call import decode, validate
from memoree.queue import OutgoingMessage
from memoree.queue.sqlite import SqliteQueue
from memoree.replication import layout
from memoree.replication.head import Head, HeadFile
from memoree.service import new_command

from . import data
from .bare_sqlite import BareSqlite
from .stack import Stack
from .wire import Caller, Source, assert_claim, put_source

ROUND_CLAIMS = 10_000
SEND_MESSAGES = 200
COVERED_POLL_SECONDS = 0.01
COVERED_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Filled:
    """The full tenant: how fast it was filled, how fast a bare loop was, and where head stands."""

    claims: int
    claims_per_second: float
    bare_claims_per_second: float
    head: Head


async def fill(
    stack: Stack, store: S3Store, tenant: str, claims: int, directory: Path, say: Callable[[str], None]
) -> Filled:
    head_file = HeadFile(store, layout.tenant_prefix(tenant))
    bare = BareSqlite(directory)
    queue = SqliteQueue(stack.queue_path)
    try:
        async with await stack.caller(tenant) as caller:
            stored = [await _put(caller, text) for text in data.sources()]
        copied = put_bare(bare, tenant)
        seconds = 0.0
        for done, statements in _rounds(claims):
            say(f"filling: {done} of {claims} claims")
            outgoing = _messages(tenant, statements, stored)
            seconds += await _timed_writes(queue, head_file, outgoing)
            bare.insert([command(tenant, assert_claim(each, copied[each.source]))[0] for each in statements])
        return Filled(claims, claims / seconds, bare.claims / bare.seconds, await _head(head_file))
    finally:
        await queue.close()
        bare.close()


async def _put(caller: Caller, text: str) -> Source:
    result = (await caller.call(put_source(text)))["result"]
    return Source(result["artifact_id"], result["revision_id"])


def put_bare(bare: BareSqlite, tenant: str) -> list[Source]:
    """The same documents in the bare databases, in order."""
    bare.prepare([command(tenant, put_source(text))[0] for text in data.sources()])
    rows = bare.recorder.execute(
        "SELECT a.artifact_id, r.revision_id FROM artifacts a JOIN artifact_revisions r ON r.row_id = a.head_row"
        " ORDER BY a.row_id"
    )
    return [Source(*map(str, row)) for row in rows]


def _rounds(claims: int) -> Iterable[tuple[int, Sequence[data.Statement]]]:
    statements = data.statements(claims)
    for done in range(0, claims, ROUND_CLAIMS):
        yield done, [next(statements) for _ in range(min(ROUND_CLAIMS, claims - done))]


def _messages(tenant: str, statements: Sequence[data.Statement], sources: Sequence[Source]) -> list[OutgoingMessage]:
    messages = []
    for statement in statements:
        built, body = command(tenant, assert_claim(statement, sources[statement.source]))
        messages.append(OutgoingMessage(body, group=tenant, dedup_id=built.attempt_id))
    return messages


def command(tenant: str, body: bytes) -> tuple[Command, str]:
    """What an api makes of a request: the command, and the message it sends."""
    envelope = decode(body)
    built = new_command(tenant, validate(envelope), history=0, clock_now=utc_now)
    return built, to_message(built, envelope).decode()


async def _timed_writes(queue: SqliteQueue, head_file: HeadFile, messages: Sequence[OutgoingMessage]) -> float:
    """Seconds from the first send until head covers the last message."""
    target = (await _head(head_file)).commit_seq + len(messages)
    began = time.perf_counter()
    for first in range(0, len(messages), SEND_MESSAGES):
        for sent in await queue.send_batch(messages[first : first + SEND_MESSAGES]):
            if isinstance(sent, Exception):
                raise sent
    async with asyncio.timeout(COVERED_SECONDS_MAX):
        while (await _head(head_file)).commit_seq < target:  # noqa: ASYNC110 - another process moves it
            await asyncio.sleep(COVERED_POLL_SECONDS)
    return time.perf_counter() - began


async def _head(head_file: HeadFile) -> Head:
    reading = await head_file.read()
    assert reading is not None, "the tenant was written to"
    return reading.head

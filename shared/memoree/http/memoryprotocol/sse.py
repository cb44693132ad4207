"""Hits as a stream of server-sent events (MemoryProtocol §6.5).

What is found within a while is sent at once, and what goes wrong until then is an ordinary answer. After that the
stream begins with comments, which keep the connection open; should the work fail, it ends with the event `error`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final

import orjson
from starlette.types import Scope, Send

from memoree.errors import MemoreeError
from memoree.http.answers import SECURITY_HEADERS, Answer, HeaderList, header_values
from memoree.http.memoryprotocol.refusals import Refusal
from memoree.http.observation import CODE_OK, observation

EVENT_STREAM: Final = b"text/event-stream"
KEEP_ALIVE_SECONDS = 15.0
"""Of silence, before and between comments."""
_KEEP_ALIVE = b": waiting\n\n"
_DONE = b"event: done\ndata: {}\n\n"
_HEADERS: HeaderList = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))

Hits = Iterable[Mapping[str, Any]]


def is_wanted(scope: Scope) -> bool:
    """Whether `Accept` has the name of the type, wherever and with whatever weight."""
    return any(EVENT_STREAM in accepted.lower() for accepted in header_values(scope, b"accept"))


async def streamed(
    scope: Scope, send: Send, work: Coroutine[Any, Any, tuple[Hits, HeaderList]], headers: HeaderList
) -> Answer | None:
    """The whole answer where the hits are there in time; otherwise it is sent here, with `headers`. Raises what the
    work raises before the stream has begun."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait((working,), timeout=KEEP_ALIVE_SECONDS)
        if working.done():
            hits, found = working.result()
            return Answer(200, events(hits), _HEADERS + found, EVENT_STREAM)
        await _begin(send, headers)
        while not working.done():
            await _send(send, _KEEP_ALIVE)
            await asyncio.wait((working,), timeout=KEEP_ALIVE_SECONDS)
        await _send(send, _outcome(scope, working), more=False)
        return None
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def events(hits: Hits) -> bytes:
    """One `hit` for each, in their order, then `done`."""
    return b"".join([*(b"event: hit\ndata: %s\n\n" % orjson.dumps(hit) for hit in hits), _DONE])


def _outcome(scope: Scope, working: asyncio.Future[tuple[Hits, HeaderList]]) -> bytes:
    """The events of work that took its time, which may have been refused."""
    try:
        hits, _ = working.result()
    except (MemoreeError, Refusal) as error:
        refused = Refusal.of_any(error)
        observation(scope).code = refused.code
        return b"event: error\ndata: %s\n\n" % orjson.dumps(refused.document)
    observation(scope).code = CODE_OK
    return events(hits)


async def _begin(send: Send, headers: HeaderList) -> None:
    own = {name for name, _ in _HEADERS}
    security = (each for each in SECURITY_HEADERS if each[0] not in own)
    start = [(b"content-type", EVENT_STREAM), *security, *_HEADERS, *headers]
    await send({"type": "http.response.start", "status": 200, "headers": start})


async def _send(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})

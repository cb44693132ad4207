"""`POST /v1/bulk`: NDJSON of request envelopes in, NDJSON of response envelopes out, line for line.

Answers keep the order of the lines. Mutations of one stream run together, so that the writer gets batches; a read
begins once every line before it has been answered, and so sees what they wrote. Memory is bounded at every step: lines
in flight, bytes in flight, answers unread. Each line is admitted like a request of its own and spends a token of the
tenant's rate; where there is none, the stream waits instead of refusing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from memoree import limits
from memoree.envelope import REQUEST_ID_UNREADABLE, encode
from memoree.errors import Code, MemoreeError, invalid
from memoree.http.answers import SECURITY_HEADERS, HeaderList, HttpRefusal, envelope_answer, header
from memoree.http.body import NDJSON_TYPES, ClientDisconnected, check_body_type, send_answer
from memoree.http.calls import Asked, Calls, code_of
from memoree.http.gate import Admission, Gate
from memoree.http.lines import LineCutter
from memoree.http.metrics import Metrics
from memoree.http.observation import CODE_OK, Observation, observation
from memoree.http.spool import Spool
from memoree.service import Reply, refusal

NDJSON = b"application/x-ndjson"
_CLOSE: HeaderList = ((b"connection", b"close"),)
"""A stream may end before its request does; what then is left of the request must not be taken for the next one."""


class BulkEndpoint:
    """Order of work: bearer → rate → headers → room for one more stream; then line by line. Until the first answer a
    refusal has a status of its own; from then on the status is 200 and every line's envelope speaks for itself."""

    def __init__(self, calls: Calls, gate: Gate, metrics: Metrics) -> None:
        self._calls = calls
        self._gate = gate
        self._metrics = metrics
        self._streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = observation(scope)
        headers: HeaderList = ()
        try:
            headers = self._gate.admit(scope).headers
            asked = _asked(scope)
            if self._streams >= limits.BULK_STREAMS_MAX:
                raise MemoreeError(Code.TRANSPORT_ERROR, "too many bulk requests are being served; nothing was stored")
        except (MemoreeError, HttpRefusal) as error:
            refused = error if isinstance(error, HttpRefusal) else HttpRefusal(error, headers=headers)
            seen.code = refused.error.code
            await send_answer(envelope_answer(scope, refused.reply(), refused.headers), scope, receive, send)
            return
        self._streams += 1
        stream = _Stream(self._calls, self._gate, self._metrics, scope, asked)
        try:
            await stream.run(receive, send, (*SECURITY_HEADERS, *headers, *asked.applied, *_CLOSE))
            seen.code = CODE_OK
        finally:
            self._streams -= 1


@dataclass(frozen=True, slots=True)
class _Line:
    """One line under way: its reply, or the task that will have it."""

    reply: Reply | asyncio.Task[Reply]
    size: int
    seen: Observation


class _Stream:
    """One bulk request: three tasks in a row, each of which waits while the next has enough to do."""

    def __init__(self, calls: Calls, gate: Gate, metrics: Metrics, scope: Scope, asked: Asked) -> None:
        self._calls = calls
        self._gate = gate
        self._metrics = metrics
        self._scope = scope
        self._asked = asked
        self._lines: asyncio.Queue[_Line | None] = asyncio.Queue(limits.BULK_LINES_IN_FLIGHT_MAX)
        self._bytes_in_flight = 0
        self._room = asyncio.Condition()
        self._spool = Spool()

    async def run(self, receive: Receive, send: Send, headers: HeaderList) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                taking = tasks.create_task(self._take(receive, tasks))
                tasks.create_task(self._collect())
                await self._send(send, headers)
                taking.cancel()
        except* ClientDisconnected:
            pass  # what was under way has been cancelled, and there is nobody to answer
        finally:
            self._spool.close()

    # --- lines in -----------------------------------------------------------------------------------------------

    async def _take(self, receive: Receive, tasks: asyncio.TaskGroup) -> None:
        cutter = LineCutter(limits.FRAME_BYTES_MAX)
        try:
            async for chunk in _chunks(receive):
                for line in cutter.feed(chunk):
                    await self._accept(line, tasks)
            for line in cutter.end():
                await self._accept(line, tasks)
        except MemoreeError as error:
            await self._lines.put(_refused(error, 0, _unread()))
        await self._lines.put(None)
        while (await receive())["type"] != "http.disconnect":
            pass  # what comes after the end is nobody's
        raise ClientDisconnected

    async def _accept(self, line: bytes | None, tasks: asyncio.TaskGroup) -> None:
        """Start a line's work, once there is room for it. Blank lines mean nothing."""
        if line is not None and not line.strip():
            return
        size, seen = len(line or b""), _unread()
        async with self._room:
            await self._room.wait_for(lambda: self._has_room(size))
            self._bytes_in_flight += size
        try:
            admission = await self._admitted()
            if line is None:
                message = f"the line is larger than the limit of {limits.FRAME_BYTES_MAX} bytes"
                raise MemoreeError(Code.CONTENT_TOO_LARGE, message)
            request = await self._calls.request(admission, line, seen)
        except MemoreeError as error:
            await self._lines.put(_refused(error, size, seen))
            return
        if not request.call.operation.mutating:
            await self._lines.join()
        working = tasks.create_task(self._calls.reply(admission, request, self._asked))
        await self._lines.put(_Line(working, size, seen))

    def _has_room(self, size: int) -> bool:
        return not self._bytes_in_flight or self._bytes_in_flight + size <= limits.BULK_BYTES_IN_FLIGHT_MAX

    async def _admitted(self) -> Admission:
        """The caller as the tokens file knows it now, once the tenant's rate allows one more line.
        Raises `UNAUTHENTICATED`."""
        while True:
            try:
                return self._gate.admit(self._scope)
            except HttpRefusal as refused:
                if refused.error.code is not Code.RATE_LIMITED:
                    raise refused.error from refused
                assert refused.error.retry_after_seconds is not None, "the limiter says when to come back"
                await asyncio.sleep(refused.error.retry_after_seconds)

    # --- answers out --------------------------------------------------------------------------------------------

    async def _collect(self) -> None:
        while (line := await self._lines.get()) is not None:
            reply = line.reply if isinstance(line.reply, Reply) else await line.reply
            await self._spool.put(encode(reply.envelope) + b"\n")
            self._metrics.bulk_lines.labels(line.seen.op, code_of(reply)).inc()
            async with self._room:
                self._bytes_in_flight -= line.size
                self._room.notify_all()
            self._lines.task_done()
        await self._spool.end()

    async def _send(self, send: Send, headers: HeaderList) -> None:
        """The response begins with the first answer: a client that waits for `100 Continue` is not confused."""
        answers = await self._spool.get()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", NDJSON), *headers]})
        while answers:
            await _give(send, answers, more=True)
            answers = await self._spool.get()
        await _give(send, b"", more=False)


async def _give(send: Send, body: bytes, *, more: bool) -> None:
    """Raises `ClientDisconnected` when the client does not make room for it."""
    try:
        async with asyncio.timeout(limits.BULK_IDLE_SECONDS_MAX):
            await send({"type": "http.response.body", "body": body, "more_body": more})
    except TimeoutError:
        raise ClientDisconnected from None


def _asked(scope: Scope) -> Asked:
    """Raises `INVALID_REQUEST`, and a refusal with 415."""
    check_body_type(scope, NDJSON_TYPES)
    if header(scope, b"idempotency-key") is not None:
        invalid("each line brings its own idempotency_key; one Idempotency-Key header cannot stand for them")
    return Asked.of(scope)


def _unread() -> Observation:
    return Observation(request_id=REQUEST_ID_UNREADABLE)


def _refused(error: MemoreeError, size: int, seen: Observation) -> _Line:
    return _Line(refusal(seen.request_id, error), size, seen)


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    """The body as it comes. Raises `ClientDisconnected`, and `TRANSPORT_ERROR` when nothing comes for too long."""
    while True:
        try:
            async with asyncio.timeout(limits.BULK_IDLE_SECONDS_MAX):
                message = await receive()
        except TimeoutError:
            seconds = f"{limits.BULK_IDLE_SECONDS_MAX:g} s"
            raise MemoreeError(Code.TRANSPORT_ERROR, f"no line came for {seconds}; what follows is not read") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return

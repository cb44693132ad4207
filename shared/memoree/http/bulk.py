"""`POST /v1/bulk`: NDJSON of request envelopes in, NDJSON of response envelopes out, line for line.

Answers keep the order of the lines. Mutations of one stream run together, so that the writer gets batches; a read
begins once every line before it has been answered, and so sees what they wrote. Memory is bounded at every step: lines
in flight, bytes in flight, answers unread. Each line is admitted like a request of its own and spends a token of the
tenant's rate; where there is none, the stream waits instead of refusing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from starlette.types import Message, Receive, Scope, Send

from memoree import limits
from memoree.envelope import REQUEST_ID_UNREADABLE, encode
from memoree.errors import Code, MemoreeError, invalid
from memoree.http.answers import SECURITY_HEADERS, HeaderList, HttpRefusal, envelope_answer, header
from memoree.http.body import NDJSON_TYPES, ClientDisconnected, check_body_type, disconnected, send_answer
from memoree.http.calls import Asked, Calls, code_of
from memoree.http.gate import Admission, Gate
from memoree.http.idle import IdleTimer
from memoree.http.lines import LineCutter
from memoree.http.metrics import Metrics
from memoree.http.observation import CODE_OK, Observation, observation
from memoree.http.places import Places
from memoree.http.spool import Spool
from memoree.service import Reply, refusal

NDJSON = b"application/x-ndjson"
_CLOSE: HeaderList = ((b"connection", b"close"),)
"""A stream may end before its request does; what then is left of the request must not be taken for the next one."""


class BulkEndpoint:
    """Order of work: bearer → rate → headers → room for one more stream; then line by line. Until the first answer a
    refusal has a status of its own; from then on the status is 200 and every line's envelope speaks for itself."""

    def __init__(self, calls: Calls, gate: Gate, metrics: Metrics, draining: asyncio.Event) -> None:
        self._calls = calls
        self._gate = gate
        self._metrics = metrics
        self._draining = draining
        self._places = Places("bulk requests")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = observation(scope)
        headers: HeaderList = ()
        with ExitStack() as place:
            try:
                admission = self._gate.admit(scope)
                headers = admission.headers
                asked = _asked(scope)
                place.enter_context(self._places.held(admission.principal.tenant, limits.BULK_STREAMS_MAX))
            except (MemoreeError, HttpRefusal) as error:
                refused = error if isinstance(error, HttpRefusal) else HttpRefusal(error, headers=headers)
                seen.code = refused.error.code
                await send_answer(envelope_answer(scope, refused.reply(), refused.headers), scope, receive, send)
                return
            stream = _Stream(self._calls, self._gate, self._metrics, scope, asked, self._draining)
            await stream.run(receive, send, (*SECURITY_HEADERS, *headers, *asked.applied, *_CLOSE))
            seen.code = CODE_OK


@dataclass(frozen=True, slots=True)
class _Line:
    """One line under way: its reply, or the task that will have it."""

    reply: Reply | asyncio.Task[Reply]
    size: int
    seen: Observation


class _Stream:
    """One bulk request: three tasks in a row, each of which waits while the next has enough to do."""

    def __init__(
        self, calls: Calls, gate: Gate, metrics: Metrics, scope: Scope, asked: Asked, draining: asyncio.Event
    ) -> None:
        self._calls = calls
        self._gate = gate
        self._metrics = metrics
        self._scope = scope
        self._asked = asked
        self._draining = draining
        self._lines: asyncio.Queue[_Line | None] = asyncio.Queue(limits.BULK_LINES_IN_FLIGHT_MAX)
        self._bytes_in_flight = 0
        self._room = asyncio.Condition()
        self._spool = Spool()
        self._at_work = 0
        """Waits for the service or for the tenant's rate: the client can do nothing about them."""
        self._idle = IdleTimer(limits.BULK_IDLE_SECONDS_MAX, busy=lambda: self._at_work > 0)

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
            async for chunk in self._chunks(receive):
                for line in cutter.feed(chunk):
                    await self._accept(line, tasks)
                while cutter.blank_bytes >= limits.BULK_BLANK_BYTES_PER_TOKEN:
                    cutter.blank_bytes -= limits.BULK_BLANK_BYTES_PER_TOKEN
                    await self._admitted()
            for line in cutter.end():
                await self._accept(line, tasks)
        except MemoreeError as error:
            await self._lines.put(_refused(error, 0, _unread()))
        await self._lines.put(None)
        await disconnected(receive)
        raise ClientDisconnected

    async def _chunks(self, receive: Receive) -> AsyncIterator[bytes]:
        """The body as it comes. Raises `ClientDisconnected`, and `TRANSPORT_ERROR` when the client falls silent or the
        server is stopping."""
        more = True
        while more:
            try:
                message = await self._idle.wait_for(self._received(receive))
            except TimeoutError:
                silence = f"nothing was sent or read for {limits.BULK_IDLE_SECONDS_MAX:g} s; what follows is not read"
                raise MemoreeError(Code.TRANSPORT_ERROR, silence) from None
            if message is None:
                raise MemoreeError(Code.TRANSPORT_ERROR, "the server is stopping; what follows is not read")
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            yield message.get("body", b"")
            more = message.get("more_body", False)

    async def _received(self, receive: Receive) -> Message | None:
        """What comes next, `None` when the server stops first."""
        receiving = asyncio.ensure_future(receive())
        stopping = asyncio.create_task(self._draining.wait())
        try:
            await asyncio.wait((receiving, stopping), return_when=asyncio.FIRST_COMPLETED)
            return None if stopping.done() else receiving.result()
        finally:
            receiving.cancel()
            stopping.cancel()

    async def _accept(self, line: bytes | None, tasks: asyncio.TaskGroup) -> None:
        """Start a line's work, once there is room for it."""
        await asyncio.sleep(0)  # other requests have their turn, however many lines have come at once
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
                with self._working():
                    await asyncio.sleep(refused.error.retry_after_seconds)

    @contextmanager
    def _working(self) -> Iterator[None]:
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1
            self._idle.moved()

    # --- answers out --------------------------------------------------------------------------------------------

    async def _collect(self) -> None:
        while (line := await self._lines.get()) is not None:
            reply = line.reply if isinstance(line.reply, Reply) else await self._worked(line.reply)
            await self._spool.put(encode(reply.envelope) + b"\n")
            self._metrics.bulk_lines.labels(line.seen.op, code_of(reply)).inc()
            async with self._room:
                self._bytes_in_flight -= line.size
                self._room.notify_all()
            self._lines.task_done()
        await self._spool.end()

    async def _worked(self, reply: asyncio.Task[Reply]) -> Reply:
        with self._working():
            return await reply

    async def _send(self, send: Send, headers: HeaderList) -> None:
        """The response begins with the first answer: a client that waits for `100 Continue` is not confused."""
        answers = await self._spool.get()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", NDJSON), *headers]})
        while answers:
            for at in range(0, len(answers), limits.STREAM_PIECE_BYTES):
                await self._give(send, answers[at : at + limits.STREAM_PIECE_BYTES], more=True)
            answers = await self._spool.get()
        await self._give(send, b"", more=False)

    async def _give(self, send: Send, body: bytes, *, more: bool) -> None:
        """Raises `ClientDisconnected` when the client neither makes room for it nor does anything else."""
        try:
            await self._idle.wait_for(_sent(send, {"type": "http.response.body", "body": body, "more_body": more}))
        except TimeoutError:
            raise ClientDisconnected from None


async def _sent(send: Send, message: Message) -> None:
    await send(message)


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

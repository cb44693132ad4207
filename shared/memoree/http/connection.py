"""uvicorn's HTTP protocol, with bounds on the one part of a request an application never sees: its head."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import orjson
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

CONNECTIONS_MAX = 2048
HEAD_SECONDS_MAX = 10.0
HEAD_BYTES_MAX = 64 * 1024
PIPELINED_REQUESTS_MAX = 64
FLUSH_SECONDS_MAX = 60.0
"""For the last bytes of a connection that is being closed, whose client may have stopped reading."""


class Unchunked:
    """An answer of unknown length for a client of HTTP/1.0, which knows no chunks: it ends with the connection (RFC
    9112 §6.1, §6.3). uvicorn (0.54) would send it in chunks."""

    def __init__(self, app: ASGI3Application, cycle: RequestResponseCycle) -> None:
        self._app = app
        self._cycle = cycle
        self._unframed = False

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        await self._app(scope, receive, self._send)

    async def _send(self, message: ASGISendEvent) -> None:
        cycle = self._cycle
        if message["type"] == "http.response.start":
            if all(name.lower() != b"content-length" for name, _ in message.get("headers", ())):
                cycle.chunked_encoding = False
                self._unframed = True
        elif message["type"] == "http.response.body" and self._unframed:
            cycle.expected_content_length = len(message.get("body", b""))
        await cycle.send(message)


class BoundedHttpProtocol(HttpToolsProtocol):
    """Closes a connection whose request line and headers take too long or too many bytes.

    uvicorn (0.54) has a timeout for idle kept-alive connections only: a client that sends its head one byte at a
    time, or never, keeps a connection for ever, and the parser buffers a header of any length. So does one that stops
    reading.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_awaited = True
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
            return
        self._arm_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        awaited_before = self._head_awaited
        super().data_received(data)
        if not self._head_awaited or self.transport.is_closing():
            return
        self._head_bytes = self._head_bytes + len(data) if awaited_before else 0
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the headers exceed {HEAD_BYTES_MAX} bytes")
        elif self._head_timer is None:
            self._arm_head_timer()

    def on_headers_complete(self) -> None:
        self._head_awaited = False
        self._head_bytes = 0
        self._disarm_head_timer()
        if len(self.pipeline) >= PIPELINED_REQUESTS_MAX:
            self.transport.abort()
            return
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        framed = Unchunked(app, cycle) if cycle.scope["http_version"] == "1.0" else app
        super()._start_asgi_task(cycle, self._watched(framed))

    def _watched(self, app: ASGI3Application) -> ASGI3Application:
        async def watched(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
            try:
                await app(scope, receive, send)
            finally:
                self.loop.call_soon(self._bound_the_flush)  # by then uvicorn has closed what it is going to close

        return watched

    def _bound_the_flush(self) -> None:
        """A closed transport waits for its client to take what is buffered, for ever if nobody reads (uvicorn 0.54)."""
        if self.transport.is_closing():
            self.loop.call_later(FLUSH_SECONDS_MAX, self._abort)

    def _abort(self) -> None:
        self.transport.abort()

    def on_response_complete(self) -> None:
        if not self.pipeline:
            self._head_awaited = True
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def _arm_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self._head_is_late)

    def _disarm_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the headers did not arrive within {HEAD_SECONDS_MAX:g} s")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        body = orjson.dumps({"error": status.phrase.lower().replace(" ", "_"), "message": message})
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()

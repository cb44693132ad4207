"""Standard input and output as transport: one client, which started this process."""

from __future__ import annotations

import contextvars
from typing import Any

import anyio
import mcp_types as types
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from memoree.mcp.sdk import INSTRUCTIONS, OKF_INSTRUCTIONS, CallerOf, sdk_server

DRAIN_SECONDS_MAX = 60.0
"""For what was asked before the input ended: a client may close it and still read."""

Read = Any
"""The SDK's `ReadStream[SessionMessage | Exception]`, which it does not export."""
Write = Any


async def serve(caller_of: CallerOf, *, profile: str) -> None:
    """Until standard input ends and everything that was asked is answered."""
    server = sdk_server(
        caller_of, lambda _: profile, instructions=OKF_INSTRUCTIONS if profile == "okf" else INSTRUCTIONS
    )
    async with stdio_server() as (read, write):
        pending = _Pending()
        incoming, outgoing = _Incoming(read, write, pending), _Outgoing(write, pending)
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Pending:
    """Requests that are not answered yet."""

    def __init__(self) -> None:
        self._ids: set[types.RequestId] = set()
        self._changed = anyio.Event()

    def came(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._ids.add(message.id)
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settled((message.params or {}).get("requestId"))

    def went(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._settled(message.id)

    def _settled(self, request_id: object) -> None:
        self._ids.discard(request_id)
        self._changed.set()

    async def drained(self) -> None:
        with anyio.move_on_after(DRAIN_SECONDS_MAX):
            while self._ids:
                self._changed = anyio.Event()
                await self._changed.wait()


class _Incoming:
    """The read side. What is no message is answered here, because the SDK drops it silently; and the end of the input
    comes to the SDK, which gives up on all that is under way by then, when nothing is."""

    def __init__(self, read: Read, write: Write, pending: _Pending) -> None:
        self._read = read
        self._write = write
        self._pending = pending

    @property
    def last_context(self) -> contextvars.Context | None:
        return getattr(self._read, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while True:
            try:
                item = await self._read.receive()
            except anyio.EndOfStream:
                await self._pending.drained()
                raise
            if isinstance(item, SessionMessage):
                self._pending.came(item.message)
                return item
            await self._write.send(SessionMessage(_unreadable(item)))

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._read.aclose()

    async def __aenter__(self) -> _Incoming:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Outgoing:
    """The write side."""

    def __init__(self, write: Write, pending: _Pending) -> None:
        self._write = write
        self._pending = pending

    async def send(self, item: SessionMessage) -> None:
        await self._write.send(item)
        self._pending.went(item.message)

    async def aclose(self) -> None:
        await self._write.aclose()

    async def __aenter__(self) -> _Outgoing:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _unreadable(error: Exception) -> types.JSONRPCError:
    is_no_json = isinstance(error, ValidationError) and error.errors()[0]["type"] == "json_invalid"
    if is_no_json:
        told = types.ErrorData(code=types.PARSE_ERROR, message="the line is no JSON")
    else:
        told = types.ErrorData(code=types.INVALID_REQUEST, message="the line is no JSON-RPC 2.0 message")
    return types.JSONRPCError(jsonrpc="2.0", id=None, error=told)

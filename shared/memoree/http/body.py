"""Reading a request body within bounds: bytes, seconds, and bytes of all requests together.

A refused body is never buffered. The refusal is sent at once, then a bounded rest of the body is read and thrown
away, since closing with unread bytes makes the peer's kernel discard the answer (RFC 9112 §9.6).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

from memoree import limits
from memoree.errors import Code, MemoreeError, invalid
from memoree.http.answers import Answer, HttpRefusal, header, header_values
from memoree.http.observation import observation

BODY_SECONDS_MAX = 30.0
BODIES_BYTES_MAX = 256 * limits.MIB
"""Bodies held by one process at a time; a request over it is answered 503 before its body is read further."""
UNREAD_BYTES_IGNORED = 64 * limits.KIB
"""An unread body of at most this declared size is left to the server, and the connection stays open."""
DRAIN_BYTES_MAX = 32 * limits.MIB
DRAIN_SECONDS_MAX = 10.0
JSON_MARKS_MAX = 200_000
"""Commas and brackets outside strings. The largest valid request has far fewer, and each can cost 64 bytes decoded."""
_CONTENT_LENGTH = re.compile(rb"\d{1,18}")
_MARKS = (b",", b"[", b"{")
JSON_TYPES = (b"application/json",)
NDJSON_TYPES = (b"application/x-ndjson", b"application/ndjson")

Result = TypeVar("Result")


class ClientDisconnected(Exception):
    """The peer left before its body was complete; there is nobody to answer."""


@dataclass(slots=True)
class _Reservation:
    size: int = 0


class BodyReader:
    """Reads bodies for one process and keeps account of what is held."""

    def __init__(
        self,
        *,
        bytes_max: int = limits.FRAME_BYTES_MAX,
        total_bytes_max: int = BODIES_BYTES_MAX,
        seconds_max: float = BODY_SECONDS_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._total_bytes_max = total_bytes_max
        self._seconds_max = seconds_max
        self.bytes_held = 0

    @asynccontextmanager
    async def read(self, scope: Scope, receive: Receive) -> AsyncIterator[bytes]:
        """The whole body, accounted for until the block ends.

        Raises `HttpRefusal` — 413 over the limit, by its declared length or while reading; 408 when it takes too
        long; 503 when this process holds too many bytes already — and `ClientDisconnected`.
        """
        declared = self._declared_length(scope)
        reservation = _Reservation()
        try:
            self._reserve(reservation, declared)
            try:
                async with asyncio.timeout(self._seconds_max):
                    body = await self._collect(receive, reservation)
            except TimeoutError:
                raise _too_slow(self._seconds_max) from None
            observation(scope).body_read = True
            yield body
        finally:
            self.bytes_held -= reservation.size

    async def _collect(self, receive: Receive, reservation: _Reservation) -> bytes:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            first = bytes(message.get("body", b""))
            self._reserve(reservation, len(first))
            return first
        collected = bytearray()
        while True:
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            self._reserve(reservation, len(collected) + len(message.get("body", b"")))
            collected += message.get("body", b"")
            if not message.get("more_body", False):
                return bytes(collected)
            message = await receive()

    def _declared_length(self, scope: Scope) -> int:
        text = header(scope, b"content-length")
        if text is None:
            return 0
        if _CONTENT_LENGTH.fullmatch(text) is None:
            raise HttpRefusal(MemoreeError(Code.INVALID_REQUEST, "the Content-Length header is not a number"))
        return int(text)

    def _reserve(self, reservation: _Reservation, size: int) -> None:
        """Grow the reservation to `size` bytes, before they are buffered."""
        if size > self._bytes_max:
            message = f"the request body is larger than the limit of {self._bytes_max} bytes"
            raise HttpRefusal(MemoreeError(Code.CONTENT_TOO_LARGE, message))
        growth = size - reservation.size
        if growth <= 0:
            return
        if self.bytes_held + growth > self._total_bytes_max:
            error = MemoreeError(Code.TRANSPORT_ERROR, "too many large requests at once; nothing was stored")
            raise HttpRefusal(error)
        reservation.size = size
        self.bytes_held += growth


def check_density(body: bytes) -> None:
    """Refuse a document of very many tiny values, which would take twenty times its size once decoded.

    Raises `INVALID_REQUEST`. Strings do not count: a large text may hold as many commas as it likes.
    """
    if _marks(body) > JSON_MARKS_MAX and _marks_outside_strings(body) > JSON_MARKS_MAX:
        invalid(f"the request has more than {JSON_MARKS_MAX} JSON values")


def _marks_outside_strings(body: bytes) -> int:
    """At least the true number when that is over the limit; a malformed document is the decoder's to refuse."""
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if (strings := unescaped.count(b'"') // 2) > JSON_MARKS_MAX:
        return strings  # every string is a value of its own, or the name of one
    marks = start = 0
    while marks <= JSON_MARKS_MAX:
        opening = unescaped.find(b'"', start)
        if opening < 0:
            return marks + _marks(unescaped[start:])
        marks += _marks(unescaped[start:opening])
        start = unescaped.find(b'"', opening + 1) + 1
        if start == 0:
            return marks
    return marks


def _marks(data: bytes) -> int:
    return sum(data.count(mark) for mark in _MARKS)


def check_body_type(scope: Scope, types: Sequence[bytes]) -> None:
    """Only these media types, in UTF-8 and not compressed; anything else is 415.

    It also keeps out what a browser may send across origins without asking first.
    """
    given = header_values(scope, b"content-type")
    media_type, _, parameters = (given[0] if len(given) == 1 else b"").partition(b";")
    charset = parameters.strip().lower().replace(b'"', b"")
    if media_type.strip().lower() not in types or charset not in (b"", b"charset=utf-8"):
        raise _unsupported(f"send the request as Content-Type: {types[0].decode()}")
    if (header(scope, b"content-encoding") or b"identity").lower() != b"identity":
        raise _unsupported("send the request without Content-Encoding")


async def disconnected(receive: Receive) -> None:
    """Returns once the peer has left. For after the body: what else comes is thrown away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of the work, which is cancelled when the peer leaves. For after the body. Raises
    `ClientDisconnected`."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnected
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def send_pieces(send: Send, window: bytes) -> None:
    """A part of a streamed body. Raises `TimeoutError` when its reader takes nothing of it for too long."""
    for position in range(0, len(window), limits.STREAM_PIECE_BYTES):
        piece = window[position : position + limits.STREAM_PIECE_BYTES]
        async with asyncio.timeout(limits.STREAM_SILENCE_SECONDS_MAX):
            await send({"type": "http.response.body", "body": piece, "more_body": True})


async def send_answer(answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an answer, whether or not the request's body has been read."""
    if observation(scope).body_read or not _has_large_body(scope):
        await answer.send(send)
        return
    await send(answer.with_headers((b"connection", b"close")).start())
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    if header(scope, b"expect") is None:
        await _drain(receive)
    await send({"type": "http.response.body", "body": b""})


async def _drain(receive: Receive) -> None:
    drained = 0
    try:
        async with asyncio.timeout(DRAIN_SECONDS_MAX):
            while drained <= DRAIN_BYTES_MAX:
                message = await receive()
                drained += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _has_large_body(scope: Scope) -> bool:
    if header(scope, b"transfer-encoding") is not None:
        return True
    text = header(scope, b"content-length")
    return text is not None and (_CONTENT_LENGTH.fullmatch(text) is None or int(text) > UNREAD_BYTES_IGNORED)


def _unsupported(message: str) -> HttpRefusal:
    return HttpRefusal(MemoreeError(Code.INVALID_REQUEST, message), status=415)


def _too_slow(seconds_max: float) -> HttpRefusal:
    message = f"the request body did not arrive within {seconds_max:g} s; nothing was stored"
    return HttpRefusal(MemoreeError(Code.TRANSPORT_ERROR, message), status=408)

"""Answers in gzip, for who accepts it (RFC 9110 §12.5.3). Starlette's responder compresses; here is what may be.

Streams of lines are flushed with every piece. Never touched: events, which proxies hold back once they are compressed;
what can be asked for in ranges, whose positions are of the stored bytes; and what is small.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import GZipResponder
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memoree import limits
from memoree.http.answers import header_values
from memoree.http.negotiation import weights

LEVEL = 3
"""The highest one makes lists a tenth smaller, and takes almost four times as long."""


class Compression:
    """Around an application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await _Responder(self.app, accepted=is_accepted(scope))(scope, receive, send)


class _Responder(GZipResponder):
    """Says in `Vary` what it might have done otherwise, also where it does nothing."""

    def __init__(self, app: ASGIApp, *, accepted: bool) -> None:
        super().__init__(
            app, limits.COMPRESSED_BYTES_MIN, LEVEL, thread_minimum_size=limits.COMPRESSED_IN_THREAD_BYTES_MIN
        )
        self._accepted = accepted
        self._untouched = False

    async def send_with_compression(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._untouched = _is_untouched(MutableHeaders(raw=message["headers"]))
        await (self.send(message) if self._untouched else super().send_with_compression(message))

    async def apply_compression(self, body: bytes, *, more_body: bool) -> bytes:
        return await super().apply_compression(body, more_body=more_body) if self._accepted else body


def is_accepted(scope: Scope) -> bool:
    wanted = weights(header_values(scope, b"accept-encoding"))
    return wanted.get(b"gzip", wanted.get(b"*", 0.0)) > 0.0


def _is_untouched(headers: MutableHeaders) -> bool:
    length = headers.get("content-length")
    small = length is not None and int(length) < limits.COMPRESSED_BYTES_MIN
    return small or "accept-ranges" in headers

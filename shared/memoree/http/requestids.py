"""`X-Request-Id`: on every answer, so that a caller and a log line mean the same request."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memoree import limits
from memoree.http.answers import header_values
from memoree.http.observation import observation
from memoree.ids import new_ulid

_FIT = re.compile(rb"[!-~]{1,%d}" % limits.REQUEST_ID_BYTES_MAX)
"""What can be told again anywhere: visible ASCII."""


class RequestIds:
    """Outermost: streams, preflights and refusals of any layer have theirs."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        told = _of(scope)
        seen = observation(scope)
        seen.request_id = seen.http_request_id = told.decode()

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"x-request-id", told)]}
            await send(message)

        await self.app(scope, receive, named)


def _of(scope: Scope) -> bytes:
    """The caller's id, or one of ours where there is none, several, or one that cannot be told."""
    given = header_values(scope, b"x-request-id")
    if len(given) == 1 and _FIT.fullmatch(given[0]):
        return given[0]
    return f"req_{new_ulid()}".encode()

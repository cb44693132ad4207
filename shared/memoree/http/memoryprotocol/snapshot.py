"""`GET /v1/snapshot/{lsn}`: all that was visible at a position, a line of JSON each (MemoryProtocol §9)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from memoree.episodes.clock import parse_position
from memoree.errors import Code, MemoreeError
from memoree.http.answers import SECURITY_HEADERS, Answer, HeaderList
from memoree.http.auth import Principal
from memoree.http.gate import Admission
from memoree.http.memoryprotocol.door import Door, Endpoint, Result
from memoree.http.memoryprotocol.refusals import refuse
from memoree.http.observation import CODE_OK, observation
from memoree.operations.snapshot_episodes import SNAPSHOT

NDJSON = b"application/x-ndjson"
SCAN_ERROR = "scan_error"


class SnapshotEndpoint(Endpoint):
    """Pages are asked for as the client takes them: nothing is held for a slow one."""

    scope_name = "recall"

    def __init__(self, door: Door, draining: asyncio.Event) -> None:
        super().__init__(door)
        self._draining = draining

    async def serve(self, scope: Scope, receive: Receive, send: Send, admission: Admission) -> Answer | None:
        principal = admission.principal
        try:
            position = parse_position(scope["path_params"]["lsn"])
        except MemoreeError as error:
            refuse(400, "invalid_lsn", error.message)
        try:
            with self.door.measured.handled():
                first = await self.door.ask(principal, SNAPSHOT, {"position": position.model_dump()})
        except MemoreeError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            refuse(404, "snapshot_out_of_range", "the position is ahead of this server's clock")
        if scope["method"] == "HEAD":
            return Answer(200, b"", first.headers, NDJSON)
        await send(_start(first.headers + admission.headers))
        await self._send_pages(send, principal, first)
        observation(scope).code = CODE_OK
        return None

    async def _send_pages(self, send: Send, principal: Principal, first: Result) -> None:
        page: Mapping[str, Any] | None = first.value
        while page is not None:
            await _send(send, page["lines"].encode(), more=True)
            page = await self._after(send, principal, page)
        await _send(send, b"", more=False)

    async def _after(self, send: Send, principal: Principal, page: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The next page. The status was sent long ago, so that a failure is told in a line."""
        if page.get("next") is None:
            return None
        asked = {"seen": page["seen"], "history": page["history"], "after": page["next"]}
        try:
            if self._draining.is_set():
                raise MemoreeError(Code.TRANSPORT_ERROR, "the server is stopping; ask for the same position again")
            with self.door.measured.handled():
                return (await self.door.ask(principal, SNAPSHOT, asked, strong=False)).value
        except MemoreeError as error:
            line = {"error": SCAN_ERROR, "message": error.message}
            await _send(send, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE), more=True)
            return None


def _start(headers: HeaderList) -> dict[str, Any]:
    return {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", NDJSON), *SECURITY_HEADERS, *headers],
    }


async def _send(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})

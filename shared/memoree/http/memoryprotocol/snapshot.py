"""`GET /v1/snapshot/{lsn}`: all that was visible at a position, a line of JSON each (MemoryProtocol §9)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from memoree import limits
from memoree.episodes.clock import parse_position
from memoree.errors import Code, MemoreeError
from memoree.http.answers import SECURITY_HEADERS, Answer, HeaderList, HttpRefusal
from memoree.http.auth import Principal
from memoree.http.body import send_pieces, while_connected
from memoree.http.gate import Admission
from memoree.http.memoryprotocol.door import Door, Endpoint, Result
from memoree.http.memoryprotocol.refusals import refuse
from memoree.http.observation import CODE_OK, observation
from memoree.http.places import Places
from memoree.operations.snapshot_episodes import SCAN_ERROR, SNAPSHOT

NDJSON = b"application/x-ndjson"


class SnapshotEndpoint(Endpoint):
    """Pages are asked for as the client takes them: a slow one holds one of them. Who takes nothing is given up, and
    nothing more is read for who has left."""

    scope_name = "recall"

    def __init__(self, door: Door, draining: asyncio.Event) -> None:
        super().__init__(door)
        self._draining = draining
        self._places = Places("snapshots")

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
        try:
            with self._place(principal.tenant, first):
                await send(_start(first.headers + admission.headers))
                await while_connected(receive, self._send_pages(send, principal, first))
        except MemoreeError as refused:
            raise HttpRefusal(refused) from refused
        observation(scope).code = CODE_OK
        return None

    def _place(self, tenant: str, first: Result) -> AbstractContextManager[None]:
        """For who goes on after the page at hand. Raises what `Places.held` does."""
        if first.value.get("next") is None:
            return nullcontext()
        return self._places.held(tenant, limits.SNAPSHOTS_AT_ONCE_MAX)

    async def _send_pages(self, send: Send, principal: Principal, first: Result) -> None:
        page: Mapping[str, Any] | None = first.value
        while page is not None:
            await send_pieces(send, page["lines"].encode())
            page = await self._after(send, principal, page)
        await send({"type": "http.response.body", "body": b""})

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
            await send_pieces(send, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            return None


def _start(headers: HeaderList) -> dict[str, Any]:
    return {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", NDJSON), *SECURITY_HEADERS, *headers],
    }

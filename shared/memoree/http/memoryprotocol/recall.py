"""`POST /v1/recall`: chunks of episodes, best first, as an array or as a stream (MemoryProtocol §6)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field
from starlette.types import Receive, Scope, Send

from memoree import clock, limits
from memoree.envelope import WireModel
from memoree.episodes.clock import Hlc
from memoree.episodes.filter import Filter, parse_filter
from memoree.errors import Code, MemoreeError
from memoree.http.answers import Answer, HeaderList
from memoree.http.auth import Principal
from memoree.http.body import while_connected
from memoree.http.gate import Admission
from memoree.http.memoryprotocol import sse
from memoree.http.memoryprotocol.door import Door, Endpoint
from memoree.http.memoryprotocol.refusals import VALIDATE, refuse
from memoree.operations.recall_episodes import RECALL

INVALID_REQUEST = "invalid_request"
GRAPH_MODE_UNAVAILABLE = "graph_mode_unavailable"
RETRIEVE = "retrieve"
"""Of a fault in finding, where the store is well."""


class RecallBody(WireModel):
    """`as_of` and `filter` are judged after the mode."""

    query: str
    k: Annotated[int, Field(ge=0, le=limits.EPISODE_HITS_MAX)] = limits.EPISODE_HITS_DEFAULT
    as_of: str | None = None
    filter: str | None = None
    mode: Literal["semantic", "graph"] = "semantic"


class RecallEndpoint(Endpoint):
    scope_name = "recall"

    def __init__(self, door: Door, *, graph_mode: bool) -> None:
        super().__init__(door)
        self._graph_mode = graph_mode

    async def serve(self, scope: Scope, receive: Receive, send: Send, admission: Admission) -> Answer | None:
        wanted = await self.body(scope, receive, RecallBody)
        work = self._measured(admission.principal, wanted)
        if sse.is_wanted(scope):
            return await while_connected(receive, sse.streamed(scope, send, work, admission.headers))
        hits, headers = await while_connected(receive, work)
        return Answer(200, orjson.dumps(hits), headers)

    async def _measured(self, principal: Principal, wanted: RecallBody) -> tuple[list[dict[str, Any]], HeaderList]:
        with self.door.measured.recall(principal.tenant, wanted.mode):
            return await self._hits(principal, self._asked(wanted))

    def _asked(self, wanted: RecallBody) -> dict[str, Any]:
        if wanted.mode == "graph" and not self._graph_mode:
            refuse(501, GRAPH_MODE_UNAVAILABLE, "graph mode is switched off here")
        return {
            "query": wanted.query,
            "k": wanted.k or limits.EPISODE_HITS_UNSAID,
            "as_of": _as_of(wanted.as_of).model_dump() if wanted.as_of is not None else None,
            "filter": _filter(wanted.filter).model_dump() if wanted.filter is not None else None,
            "mode": wanted.mode,
        }

    async def _hits(self, principal: Principal, asked: dict[str, Any]) -> tuple[list[dict[str, Any]], HeaderList]:
        """The hits as they are on the wire, and what their answer is to say beside them."""
        asking_lag = asyncio.ensure_future(self.door.services.service.queue_lag(principal.tenant))
        try:
            found = await self.door.ask(principal, RECALL, asked)
            lags = await asking_lag
        except MemoreeError as error:
            if error.code is not Code.INTERNAL_ERROR:
                raise
            refuse(500, RETRIEVE, error.message)
        finally:
            asking_lag.cancel()
        degraded = lags or found.value["degraded"]
        return [{**hit, "degraded": degraded} for hit in found.value["hits"]], found.headers


def _as_of(text: str) -> Hlc:
    """The first position of that millisecond: what was committed later in it is not seen (§6.6)."""
    try:
        instant = clock.from_stored(clock.parse_timestamp(text))
    except ValueError as error:
        refuse(400, INVALID_REQUEST, f"as_of: {error}")
    if (wall_ms := clock.milliseconds(instant)) < 0:
        refuse(400, INVALID_REQUEST, "as_of: must not be before 1970")
    return Hlc(wall_ms=wall_ms, counter=0)


def _filter(text: str) -> Filter:
    try:
        return parse_filter(text)
    except MemoreeError as error:
        refuse(400, VALIDATE, error.message, reason="invalid_filter")

"""`GET /v1/events?after=N&wait=S`: what was committed after a number, in order; waits for it where nothing was yet.

200 `{"events": [records], "next_after": int, "next_event_id": string | null, "commit_seq": int}`; refusals are
envelopes. 410 says that the number is none of this store's any more, and in `details.resume_after` where to go on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field
from starlette.types import Receive, Scope, Send

from memoree import limits
from memoree.envelope import REQUEST_ID_UNREADABLE, Envelope, parse
from memoree.errors import MemoreeError
from memoree.http.answers import Answer, HttpRefusal, envelope_answer, json_answer
from memoree.http.auth import Principal
from memoree.http.body import ClientDisconnected, send_answer, while_connected
from memoree.http.calls import asks_for_strong
from memoree.http.gate import Admission, Gate
from memoree.http.metrics import Metrics
from memoree.http.observation import CODE_OK, observation
from memoree.http.places import Places
from memoree.http.reads import parameters, result_of
from memoree.http.services import ServiceHolder
from memoree.operations.call import validate
from memoree.operations.feed import FEED, HISTORY_CHANGED, FeedPosition
from memoree.service import Request

SCOPE = "recall"
SECONDS_LEFT = "memoree.seconds_left"
"""In the ASGI scope, of who has no more time than that for a request."""


class FeedQuery(FeedPosition):
    wait: int = Field(default=0, ge=0, le=2**63 - 1)

    @property
    def position(self) -> dict[str, Any]:
        return self.model_dump(exclude={"wait"})


class EventsEndpoint:
    """Order of work: bearer → rate → scope → parameters → the service. A wait ends with the first change, with its
    time, when its client leaves and when the server stops."""

    def __init__(self, services: ServiceHolder, gate: Gate, metrics: Metrics, draining: asyncio.Event) -> None:
        self._services = services
        self._gate = gate
        self._metrics = metrics
        self._draining = draining
        self._places = Places("waits for changes")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = observation(scope)
        try:
            answer = await self._answer(scope, receive)
            seen.code = CODE_OK
        except ClientDisconnected:
            return
        except HttpRefusal as refused:
            seen.code = refused.error.code
            answer = envelope_answer(scope, refused.reply(), refused.headers)
        await send_answer(answer, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        admission = self._gate.admit(scope)
        try:
            self._gate.require(admission, SCOPE)
            return await while_connected(receive, self._page(scope, admission))
        except MemoreeError as error:
            gone = (error.details or {}).get("kind") == HISTORY_CHANGED
            raise HttpRefusal(error, status=410 if gone else None, headers=admission.headers) from error

    async def _page(self, scope: Scope, admission: Admission) -> Answer:
        principal = admission.principal
        query = _query(scope["query_string"])
        wait = min(query.wait, limits.FEED_WAIT_SECONDS_MAX, scope.get(SECONDS_LEFT, math.inf))
        deadline = asyncio.get_running_loop().time() + wait
        page, commit_seq = await self._read(principal, query, strong=asks_for_strong(scope))
        while not page["events"] and await self._is_newer(principal.tenant, commit_seq, deadline):
            page, commit_seq = await self._read(principal, query, strong=False)
        return json_answer(
            {"next_event_id": None, **page, "commit_seq": commit_seq},
            headers=(*admission.headers, (b"memoree-commit-seq", b"%d" % commit_seq)),
        )

    async def _read(self, principal: Principal, query: FeedQuery, *, strong: bool) -> tuple[Mapping[str, Any], int]:
        envelope = Envelope(request_id=REQUEST_ID_UNREADABLE, op=FEED, input=query.position)
        request = Request(envelope, validate(envelope))
        page, commit_seq = result_of(await self._services.service.call(principal.tenant, request, strong=strong))
        self._metrics.saw_commit(principal.tenant, commit_seq)
        return page, commit_seq

    async def _is_newer(self, tenant: str, commit_seq: int, deadline: float) -> bool:
        """Wait for a later commit; not when the time is over, or the server stops."""
        seconds = deadline - asyncio.get_running_loop().time()
        if seconds <= 0 or self._draining.is_set():
            return False
        with self._places.held(tenant, limits.FEED_WAITS_MAX):
            waiting = asyncio.create_task(self._services.service.newer(tenant, commit_seq, seconds))
            stopping = asyncio.create_task(self._draining.wait())
            try:
                await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
                return waiting.done() and waiting.result()
            finally:
                for task in (waiting, stopping):
                    task.cancel()
                await asyncio.gather(waiting, stopping, return_exceptions=True)


def _query(query_string: bytes) -> FeedQuery:
    members = parameters(query_string, FeedQuery.model_fields, numbers=("after", "wait", "limit"))
    return parse(FeedQuery, members)

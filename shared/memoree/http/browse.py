"""`GET /v1/artifacts`, `/v1/claims`, `/v1/relations`: what a scope holds, newest first, without a query.

200 `{"items": [records without content], "next_cursor": string | null, "commit_seq": int}`; refusals are envelopes.
"""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from memoree.browsing.lists import Listing
from memoree.browsing.queries import Position, Query
from memoree.context import wire_form
from memoree.envelope import REQUEST_ID_UNREADABLE, AmbientContext, Envelope, parse
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.http.answers import Answer, HttpRefusal, envelope_answer, json_answer
from memoree.http.auth import Principal
from memoree.http.body import send_answer
from memoree.http.calls import asks_for_strong
from memoree.http.conditional import revalidated
from memoree.http.cursors import Walk
from memoree.http.gate import Admission, Gate
from memoree.http.metrics import Metrics
from memoree.http.observation import CODE_OK, observation
from memoree.http.reads import parameters, result_of
from memoree.http.services import ServiceHolder
from memoree.operations.call import Call, check_reason
from memoree.operations.shapes import FIRST_PAGE
from memoree.service import Request

_NUMBERS = ("limit", "min_commit_seq")
_INSTANTS = ("created_from", "created_until")


class ListEndpoint:
    """One list. Order of work: bearer → rate → scope → parameters → the service."""

    def __init__(self, listing: Listing, services: ServiceHolder, gate: Gate, metrics: Metrics) -> None:
        self._listing = listing
        self._services = services
        self._gate = gate
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = observation(scope)
        try:
            answer = await self._answer(scope)
            seen.code = CODE_OK
        except HttpRefusal as refused:
            seen.code = refused.error.code
            answer = envelope_answer(scope, refused.reply(), refused.headers)
        await send_answer(answer, scope, receive, send)

    async def _answer(self, scope: Scope) -> Answer:
        admission = self._gate.admit(scope)
        try:
            self._gate.require(admission, self._listing.operation.scope)
            return revalidated(scope, await self._page(scope, admission))
        except MemoreeError as error:
            raise HttpRefusal(error, headers=admission.headers) from error

    async def _page(self, scope: Scope, admission: Admission) -> Answer:
        query, principal = self._query(scope["query_string"]), admission.principal
        context = _context(query, principal)
        walk = None if query.cursor is None else await self._walk(query, context, principal.tenant)
        before = FIRST_PAGE if walk is None else walk.place(str(query.cursor))
        call = self._call(Position(query=query, before=before), context)
        request = Request(Envelope(request_id=call.request_id, op=call.operation.name), call)
        reply = await self._services.service.call(principal.tenant, request, strong=asks_for_strong(scope))
        page, commit_seq = result_of(reply)
        self._metrics.saw_commit(principal.tenant, commit_seq)
        cursor = None
        if (next_before := page.get("next_before")) is not None:
            cursor = (walk or await self._walk(query, context, principal.tenant)).cursor(next_before)
        return json_answer(
            {"items": page["items"], "next_cursor": cursor, "commit_seq": commit_seq},
            headers=(*admission.headers, (b"memoree-commit-seq", b"%d" % commit_seq)),
        )

    def _query(self, query_string: bytes) -> Query:
        members = parameters(query_string, self._listing.query.model_fields, numbers=_NUMBERS)
        for name in _INSTANTS:
            if " " in (value := members.get(name, "")):
                invalid(f"{name}: a time has no spaces (got {shown(value)}); a + is written %2B in a query string")
        return parse(self._listing.query, members)

    def _call(self, position: Position, context: AmbientContext) -> Call[Position]:
        return Call(
            operation=self._listing.operation,
            request_id=REQUEST_ID_UNREADABLE,
            context=context,
            context_source="explicit",
            idempotency_key="",
            fingerprint=b"",
            input=position,
        )

    async def _walk(self, query: Query, context: AmbientContext, tenant: str) -> Walk:
        key = await self._services.service.cursor_key()
        return Walk(key, tenant, self._listing.name, wire_form(context), query.filters())


def _context(query: Query, principal: Principal) -> AmbientContext:
    """The context the query names, or else the token's own. Raises `NO_AMBIENT_CONTEXT`, and `INVALID_REQUEST` for a
    horizon without its reason."""
    context = query.context or principal.context_given
    if context is None:
        message = "a list needs a context: name workspace_id and project_id, or use a token that has them"
        raise MemoreeError(Code.NO_AMBIENT_CONTEXT, message)
    check_reason(query, "reason")
    return context

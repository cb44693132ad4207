"""What the routes of administration have in common: the gate, and how they refuse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from memoree import limits
from memoree.envelope import load_json, parse
from memoree.errors import Code, MemoreeError, invalid
from memoree.http.answers import Answer, HttpRefusal, envelope_answer
from memoree.http.auth import Principal
from memoree.http.body import JSON_TYPES, BodyReader, ClientDisconnected, check_body_type, send_answer
from memoree.http.gate import Gate
from memoree.http.observation import CODE_OK, observation
from memoree.objects import ObjectStoreError

BODY_BYTES_MAX = 64 * limits.KIB

Body = TypeVar("Body", bound=BaseModel)


class AdminEndpoint(ABC):
    """Order of work: bearer → scope `admin` → rate → parameters and body → the answer; refusals are envelopes."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._bodies = BodyReader(bytes_max=BODY_BYTES_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._admitted(scope, receive)
            observation(scope).code = CODE_OK
        except ClientDisconnected:
            return
        except HttpRefusal as refused:
            observation(scope).code = refused.error.code
            answer = envelope_answer(scope, refused.reply(), refused.headers)
        await send_answer(answer, scope, receive, send)

    async def _admitted(self, scope: Scope, receive: Receive) -> Answer:
        admission = self._gate.admit_administrator(scope)
        try:
            answer = await self._answer(scope, receive, admission.principal)
        except HttpRefusal as refused:
            headers = admission.headers + refused.headers
            raise HttpRefusal(refused.error, status=refused.status, headers=headers) from refused
        except MemoreeError as error:
            raise HttpRefusal(error, headers=admission.headers) from error
        except ObjectStoreError as error:
            raise HttpRefusal(_unreachable(error), headers=admission.headers) from error
        return answer.with_headers(*admission.headers)

    @abstractmethod
    async def _answer(self, scope: Scope, receive: Receive, principal: Principal) -> Answer:
        """Raises `HttpRefusal`, `MemoreeError`, `ObjectStoreError` and `ClientDisconnected`."""

    async def _body(self, scope: Scope, receive: Receive, model: type[Body]) -> Body:
        """Raises 415, 413, and `INVALID_REQUEST` for what is no JSON or of another shape."""
        check_body_type(scope, JSON_TYPES)
        async with self._bodies.read(scope, receive) as raw:
            return parse(model, load_json(raw), "body")


def refuse_parameters(scope: Scope) -> None:
    """Of a route that has none: a filter passed over would answer another question. Raises `INVALID_REQUEST`."""
    if scope["query_string"]:
        invalid("this route has no parameters in the query string")


def _unreachable(error: ObjectStoreError) -> MemoreeError:
    return MemoreeError(Code.TRANSPORT_ERROR, f"the store did not answer; send it again: {error}")

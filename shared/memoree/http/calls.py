"""`POST /v1/call`: one request envelope in, one response envelope out, always."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from starlette.types import Receive, Scope, Send

from memoree import limits
from memoree.envelope import REQUEST_ID_UNREADABLE, Envelope
from memoree.errors import Code, MemoreeError, invalid
from memoree.http.answers import Answer, HeaderList, HttpRefusal, envelope_answer, header_values
from memoree.http.body import (
    JSON_TYPES,
    BodyReader,
    ClientDisconnected,
    check_body_type,
    check_density,
    send_answer,
    while_connected,
)
from memoree.http.gate import Admission, Gate
from memoree.http.metrics import Metrics
from memoree.http.observation import CODE_OK, Observation, observation
from memoree.http.services import ServiceHolder
from memoree.operations.call import decode, validate
from memoree.operations.registry import operation as find_operation
from memoree.service import Reply, Request, refusal

DECODE_IN_THREAD_BYTES_MIN = 64 * limits.KIB
"""Larger bodies are decoded, hashed and checked in a thread, so that small requests need not wait for them."""
_PREFERENCE = re.compile(r"(wait)\s*=\s*\"?(\d{1,9})\"?|(respond-async)", re.IGNORECASE)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request's headers ask of every call it makes, and the header that says what of it was granted."""

    wait_seconds: float = limits.WRITE_WAIT_SECONDS_DEFAULT
    strong: bool = False
    applied: HeaderList = ()

    @classmethod
    def of(cls, scope: Scope) -> Asked:
        """Raises `INVALID_REQUEST`."""
        strong = asks_for_strong(scope)
        wait_seconds, applied = _preferred_wait(scope)
        return cls(wait_seconds, strong, applied)


class Calls:
    """What becomes of one request, whichever route carried it."""

    def __init__(self, services: ServiceHolder, gate: Gate, metrics: Metrics) -> None:
        self._services = services
        self._gate = gate
        self._metrics = metrics

    async def request(
        self,
        admission: Admission,
        body: bytes,
        seen: Observation,
        amended: Callable[[Envelope], Envelope] = lambda envelope: envelope,
    ) -> Request:
        """Envelope → scope → validation. `seen` learns what can be read of it, also of one that is refused.
        Raises `MemoreeError`."""
        seen.request_id = REQUEST_ID_UNREADABLE
        large = len(body) >= DECODE_IN_THREAD_BYTES_MIN
        try:
            envelope = amended(await asyncio.to_thread(_decode_dense, body) if large else decode(body))
            seen.request_id, seen.op = envelope.request_id, envelope.op
            self._gate.require(admission, scope_of(envelope))
            call = await asyncio.to_thread(validate, envelope) if large else validate(envelope)
        except MemoreeError:
            raise
        except Exception as error:
            log.exception("a request failed", extra={"request_id": seen.request_id})
            raise _failed() from error
        return Request(envelope, call)

    async def reply(self, admission: Admission, request: Request, asked: Asked) -> Reply:
        """The service's reply; never raises for a request."""
        tenant = admission.principal.tenant
        try:
            reply = await self._services.service.call(
                tenant, request, wait_seconds=asked.wait_seconds, strong=asked.strong
            )
        except Exception:
            request_id = request.envelope.request_id
            log.exception("%s failed", request.envelope.op, extra={"request_id": request_id})
            return refusal(request_id, _failed())
        if reply.snapshot_commit_seq is not None:
            self._metrics.saw_commit(tenant, reply.snapshot_commit_seq)
        return reply


class CallEndpoint:
    """Order of work: bearer → rate → headers and body → envelope → scope → validation → the service."""

    def __init__(self, calls: Calls, gate: Gate, bodies: BodyReader) -> None:
        self._calls = calls
        self._gate = gate
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: HeaderList = ()
        try:
            admission = self._gate.admit(scope)
            headers = admission.headers
            check_body_type(scope, JSON_TYPES)
            async with self._bodies.read(scope, receive) as body:
                answer = await self._answer(scope, receive, admission, body)
        except ClientDisconnected:
            return
        except HttpRefusal as refused:
            answer = self._finished(scope, refused.reply(), headers + refused.headers)
        await send_answer(answer, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, admission: Admission, body: bytes) -> Answer:
        seen = observation(scope)
        seen.request_id = REQUEST_ID_UNREADABLE
        headers = admission.headers
        try:
            asked = Asked.of(scope)
            request = await self._calls.request(admission, body, seen, partial(_with_key_of_header, scope))
        except MemoreeError as error:
            return self._finished(scope, refusal(seen.request_id, error), headers)
        replying = self._calls.reply(admission, request, asked)
        reply = await (while_connected(receive, replying) if request.call.operation.long else replying)
        return self._finished(scope, reply, headers + asked.applied)

    def _finished(self, scope: Scope, reply: Reply, headers: HeaderList) -> Answer:
        observation(scope).code = code_of(reply)
        return envelope_answer(scope, reply, headers)


def code_of(reply: Reply) -> str:
    error = reply.envelope.get("error")
    return CODE_OK if error is None else str(error["code"])


def _failed() -> MemoreeError:
    return MemoreeError(Code.INTERNAL_ERROR, "the operation failed; see the log")


def scope_of(envelope: Envelope) -> str:
    """The token scope that the envelope's operation needs."""
    operation = find_operation(envelope.op)
    assert operation is not None, "decoding refused unknown operations"
    return operation.scope


def _decode_dense(body: bytes) -> Envelope:
    check_density(body)
    return decode(body)


def _with_key_of_header(scope: Scope, envelope: Envelope) -> Envelope:
    """`Idempotency-Key`, taken verbatim, stands in for the envelope's key; two different keys are refused."""
    try:
        keys = {value.decode() for value in header_values(scope, b"idempotency-key")}
    except UnicodeDecodeError:
        invalid("the Idempotency-Key header is not UTF-8")
    if not keys:
        return envelope
    if envelope.idempotency_key is not None:
        keys.add(envelope.idempotency_key)
    if len(keys) > 1:
        invalid("the Idempotency-Key header and the envelope's idempotency_key differ")
    return envelope.model_copy(update={"idempotency_key": keys.pop()})


def asks_for_strong(scope: Scope) -> bool:
    """Whether `Memoree-Consistency: strong` was sent. Raises `INVALID_REQUEST` for any other value."""
    values = header_values(scope, b"memoree-consistency")
    if any(value.lower() != b"strong" for value in values):
        invalid("Memoree-Consistency: the only value is `strong`")
    return bool(values)


def _preferred_wait(scope: Scope) -> tuple[float, HeaderList]:
    """How long to wait for a write (RFC 7240): `wait=N` seconds up to the limit, else 0 for `respond-async`.
    With the header that says what was applied; preferences that are not understood are ignored, as the RFC wants."""
    wait: float | None = None
    for value in header_values(scope, b"prefer"):
        for preference in value.decode("latin-1").split(","):
            match = _PREFERENCE.fullmatch(preference.strip())
            if match is not None and match[1]:
                wait = min(float(match[2]), limits.WRITE_WAIT_SECONDS_MAX)
            elif match is not None and wait is None:
                wait = 0.0
    if wait is None:
        return limits.WRITE_WAIT_SECONDS_DEFAULT, ()
    return wait, ((b"preference-applied", b"wait=%d" % wait),)

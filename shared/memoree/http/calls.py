"""`POST /v1/call`: one request envelope in, one response envelope out, always."""

from __future__ import annotations

import asyncio
import logging
import re

from starlette.types import Receive, Scope, Send

from memoree import limits
from memoree.envelope import REQUEST_ID_UNREADABLE, Envelope
from memoree.errors import Code, MemoreeError, invalid
from memoree.http.answers import Answer, HeaderList, HttpRefusal, envelope_answer, header_values
from memoree.http.body import BodyReader, ClientDisconnected, check_density, check_json_body, send_answer
from memoree.http.gate import Admission, Gate
from memoree.http.metrics import Metrics
from memoree.http.observation import CODE_OK, observation
from memoree.http.services import ServiceHolder
from memoree.operations.call import decode, validate
from memoree.operations.registry import operation as find_operation
from memoree.service import Reply, Request, refusal

DECODE_IN_THREAD_BYTES_MIN = 64 * limits.KIB
"""Larger bodies are decoded, hashed and checked in a thread, so that small requests need not wait for them."""
_PREFERENCE = re.compile(r"(wait)\s*=\s*\"?(\d{1,9})\"?|(respond-async)", re.IGNORECASE)

log = logging.getLogger(__name__)


class CallEndpoint:
    """Order of work: bearer → rate → headers and body → envelope → scope → validation → the service."""

    def __init__(self, services: ServiceHolder, gate: Gate, bodies: BodyReader, metrics: Metrics) -> None:
        self._services = services
        self._gate = gate
        self._bodies = bodies
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: HeaderList = ()
        try:
            admission = self._gate.admit(scope)
            headers = admission.headers
            check_json_body(scope)
            async with self._bodies.read(scope, receive) as body:
                answer = await self._answer(scope, admission, body)
        except ClientDisconnected:
            return
        except HttpRefusal as refused:
            answer = self._finished(scope, refused.reply(), headers + refused.headers)
        await send_answer(answer, scope, receive, send)

    async def _answer(self, scope: Scope, admission: Admission, body: bytes) -> Answer:
        seen = observation(scope)
        seen.request_id = REQUEST_ID_UNREADABLE
        headers = admission.headers
        try:
            strong = _asks_for_strong(scope)
            wait_seconds, applied = _preferred_wait(scope)
            request = await self._request(scope, admission, body)
            tenant = admission.principal.tenant
            reply = await self._services.service.call(tenant, request, wait_seconds=wait_seconds, strong=strong)
            headers += applied
            if reply.snapshot_commit_seq is not None:
                self._metrics.saw_commit(tenant, reply.snapshot_commit_seq)
        except MemoreeError as error:
            reply = refusal(seen.request_id, error)
        except Exception:
            log.exception("%s failed", seen.op or "a request", extra={"request_id": seen.request_id})
            reply = refusal(seen.request_id, MemoreeError(Code.INTERNAL_ERROR, "the operation failed; see the log"))
        return self._finished(scope, reply, headers)

    async def _request(self, scope: Scope, admission: Admission, body: bytes) -> Request:
        large = len(body) >= DECODE_IN_THREAD_BYTES_MIN
        envelope = await asyncio.to_thread(_decode_dense, body) if large else decode(body)
        envelope = _with_key_of_header(scope, envelope)
        seen = observation(scope)
        seen.request_id, seen.op = envelope.request_id, envelope.op
        self._gate.require(admission, scope_of(envelope))
        call = await asyncio.to_thread(validate, envelope) if large else validate(envelope)
        return Request(envelope, call)

    def _finished(self, scope: Scope, reply: Reply, headers: HeaderList) -> Answer:
        error = reply.envelope.get("error")
        observation(scope).code = CODE_OK if error is None else error["code"]
        return envelope_answer(scope, reply, headers)


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


def _asks_for_strong(scope: Scope) -> bool:
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

"""What the routes of MemoryProtocol share: the order of work, the call into the store, the answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from starlette.types import Receive, Scope, Send

from memoree import limits
from memoree.envelope import Envelope, WireModel, load_json, parse
from memoree.errors import MemoreeError
from memoree.http.answers import Answer, HeaderList, HttpRefusal, header_values
from memoree.http.auth import Principal
from memoree.http.body import JSON_TYPES, BodyReader, ClientDisconnected, check_body_type, check_density, send_answer
from memoree.http.gate import Admission, Gate
from memoree.http.memoryprotocol.measured import VerbMetrics
from memoree.http.memoryprotocol.refusals import VALIDATE, Refusal, refuse
from memoree.http.metrics import Metrics
from memoree.http.observation import CODE_OK, observation
from memoree.http.services import ServiceHolder
from memoree.ids import new_ulid
from memoree.operations.call import validate
from memoree.service import Request

BODY_BYTES_MAX = 2 * limits.MIB
"""Of the reference server."""
KEY_PREFIX = "memoryprotocol/"
"""Before idempotency keys of this door's callers: those of a context share a name space with `/v1/call`."""
KEY_BYTES_MAX = limits.IDEMPOTENCY_KEY_BYTES_MAX - len(KEY_PREFIX)

Input = TypeVar("Input", bound=WireModel)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """Of an operation, and the commit that it was read at."""

    value: Mapping[str, Any]
    commit_seq: int | None

    @property
    def headers(self) -> HeaderList:
        return () if self.commit_seq is None else ((b"memoree-commit-seq", b"%d" % self.commit_seq),)


@dataclass(frozen=True, slots=True)
class Door:
    """Of one process."""

    services: ServiceHolder
    gate: Gate
    metrics: Metrics
    measured: VerbMetrics
    bodies: BodyReader

    async def ask(
        self,
        principal: Principal,
        operation: str,
        input: Mapping[str, Any],
        *,
        key: str | None = None,
        wait_seconds: float = limits.WRITE_WAIT_SECONDS_DEFAULT,
        strong: bool = True,
    ) -> Result:
        """The result of an operation, in the token's context; `strong` reads look at head first. Raises what it refused
        with."""
        envelope = Envelope(
            request_id=f"req_{new_ulid()}",
            op=operation,
            idempotency_key=f"{KEY_PREFIX}{key or new_ulid()}",
            context=principal.context.model_dump(exclude_none=True),
            context_source="explicit",
            input=dict(input),
        )
        request = Request(envelope, validate(envelope))
        reply = await self.services.service.call(principal.tenant, request, wait_seconds=wait_seconds, strong=strong)
        if reply.snapshot_commit_seq is not None:
            self.metrics.saw_commit(principal.tenant, reply.snapshot_commit_seq)
        if (error := reply.envelope.get("error")) is not None:
            refused = MemoreeError.from_wire({**error, "message": error["message"].replace(KEY_PREFIX, "")})
            refused.retry_after_seconds = reply.retry_after_seconds
            raise refused
        return Result(reply.envelope["result"], reply.snapshot_commit_seq)


class Endpoint:
    """A route: bearer and scope, rate, body or path, then `serve`."""

    scope_name: ClassVar[str]
    """The token scope that it needs."""

    def __init__(self, door: Door) -> None:
        self.door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: HeaderList = ()
        try:
            admission = self.door.gate.admit(scope, needs=self.scope_name)
            headers = admission.headers
            answer = await self.serve(scope, receive, send, admission)
        except ClientDisconnected:
            return
        except (Refusal, HttpRefusal, MemoreeError) as error:
            refused = Refusal.of_any(error)
            observation(scope).code = refused.code
            answer = refused.answer(scope, headers)
        else:
            if answer is None:
                return
            observation(scope).code = CODE_OK
            answer = answer.with_headers(*headers)
        await send_answer(answer, scope, receive, send)

    async def serve(self, scope: Scope, receive: Receive, send: Send, admission: Admission) -> Answer | None:
        """The answer, or `None` where it was sent already. Raises `Refusal`, `HttpRefusal`, `MemoreeError`."""
        raise NotImplementedError

    async def body(self, scope: Scope, receive: Receive, model: type[Input]) -> Input:
        """The body as the route's model. Raises 415, 413, 400 for what is no JSON, and 422 for another shape."""
        check_body_type(scope, JSON_TYPES)
        async with self.door.bodies.read(scope, receive) as raw:
            document = await asyncio.to_thread(_decoded, raw) if len(raw) > limits.KIB * 64 else _decoded(raw)
        return parse(model, document)

    def key(self, scope: Scope) -> str | None:
        """What `Idempotency-Key` says. Raises 422 for two of them, and for one that is empty, too long or no text."""
        keys = header_values(scope, b"idempotency-key")
        if not keys:
            return None
        if len(set(keys)) > 1:
            refuse(422, VALIDATE, "there are two different Idempotency-Key headers")
        if not 0 < len(keys[0]) <= KEY_BYTES_MAX:
            refuse(422, VALIDATE, f"the Idempotency-Key header must have 1 to {KEY_BYTES_MAX} bytes")
        try:
            return keys[0].decode()
        except UnicodeDecodeError:
            refuse(422, VALIDATE, "the Idempotency-Key header is not UTF-8")


def _decoded(raw: bytes) -> Any:
    """Raises 400 for what is no JSON, or more of it than can be meant."""
    try:
        check_density(raw)
        return load_json(raw)
    except MemoreeError as error:
        refuse(400, VALIDATE, error.message)

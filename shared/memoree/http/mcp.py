"""`/mcp`: the Model Context Protocol over streamable HTTP, without sessions, so that any process answers any request.

The SDK is loaded by the first request: an api that nobody asks for it starts without.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.types import Message, Receive, Scope, Send

from memoree import limits
from memoree.envelope import Envelope
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.http.answers import SECURITY_HEADERS, HeaderList, HttpRefusal, refusal_answer
from memoree.http.auth import Principal
from memoree.http.body import JSON_TYPES, BodyReader, ClientDisconnected, check_body_type, check_density, send_answer
from memoree.http.gate import Gate
from memoree.http.metrics import Metrics
from memoree.http.observation import CODE_OK, Observation, observation
from memoree.http.services import ServiceHolder
from memoree.ids import new_ulid
from memoree.operations.call import validate
from memoree.operations.registry import operation
from memoree.service import Reply, Request

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server

    from memoree.mcp.asking import Caller

MCP_PATH = "/mcp"
BODY_BYTES_MAX = 4 * limits.MIB
PROFILE_PARAMETER = "profile"
PROFILES = ("agent", "okf")
DECIDED_SECONDS_MAX = 40.0
"""For a write that is queued. Clients of this protocol wait a minute for an answer."""
VALIDATE_IN_THREAD_BYTES_MIN = 64 * limits.KIB
_CALLER, _PROFILE = "memoree.mcp.caller", "memoree.mcp.profile"
_SDK_LOGGER = "mcp"

log = logging.getLogger(__name__)


class McpEndpoint:
    """Order of work: bearer → rate → headers and body → the SDK → scope of the operation → the service. A refusal
    before the SDK is HTTP's; after it, the model's to read."""

    def __init__(self, services: ServiceHolder, gate: Gate, metrics: Metrics) -> None:
        self._services = services
        self._gate = gate
        self._metrics = metrics
        self._bodies = BodyReader(bytes_max=BODY_BYTES_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: HeaderList = ()
        try:
            admission = self._gate.admit(scope)
            headers = admission.headers
            check_body_type(scope, JSON_TYPES)
            profile = _profile(scope)
            async with self._bodies.read(scope, receive) as body:
                _check(body)
                server = await asyncio.to_thread(_server)
                scope[_CALLER] = self._caller(admission.principal, observation(scope), len(body))
                scope[_PROFILE] = profile
                await _handle(server, scope, _replayed(body, receive), _with_headers(send, headers))
        except ClientDisconnected:
            return
        except (HttpRefusal, MemoreeError) as error:
            refused = error if isinstance(error, HttpRefusal) else HttpRefusal(error)
            observation(scope).code = refused.error.code
            await send_answer(refusal_answer(scope, refused).with_headers(*headers), scope, receive, send)

    def _caller(self, principal: Principal, seen: Observation, size: int) -> Caller:
        from memoree.mcp.asking import Caller

        context = principal.context.model_dump(exclude_none=True)

        async def ask(op: str, input: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
            """In the token's context, at head, with a scope of the token."""
            found = operation(op)
            if found is None or found.internal:
                invalid(f"op: there is no operation {shown(op)}")
            seen.op, seen.code = op, CODE_OK
            try:
                principal.require(found.scope)
                envelope = Envelope(
                    request_id=f"req_{new_ulid()}",
                    op=op,
                    idempotency_key=key,
                    context=context,
                    context_source="explicit",
                    input=dict(input),
                )
                in_thread = size >= VALIDATE_IN_THREAD_BYTES_MIN
                call = await asyncio.to_thread(validate, envelope) if in_thread else validate(envelope)
                return await self._result(principal.tenant, Request(envelope, call))
            except MemoreeError as error:
                seen.code = error.code
                raise

        return Caller(ask, context, principal.agent)

    async def _result(self, tenant: str, request: Request) -> Mapping[str, Any]:
        reply = await self._decided(tenant, request)
        if reply.snapshot_commit_seq is not None:
            self._metrics.saw_commit(tenant, reply.snapshot_commit_seq)
        if (error := reply.envelope.get("error")) is not None:
            raise MemoreeError.from_wire(error)
        result: Mapping[str, Any] = reply.envelope["result"]
        return result

    async def _decided(self, tenant: str, request: Request) -> Reply:
        """The reply; one that is pending is asked for again by the identical request."""
        end = time.monotonic() + DECIDED_SECONDS_MAX
        while True:
            wait = min(limits.WRITE_WAIT_SECONDS_MAX, max(0.0, end - time.monotonic()))
            reply = await self._services.service.call(tenant, request, wait_seconds=wait, strong=True)
            is_pending = (reply.envelope.get("error") or {}).get("code") == Code.WRITE_PENDING
            if not is_pending or time.monotonic() >= end:
                return reply
            await asyncio.sleep(min(reply.retry_after_seconds or 1.0, 1.0))


@cache
def _server() -> Server[Any]:
    """Of this process; it keeps nothing between requests. Raises `CONFIG_ERROR` where the SDK is not installed."""
    try:
        from memoree.mcp.sdk import listed, sdk_server
    except ModuleNotFoundError as error:
        message = f"this server has no MCP: {error.name} is not installed; `memoree[mcp]` brings it"
        raise MemoreeError(Code.CONFIG_ERROR, message) from error

    logging.getLogger(_SDK_LOGGER).setLevel(logging.WARNING)  # it tells of every request that it begins and ends
    for profile in PROFILES:
        listed(profile)
    return sdk_server(_caller_of, _profile_of)


async def _caller_of(context: ServerRequestContext[Any, Any]) -> Caller:
    assert context.request is not None, "this transport attaches the HTTP request"
    caller: Caller = context.request.scope[_CALLER]
    return caller


def _profile_of(context: ServerRequestContext[Any, Any]) -> str:
    assert context.request is not None, "this transport attaches the HTTP request"
    return str(context.request.scope[_PROFILE])


async def _handle(server: Server[Any], scope: Scope, receive: Receive, send: Send) -> None:
    """One request by a manager of its own: there are no sessions for it to keep, and so none to lose with a process."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    manager = StreamableHTTPSessionManager(
        server, json_response=True, stateless=True, max_request_body_size=BODY_BYTES_MAX
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)


def _profile(scope: Scope) -> str:
    """What `?profile=` says. Raises `INVALID_REQUEST`."""
    query: bytes = scope["query_string"]
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    names = given.pop(PROFILE_PARAMETER, [PROFILES[0]])
    if given or len(names) != 1 or names[0] not in PROFILES:
        invalid(f"the one query parameter is {PROFILE_PARAMETER}, {' or '.join(PROFILES)}")
    return names[0]


def _check(body: bytes) -> None:
    """Raises 400 for more JSON values than can be meant."""
    try:
        check_density(body)
    except MemoreeError as error:
        raise HttpRefusal(error) from error


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body that was read already, then whatever comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _with_headers(send: Send, headers: HeaderList) -> Send:
    more = [*SECURITY_HEADERS, *headers]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            message = {**message, "headers": [*message["headers"], *(pair for pair in more if pair[0] not in own)]}
        await send(message)

    return sending

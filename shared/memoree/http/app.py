"""The HTTP application: routes, middlewares and the state of one process, tied together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memoree import limits
from memoree.browsing.lists import LISTINGS
from memoree.errors import Code, MemoreeError
from memoree.http.admin.tenants import (
    TENANTS_PATH,
    CreateTenantEndpoint,
    DeleteTenantEndpoint,
    ListTenantsEndpoint,
    QuotaEndpoint,
    ShowTenantEndpoint,
)
from memoree.http.admin.tokens import TOKENS_PATH, CreateTokenEndpoint, ListTokensEndpoint, RevokeTokenEndpoint
from memoree.http.answers import BULK_PATH, CALL_PATH, EVENTS_PATH, OPERATIONS_PATH, Answer, HttpRefusal, refusal_answer
from memoree.http.attempts import OperationEndpoint
from memoree.http.body import BodyReader, send_answer
from memoree.http.browse import ListEndpoint
from memoree.http.bulk import BulkEndpoint
from memoree.http.calls import CallEndpoint, Calls
from memoree.http.compression import Compression
from memoree.http.content import CONTENT_PATH, ContentEndpoint
from memoree.http.described import Descriptions
from memoree.http.events import EventsEndpoint
from memoree.http.gate import Gate
from memoree.http.health import Readiness, ReadyEndpoint, healthz, livez
from memoree.http.mcp import MCP_PATH, McpEndpoint
from memoree.http.memoryprotocol.door import BODY_BYTES_MAX, Door
from memoree.http.memoryprotocol.episode import EpisodeEndpoint
from memoree.http.memoryprotocol.forget import ForgetEndpoint
from memoree.http.memoryprotocol.ingest import IngestEndpoint
from memoree.http.memoryprotocol.measured import VerbMetrics
from memoree.http.memoryprotocol.recall import RecallEndpoint
from memoree.http.memoryprotocol.refusals import PATHS as MEMORYPROTOCOL_PATHS
from memoree.http.memoryprotocol.refusals import Refusal
from memoree.http.memoryprotocol.snapshot import SnapshotEndpoint
from memoree.http.metrics import CheckCollector, Metrics, MetricsEndpoint, metrics_switched_off
from memoree.http.observation import Observation, observation
from memoree.http.origin import LoopbackGuard
from memoree.http.requestids import RequestIds
from memoree.http.services import ServiceHolder, ServiceSource
from memoree.http.settings import HttpSettings
from memoree.http.uploads import DeclareEndpoint, ReceiveEndpoint
from memoree.uploads import UPLOADS_PATH

LIMITED_PREFIXES = ("/v1/", MCP_PATH)
EXPOSED_HEADERS = (
    "Accept-Ranges",
    "Content-Range",
    "ETag",
    "Memoree-Commit-Seq",
    "Preference-Applied",
    "RateLimit-Limit",
    "RateLimit-Remaining",
    "RateLimit-Reset",
    "Retry-After",
    "X-Request-Id",
)

log = logging.getLogger(__name__)
access_log = logging.getLogger("memoree.http.access")


def create_app(source: ServiceSource, settings: HttpSettings) -> Starlette:
    """The application of one process over a service, or over what opens one for the app's lifetime.

    `app.state.settings` and `.metrics` are there for `run` and `metrics_app`; whoever serves the app sets
    `app.state.draining` when it is about to stop, and without a lifespan opens `app.state.tokens`. Raises
    `CONFIG_ERROR` for settings that cannot be meant.
    """
    metrics = Metrics()
    services = ServiceHolder(source)
    gate = Gate(settings, metrics, services.granted)
    readiness = Readiness(services, gate.tokens)
    metrics.registry.register(CheckCollector(lambda: readiness.last_checks))
    measured = VerbMetrics(metrics.registry, lambda: readiness.last_checks)
    exposition = MetricsEndpoint(metrics, readiness.report) if settings.metrics else metrics_switched_off
    described = Descriptions(settings)
    calls = Calls(services, gate, metrics)
    draining = asyncio.Event()
    door = Door(services, gate, metrics, measured, BodyReader(bytes_max=BODY_BYTES_MAX))
    routes = [
        _route(CALL_PATH, POST=CallEndpoint(calls, gate, BodyReader())),
        _route(BULK_PATH, POST=BulkEndpoint(calls, gate, metrics, draining)),
        _route(f"{OPERATIONS_PATH}/{{attempt_id}}", GET=OperationEndpoint(services, gate)),
        _route(UPLOADS_PATH, POST=DeclareEndpoint(services, gate)),
        _route(f"{UPLOADS_PATH}/{{upload_id}}/content", PUT=ReceiveEndpoint(services, gate)),
        _route(CONTENT_PATH, GET=ContentEndpoint(services, gate, metrics)),
        *(_route(f"/v1/{each.name}", GET=ListEndpoint(each, services, gate, metrics)) for each in LISTINGS),
        _route(EVENTS_PATH, GET=EventsEndpoint(services, gate, metrics, draining)),
        _route("/v1/ingest", POST=IngestEndpoint(door)),
        _route("/v1/recall", POST=RecallEndpoint(door, graph_mode=settings.graph_mode)),
        _route("/v1/forget", POST=ForgetEndpoint(door)),
        _route("/v1/snapshot/{lsn}", GET=SnapshotEndpoint(door, draining)),
        _route("/v1/episode/{episode_id}", GET=EpisodeEndpoint(door)),
        _route(MCP_PATH, POST=McpEndpoint(services, gate, metrics)),
        _route(TOKENS_PATH, GET=ListTokensEndpoint(gate), POST=CreateTokenEndpoint(gate)),
        _route(f"{TOKENS_PATH}/{{id}}", DELETE=RevokeTokenEndpoint(gate)),
        _route(TENANTS_PATH, GET=ListTenantsEndpoint(services, gate), POST=CreateTenantEndpoint(services, gate)),
        _route(
            f"{TENANTS_PATH}/{{tenant}}",
            GET=ShowTenantEndpoint(services, gate),
            DELETE=DeleteTenantEndpoint(services, gate),
        ),
        _route(f"{TENANTS_PATH}/{{tenant}}/quota", PUT=QuotaEndpoint(services, gate)),
        _route("/v1/schema", GET=described.schema),
        _route("/openapi.json", GET=described.openapi),
        _route("/docs", GET=described.docs),
        _route("/livez", GET=livez()),
        _route("/readyz", GET=ReadyEndpoint(readiness)),
        _route("/healthz", GET=healthz()),
    ]
    if settings.metrics_on_main_port or not settings.metrics:
        routes.append(_route("/metrics", GET=exposition))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with gate.opened(), services.lifespan(app):
            yield
            await readiness.close()

    app = _starlette(routes, _middlewares(settings, metrics), lifespan)
    app.state.settings, app.state.metrics, app.state.exposition = settings, metrics, exposition
    app.state.draining, app.state.tokens = draining, gate.tokens
    return app


def metrics_app(app: Starlette) -> Starlette:
    """`/metrics` of an application of this process, for a bind address of its own."""
    observer = Middleware(Observer, metrics=Metrics(), access_log_on=False)
    return _starlette([_route("/metrics", GET=app.state.exposition), _route("/livez", GET=livez())], [observer], None)


def _starlette(routes: Sequence[BaseRoute], middleware: Sequence[Middleware], lifespan: object) -> Starlette:
    around = [Middleware(RequestIds), *middleware, Middleware(Compression)]
    app = Starlette(routes=routes, middleware=around, lifespan=lifespan)  # type: ignore[arg-type]  # its TypeVar
    app.router.redirect_slashes = False
    app.router.default = _not_found
    return app


def _middlewares(settings: HttpSettings, metrics: Metrics) -> list[Middleware]:
    observer = Middleware(Observer, metrics=metrics, access_log_on=settings.access_log)
    if settings.tokens_file is None:
        return [observer, Middleware(LoopbackGuard)]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.cors_origins,
        allow_methods=("*",),
        allow_headers=("*",),
        expose_headers=EXPOSED_HEADERS,
    )
    return [cors, observer]


class Observer:
    """Around every request: the bound on requests in flight, measurements, the access log, and the last resort for
    exceptions nobody expected."""

    def __init__(self, app: ASGIApp, metrics: Metrics, access_log_on: bool) -> None:
        self.app = app
        self._metrics = metrics
        self._access_log_on = access_log_on
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        seen = observation(scope)
        started = time.perf_counter()

        async def watched_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.status = message["status"]
            await send(message)

        self._in_flight += 1
        self._metrics.in_flight.inc()
        try:
            await self._serve(scope, receive, watched_send, seen)
        finally:
            self._in_flight -= 1
            self._metrics.in_flight.dec()
            seconds = time.perf_counter() - started
            self._metrics.answered(seen, seconds)
            if self._access_log_on:
                _log_access(scope, seen, seconds)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, seen: Observation) -> None:
        if self._in_flight > limits.HTTP_REQUESTS_IN_FLIGHT_MAX and scope["path"].startswith(LIMITED_PREFIXES):
            self._metrics.shed.inc()
            error = MemoreeError(Code.TRANSPORT_ERROR, "too many requests are being served; nothing was stored")
            await send_answer(_refused(scope, HttpRefusal(error)), scope, receive, send)
            return
        try:
            await self.app(scope, receive, send)
        except Exception:
            log.exception("a request failed", extra={"request_id": seen.request_id, "route": seen.route})
            if seen.status:
                raise  # the response has begun; the server can only close the connection
            error = MemoreeError(Code.INTERNAL_ERROR, "the request failed; see the log")
            await send_answer(_refused(scope, HttpRefusal(error)), scope, receive, send)


class Methods:
    """One path and what its methods do. `HEAD` comes with `GET`, `OPTIONS` says what there is."""

    def __init__(self, path: str, methods: Mapping[str, ASGIApp]) -> None:
        self._path = path
        self._methods = dict(methods)
        if "GET" in self._methods:
            self._methods["HEAD"] = self._methods["GET"]
        self._allow = ((b"allow", ", ".join(sorted([*self._methods, "OPTIONS"])).encode()),)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        observation(scope).route = self._path
        method = scope["method"]
        if method in self._methods:
            await self._methods[method](scope, receive, send)
        elif method == "OPTIONS":
            await send_answer(Answer(204, b"", self._allow), scope, receive, send)
        else:
            error = MemoreeError(Code.INVALID_REQUEST, f"this path does not know the method {method}")
            refused = HttpRefusal(error, status=405, headers=self._allow)
            await send_answer(_refused(scope, refused), scope, receive, send)


def _route(path: str, **methods: ASGIApp) -> Route:
    return Route(path, Methods(path, methods))


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1000})
        return
    refused = HttpRefusal(MemoreeError(Code.NOT_FOUND, "there is nothing at this path"))
    await send_answer(_refused(scope, refused), scope, receive, send)


def _refused(scope: Scope, refused: HttpRefusal) -> Answer:
    if scope["path"].startswith(MEMORYPROTOCOL_PATHS):
        told = Refusal.of_http(refused)
        observation(scope).code = told.code
        return told.answer(scope)
    observation(scope).code = refused.error.code
    return refusal_answer(scope, refused)


def _log_access(scope: Scope, seen: Observation, seconds: float) -> None:
    access_log.info(
        "%s %s %d",
        scope["method"],
        seen.route,
        seen.status,
        extra={
            "op": seen.op,
            "code": seen.code,
            "tenant": seen.tenant,
            "request_id": seen.request_id,
            "http_request_id": seen.http_request_id,
            "milliseconds": round(seconds * 1000, 2),
        },
    )

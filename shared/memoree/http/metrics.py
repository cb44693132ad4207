"""What the process measures, in the Prometheus text format 0.0.4.

Labels come from closed sets — routes, operations, codes, tenants of the tokens file — so the number of series never
grows with traffic. Every app has a registry of its own.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import Receive, Scope, Send

from memoree.http.answers import Answer
from memoree.http.observation import CODE_OK, Observation, observation
from memoree.service import Check

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
LATENCY_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_NOT_IN_METRIC_NAMES = re.compile(r"[^a-z0-9_]+")

# The text format 0.0.4 has no place for a series' birth; the library's default would add one `_created` per series.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no annotation there


class Metrics:
    """The door's own measurements."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "memoree_http_requests", "Requests answered.", ("route", "op", "code"), registry=self.registry
        )
        self.seconds = Histogram(
            "memoree_http_request_duration_seconds",
            "From the request's head to the end of its response.",
            ("route", "op"),
            buckets=LATENCY_BUCKETS_SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge("memoree_http_in_flight", "Requests being served now.", registry=self.registry)
        self.shed = Counter(
            "memoree_http_shed", "Requests refused because too many were being served.", registry=self.registry
        )
        self.bulk_lines = Counter(
            "memoree_http_bulk_lines", "Lines of bulk requests answered.", ("op", "code"), registry=self.registry
        )
        self.rate_limited = Counter(
            "memoree_http_rate_limited", "Requests over their tenant's rate.", ("tenant",), registry=self.registry
        )
        self.commit_seq = Gauge(
            "memoree_commit_seq", "Newest commit an answer was computed from.", ("tenant",), registry=self.registry
        )
        self._commits: dict[str, int] = {}

    def saw_commit(self, tenant: str, commit_seq: int) -> None:
        if commit_seq > self._commits.get(tenant, -1):
            self._commits[tenant] = commit_seq
            self.commit_seq.labels(tenant).set(commit_seq)

    def answered(self, seen: Observation, seconds: float) -> None:
        self.requests.labels(seen.route, seen.op, seen.code or str(seen.status)).inc()
        self.seconds.labels(seen.route, seen.op).observe(seconds)


class CheckCollector(Collector):
    """The readiness checks and what they measured, such as the age of a replica or the depth of a queue:
    `memoree_check_ok{check}` and one gauge `memoree_<check>_<measure>` for each measure."""

    def __init__(self, checks: Callable[[], Iterable[Check]]) -> None:
        self._checks = checks

    def collect(self) -> Iterator[GaugeMetricFamily]:
        verdicts = GaugeMetricFamily("memoree_check_ok", "1 when the readiness check is green.", labels=["check"])
        for check in self._checks():
            verdicts.add_metric([check.name], float(check.ok))
            for measure, value in check.measures.items():
                name = _NOT_IN_METRIC_NAMES.sub("_", f"memoree_{check.name}_{measure}".lower())
                yield GaugeMetricFamily(name, f"Measured by the readiness check {check.name}.", value=value)
        yield verdicts


class MetricsEndpoint:
    """The exposition. `refresh` is awaited first, so that the checks are no older than their cache."""

    def __init__(self, metrics: Metrics, refresh: Callable[[], Awaitable[object]]) -> None:
        self._metrics = metrics
        self._refresh = refresh

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._refresh()
        observation(scope).code = CODE_OK
        await Answer(200, generate_latest(self._metrics.registry), content_type=CONTENT_TYPE).send(send)


async def metrics_switched_off(scope: Scope, receive: Receive, send: Send) -> None:
    """In place of the exposition, in the contract's words (MemoryProtocol §10.3)."""
    body = b"metrics disabled at startup via --metrics-disabled"
    await Answer(404, body, content_type=b"text/plain; charset=utf-8").send(send)

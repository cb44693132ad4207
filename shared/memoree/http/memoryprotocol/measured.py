"""The metrics that MemoryProtocol names (§10.3), beside the service's own.

Verbs count what their handler was given. What the gate or the parser refuses, and what nobody waited for, moves
nothing; neither does a shape that is judged only where it would be stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from memoree.episodes.targets import Target, kind_of
from memoree.errors import Code, MemoreeError
from memoree.http.body import ClientDisconnected
from memoree.http.memoryprotocol.refusals import UNKNOWN, VALIDATE, Refusal
from memoree.operations.forget_episodes import CONFIRMATION_REQUIRED
from memoree.service import Check

BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
KINDS = ("storage", VALIDATE, "extract", "retrieve", "consolidate", UNKNOWN)
"""Of errors. Nothing here extracts or consolidates."""
_KIND: Mapping[str, str] = {
    **{kind: kind for kind in KINDS},
    CONFIRMATION_REQUIRED: VALIDATE,
    "write_pending": "storage",
}
"""By the code of a refusal. Other codes are of requests that were at fault, not of the engine."""
_UNKNOWN_DEPTH = float("nan")

Status = Literal["ok", "error"]


class VerbMetrics:
    """Of one application. Tenants, modes, kinds: no label grows with traffic."""

    def __init__(self, registry: CollectorRegistry, checks: Callable[[], Iterable[Check]]) -> None:
        def counter(name: str, says: str, *labels: str) -> Counter:
            return Counter(f"lunaris_{name}", says, labels, registry=registry)

        def seconds(name: str, says: str, *labels: str) -> Histogram:
            return Histogram(
                f"lunaris_{name}_duration_seconds", says, labels, buckets=BUCKETS_SECONDS, registry=registry
            )

        self._ingests = counter("ingest", "Ingests that reached the handler.", "tenant", "status")
        self._ingest_seconds = seconds("ingest", "Time of an ingest in the handler.", "tenant")
        self._recalls = counter("recall", "Recalls that reached the handler.", "tenant", "mode", "status")
        self._recall_seconds = seconds("recall", "Time of a recall in the handler.", "tenant", "mode")
        self._forgets = counter("forget", "Forgets that reached the handler.", "tenant", "target_kind", "hard")
        self._errors = counter("error", "Errors of the engine.", "kind")
        for kind in KINDS:
            self._errors.labels(kind)
        Gauge("lunaris_eval_score", "Scores of evaluations in this process.", ("harness",), registry=registry)
        registry.register(QueueDepths(checks))

    @contextmanager
    def ingest(self, tenant: str) -> Iterator[None]:
        def finished(status: Status, seconds: float) -> None:
            self._ingests.labels(tenant, status).inc()
            self._ingest_seconds.labels(tenant).observe(seconds)

        with self.handled(finished):
            yield

    @contextmanager
    def recall(self, tenant: str, mode: str) -> Iterator[None]:
        def finished(status: Status, seconds: float) -> None:
            self._recalls.labels(tenant, mode, status).inc()
            self._recall_seconds.labels(tenant, mode).observe(seconds)

        with self.handled(finished):
            yield

    @contextmanager
    def forget(self, tenant: str, target: Target, *, hard: bool) -> Iterator[None]:
        """`hard` as it was asked for, whatever came of it."""

        def finished(status: Status, seconds: float) -> None:
            self._forgets.labels(tenant, kind_of(target), str(hard).lower()).inc()

        with self.handled(finished):
            yield

    @contextmanager
    def handled(self, finished: Callable[[Status, float], None] = lambda status, seconds: None) -> Iterator[None]:
        """Around a handler's work. Tells how it ended and after how many seconds, and counts an error by its kind."""
        began = time.perf_counter()
        try:
            yield
        except ClientDisconnected:
            raise
        except Exception as error:
            if not _is_of_shape(error):
                finished("error", time.perf_counter() - began)
                self.failed(error)
            raise
        finished("ok", time.perf_counter() - began)

    def failed(self, error: Exception) -> None:
        if (kind := _KIND.get(Refusal.of_any(error).code)) is not None:
            self._errors.labels(kind).inc()


class QueueDepths(Collector):
    """Writes that wait for their turn, as the readiness check of the queue last found them: no more than the age of its
    cache ago. The check is missing where the writer is in this process, and nothing ever waits. Nothing at all is to be
    consolidated."""

    def __init__(self, checks: Callable[[], Iterable[Check]]) -> None:
        self._checks = checks

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, says, depth in (
            ("verify", "Writes that are not decided yet.", self._undecided()),
            ("consolidator", "Nothing is consolidated here.", 0.0),
        ):
            family = GaugeMetricFamily(f"lunaris_{name}_queue_depth", says, labels=["topic"])
            family.add_metric([_TOPIC[name]], depth)
            yield family

    def _undecided(self) -> float:
        queue = next((check for check in self._checks() if check.name == "queue"), None)
        if queue is None:
            return 0.0
        return queue.measures.get("waiting", _UNKNOWN_DEPTH) + queue.measures.get("in_flight", 0.0)


_TOPIC: Mapping[str, str] = {"verify": "__lunaris_verify__", "consolidator": "__lunaris_consolidate__"}


def _is_of_shape(error: Exception) -> bool:
    return isinstance(error, MemoreeError) and error.code is Code.INVALID_REQUEST

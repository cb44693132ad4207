"""`scripts/costs`: how many requests to S3 and SQS a deployment makes, and what they would cost.

A writer process and an api, against a real SeaweedFS and an SQS emulator, both behind proxies that count. Writes and
reads come at a steady rate. The table goes into docs/costs.md; the arithmetic there is prices times these numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.proxy import Proxy, store_proxy
from faults.site import Clients, Site
from memoree import limits
from memoree.errors import Code
from memoree.ids import AttemptId
from memoree.queue.sqs import SqsEndpoint
from memoree.queue.sqs_setup import ensure_queues
from ministack_support import running_ministack
from stack_support import running_seaweedfs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "costs.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
RATES = (1, 10, 100)
SECONDS = {1: 60.0, 10: 30.0, 100: 20.0}
TENANTS = {1: 1, 10: 1, 100: 8}
"""Over how many the writes are spread: SQS delivers ten messages of one group at a time."""
IDLE_SECONDS = 60.0
SETTLE_SECONDS = 2.0
WARM_UP = 20
KEPT_UP = 0.8
"""Of the rate that was asked for: below this the machine is what is measured, and the table says so."""
PENDING_LOOK_SECONDS = 5.0

S3_PRICES = {"write": 0.005 / 1000, "read": 0.0004 / 1000, "delete": 0.0}
SQS_PRICE = 0.50 / 1_000_000
"""US dollars per request, us-east-1, FIFO, first tier; look the present ones up before you rely on them."""


@dataclass
class Meter:
    """Requests by kind, as they are billed: S3's writes and lists, its reads, deletions (free), and SQS's."""

    counts: Counter[str] = field(default_factory=Counter)

    def listen(self, s3: Proxy, sqs: Proxy) -> None:
        s3.heard = self._s3
        sqs.heard = lambda _method, _path: self.counts.update(["sqs"])

    def _s3(self, method: str, path: str) -> None:
        if method in ("PUT", "POST") or (method == "GET" and re.search(r"[?&](list-type|uploads)", path)):
            self.counts["write"] += 1
        elif method == "DELETE":
            self.counts["delete"] += 1
        else:
            self.counts["read"] += 1

    @contextlib.asynccontextmanager
    async def counted(self) -> AsyncIterator[Counter[str]]:
        before = Counter(self.counts)
        found: Counter[str] = Counter()
        yield found
        found.update(self.counts - before)


@dataclass(frozen=True, slots=True)
class Line:
    what: str
    per: str
    counts: Mapping[str, float]

    @property
    def dollars(self) -> float:
        paid = sum(S3_PRICES[kind] * self.counts.get(kind, 0.0) for kind in S3_PRICES)
        return paid + SQS_PRICE * self.counts.get("sqs", 0.0)

    def row(self) -> str:
        numbers = (self.counts.get(kind, 0.0) for kind in ("write", "read", "delete", "sqs"))
        return f"| {self.what} | {self.per} | {' | '.join(f'{each:.0f}' for each in numbers)} | {self.dollars:.5f} |"


async def measure(directory: Path, s3_endpoint: Site, sqs: SqsEndpoint) -> list[Line]:
    site, meter, lines = s3_endpoint, Meter(), []
    urls = await ensure_queues("costs", endpoint=sqs)
    async with store_proxy(site.s3.endpoint_url or "") as store, store_proxy(sqs.endpoint_url or "") as queue:
        meter.listen(store, queue)
        overrides = {
            "endpoint_url": store.url,
            "queue_url": urls.url,
            "dead_letter_url": urls.dead_letter_url,
            "queue_endpoint_url": queue.url,
            "access_key_id": site.s3.access_key_id,
            "secret_access_key": site.s3.secret_access_key,
            "lease_ttl_seconds": limits.LEASE_TTL_SECONDS,
            "lease_renew_seconds": limits.LEASE_RENEW_SECONDS,
            "settle_after_idle_seconds": SETTLE_SECONDS,
        }
        with site.writer(**overrides):
            async with site.clients(**overrides) as clients:
                for rate in RATES:
                    tenants = [f"{site.tenant}-{number}" for number in range(TENANTS[rate])]
                    for tenant in tenants:
                        await clients.write_many(f"warm at {rate}", WARM_UP, tenant=tenant)
                    async with meter.counted() as found:
                        done = await _steadily(rate, lambda number: _write(clients, tenants, number))  # noqa: B023
                    of = f" over {len(tenants)} tenants" if len(tenants) > 1 else ""
                    lines.append(_per_thousand(f"writes, {done.rate_told}{of}", found, done.number))
                for rate in RATES:
                    async with meter.counted() as found:
                        done = await _steadily(rate, lambda _: _read(clients))
                    lines.append(_per_thousand(f"reads, {done.rate_told}", found, done.number))
                async with meter.counted() as found:
                    await _steadily(0.2, lambda _: _read(clients), seconds=IDLE_SECONDS)
                lines.append(_per_minute("a tenant that is read now and then", found))
            async with meter.counted() as found:
                await asyncio.sleep(IDLE_SECONDS)
            lines.append(_per_minute("a settled tenant, nobody reads; one writer waits on the queue", found))
    return lines


@dataclass(frozen=True, slots=True)
class Done:
    """How many there were of what was asked for at a rate per second, and the seconds until the last was answered."""

    rate: float
    number: int
    seconds: float

    @property
    def rate_told(self) -> str:
        reached = self.number / self.seconds
        return f"{self.rate:g}/s" if reached > KEPT_UP * self.rate else f"{self.rate:g}/s sent, {reached:.0f}/s done"


async def _steadily(rate: float, work: Callable[[int], Awaitable[object]], *, seconds: float | None = None) -> Done:
    """So many a second, however long each takes."""
    began = time.monotonic()
    running = []
    for number in range(int(rate * (seconds or SECONDS[int(rate)]))):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        running.append(asyncio.ensure_future(work(number)))
    await asyncio.gather(*running)
    return Done(rate, len(running), time.monotonic() - began)


async def _write(clients: Clients, tenants: Sequence[str], number: int) -> None:
    """Sent once: whoever sends again while a queue is deep makes it deeper."""
    claim = {"claim_type": "fact", "statement": f"statement {number} of {len(tenants)}"}
    reply = await clients.call(
        "claim.assert",
        claim,
        key=f"{len(tenants)}/{number}",
        tenant=tenants[number % len(tenants)],
        wait_seconds=limits.WRITE_WAIT_SECONDS_MAX,
    )
    if not reply.envelope["ok"]:
        await _applied(clients, tenants[number % len(tenants)], reply.envelope["error"])


async def _applied(clients: Clients, tenant: str, error: Mapping[str, Any]) -> None:
    """Once a pending write is; a machine that cannot keep up has many."""
    assert error["code"] == Code.WRITE_PENDING, error
    attempt_id = AttemptId(error["details"]["attempt_id"])
    while (status := await clients.service.operation_status(tenant, attempt_id)).state == "pending":  # noqa: ASYNC110 - another process applies it
        await asyncio.sleep(PENDING_LOOK_SECONDS)
    assert status.state == "applied", status


async def _read(clients: Clients) -> None:
    reply = await clients.call("search", {"query": "statement"}, tenant=f"{clients.site.tenant}-0")
    assert reply.envelope["ok"], reply.envelope


def _per_thousand(what: str, counts: Counter[str], done: int) -> Line:
    return Line(what, "1 000", {kind: number * 1000 / done for kind, number in counts.items()})


def _per_minute(what: str, counts: Counter[str]) -> Line:
    return Line(what, "minute", {kind: number * 60 / IDLE_SECONDS for kind, number in counts.items()})


def table(lines: list[Line]) -> str:
    head = ["| | per | S3 writes and lists | S3 reads | S3 deletions | SQS requests | US $ |", "|---|" + "---|" * 6]
    return "\n".join([*head, *(line.row() for line in lines)]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/costs", description="Count the requests that are billed.")
    parser.add_argument("--write", action="store_true", help="put the table into docs/costs.md")
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="memoree-costs-") as name,
        running_seaweedfs(Path(name) / "store") as s3,
    ):
        home = Path(name) / "sqs"
        home.mkdir()
        with running_ministack(home) as sqs:
            lines = asyncio.run(measure(Path(name), Site(Path(name), s3), sqs))
    print(table(lines))
    if chosen.write:
        text = PAGE.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{table(lines)}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How long a tenant of 20 MB cannot be written to when its writer goes: from the moment it is gone, or is told to go,
until a write that was sent at that moment is acknowledged.

A supervised writer is the stack's own, killed under it. The others have a queue of their own: two writers that honour
each other's leases, and the one in charge is killed, or asked to end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from memoree import limits
from memoree.assembly import replicated_service
from memoree.operations.call import decode, validate
from memoree.reader.service import ReplicatedService
from memoree.replication import layout
from memoree.replication.head import HeadFile
from memoree.service import Request
from memoree.writer.worker import READY

from ..figures import Figure, Ratio, p50
from ..filling import fill
from ..processes import descendants
from ..site import FAILOVER, Site, say
from ..wire import assert_text
from .backup import job_settings

ROUNDS_MAX = 5
START_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.1

_numbers = count()


async def measure_supervised(site: Site) -> Figure:
    await _filled(site)
    seconds: list[float] = []
    async with await site.stack.caller(FAILOVER) as caller:
        for _ in range(min(site.plan.rounds, ROUNDS_MAX)):
            await caller.call(assert_text(f"before the kill {next(_numbers)}"))
            [writer] = descendants(site.stack.pid, "memoree.stack.processes supervised-writer")
            began = time.perf_counter()
            os.kill(writer, signal.SIGKILL)
            await caller.call(assert_text(f"after the kill {next(_numbers)}"))
            seconds.append(time.perf_counter() - began)
    return Figure(p50(seconds), None, {"failover_supervised_worst_s": max(seconds)})


async def measure_unsupervised(site: Site) -> Figure:
    gone = await site.once_for_all(_replaced)
    return Figure(gone.killed, None, {"failover_unsupervised_s": gone.killed})


async def measure_planned(site: Site) -> Figure:
    gone = await site.once_for_all(_replaced)
    return Figure(p50(gone.asked), None, {"hand_over_worst_s": max(gone.asked)})


@dataclass(frozen=True, slots=True)
class _Gone:
    """Seconds until the next acknowledged write, of writers that were asked to end and of one that was killed."""

    asked: list[float]
    killed: float


async def _replaced(site: Site) -> _Gone:
    await _filled(site)
    async with _pair(site) as pair:
        asked = [await pair.replaced(signal.SIGTERM) for _ in range(min(site.plan.rounds, ROUNDS_MAX))]
        return _Gone(asked, await pair.replaced(signal.SIGKILL))


async def _filled(site: Site) -> None:
    head = await HeadFile(site.store, layout.tenant_prefix(FAILOVER)).read()
    if head is None or not head.head.commit_seq:
        directory = site.directory / "failover"
        directory.mkdir(mode=0o700)
        await fill(site.stack, site.store, FAILOVER, site.plan.failover_claims, directory, say)


@dataclass(slots=True)
class _Pair:
    """A writer in charge, and one that stands by."""

    service: ReplicatedService
    environment: Mapping[str, str]
    logs: Path
    writers: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def replaced(self, number: signal.Signals) -> float:
        """Seconds until a write is acknowledged that is sent when the writer in charge gets the signal."""
        await self.start()
        await self.write()
        began = time.perf_counter()
        first = self.writers.pop(0)
        first.send_signal(number)
        await self.write()
        seconds = time.perf_counter() - began
        await first.wait()
        return seconds

    async def start(self) -> None:
        """One more writer, which proves the store and then waits for the leases of others."""
        command = (sys.executable, "-m", "memoree.stack.processes", "writer")
        log = self.logs / f"writer-{next(_numbers)}.log"
        with log.open("wb") as stderr:
            self.writers.append(
                await asyncio.create_subprocess_exec(
                    *command, env=self.environment, stdout=asyncio.subprocess.DEVNULL, stderr=stderr
                )
            )
        async with asyncio.timeout(START_SECONDS_MAX):
            while READY not in log.read_text():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(LOOK_SECONDS)

    async def write(self) -> None:
        envelope = decode(assert_text(f"the claim {next(_numbers)}"))
        request = Request(envelope, validate(envelope))
        while True:
            reply = await self.service.call(FAILOVER, request, wait_seconds=limits.WRITE_WAIT_SECONDS_MAX)
            if reply.status == 200:
                return
            assert reply.envelope["error"]["retryable"], reply.envelope

    async def end(self) -> None:
        for writer in self.writers:
            writer.terminate()
        await asyncio.gather(*(writer.wait() for writer in self.writers))


@asynccontextmanager
async def _pair(site: Site) -> AsyncIterator[_Pair]:
    queue_url = f"sqlite://{site.directory / f'failover-{next(_numbers)}.sqlite3'}"
    settings = job_settings(site).model_copy(update={"queue_url": queue_url})
    ttl = site.plan.lease_ttl_seconds
    environment = site.stack.environment(settings.runtime_dir) | {
        "MEMOREE_QUEUE_URL": queue_url,
        "MEMOREE_LEASE_TTL_SECONDS": str(ttl),
        "MEMOREE_LEASE_RENEW_SECONDS": str(ttl / 3),
        "MEMOREE_VISIBILITY_SECONDS": str(ttl),
    }
    async with AsyncExitStack() as stack:
        pair = _Pair(
            await stack.enter_async_context(replicated_service(settings, authorization=False)),
            environment,
            site.directory,
        )
        stack.push_async_callback(pair.end)
        await pair.start()
        yield pair


SUPERVISED = Ratio(
    name="failover_supervised_s",
    measured_is="seconds from the kill of the stack's writer to the next acknowledged write, 20 MB",
    floor_is="-",
    must=5,
    aim=2.5,
    measure=measure_supervised,
)
UNSUPERVISED = Ratio(
    name="failover_unsupervised_s",
    measured_is="the same of a writer whose lease has to run out first, with one standing by",
    floor_is="-",
    must=limits.LEASE_TTL_SECONDS + 8,
    aim=limits.LEASE_TTL_SECONDS + 3,
    measure=measure_unsupervised,
)
PLANNED = Ratio(
    name="hand_over_s",
    measured_is="seconds from asking a writer to end to the next acknowledged write, with one standing by",
    floor_is="-",
    must=2,
    aim=1,
    measure=measure_planned,
)

"""One run: a store, a queue, hosts that live and die, and clients that write and read."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

import apsw

from memoree.clock import Clock
from memoree.objects import StoreUnavailable
from memoree.objects.blobs import blob_digest, blob_key
from memoree.process_directory import ProcessDirectory
from memoree.reader.environment import ReaderEnvironment
from memoree.reader.service import ReplicatedService
from memoree.writer.environment import WriterEnvironment, WriterTimings
from memoree.writer.worker import WriterWorker
from operations.bench import FACTS
from simulation.judge import Judge
from simulation.litestream import Files, SimulatedChild, SimulatedReplicator
from simulation.loop import InlineExecutor, Process, SimulatedLoop
from simulation.plan import Plan
from simulation.queue import Broker
from simulation.store import Bucket, Version
from simulation.trace import Trace
from simulation.virtual_time import BEGINNING, errors_collected, virtual_time

TIMINGS = WriterTimings(lease_ttl=3.0, lease_renew=1.0, watchdog=12.0, sync_timeout=2, visibility=2.0)
"""In the proportions of the defaults."""
STALENESS_SECONDS_MAX = 2.0
BLOB_BYTES = 16 * 1024 + 100
"""More than what lives in a row."""
LEFT_BLOBS = 3
LEFT_FOR = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Beginning:
    """A tenant with a past, to begin runs with: a settled epoch, as a writer leaves it."""

    objects: dict[str, Version]
    files: Files


class World:
    """Everything there is in a run. Made inside `world`."""

    def __init__(
        self, random: Random, plan: Plan, scratch: Path, *, loop: SimulatedLoop, errors: list[str], trace: Trace
    ) -> None:
        self.random, self.plan, self.scratch, self.loop, self.errors = random, plan, scratch, loop, errors
        self.trace = trace
        self.bucket = Bucket(loop, random, trace)
        self.broker = Broker(loop, random, trace)
        self.files = Files()
        self.judge = Judge(self.bucket, self.files, scratch)
        self.broker.on_ack.append(self.judge.taken)
        self.bucket.page_keys_max = plan.page_keys_max
        self.tenants = [f"t{number}" for number in range(plan.tenants)]
        self.left: dict[str, list[bytes]] = {tenant: [] for tenant in self.tenants}
        """Blobs that nobody cites, of long ago."""
        self._replicators: list[SimulatedReplicator] = []
        self._directories: list[ProcessDirectory] = []
        self._hosts = 0

    def begin(self, beginning: Beginning) -> None:
        """Every tenant has the same past."""
        self.files.changes.update(beginning.files.changes)
        for tenant in self.tenants:
            for key, version in beginning.objects.items():
                self.bucket.put(key.replace("/t0/", f"/{tenant}/"), version.body, None, False, self.loop.world)

    def litter(self) -> None:
        """What broken off writes left long ago."""
        for tenant, left in self.left.items():
            for number in range(LEFT_BLOBS):
                body = f"{tenant}'s {number}".encode().ljust(BLOB_BYTES, b"\xff")
                self.bucket.leave(blob_key(tenant, blob_digest(body)), body, age=LEFT_FOR)
                left.append(body)

    def rough(self) -> None:
        """The weather that the plan wants."""
        self.bucket.weather, self.broker.weather = self.plan.weather, self.plan.queue_weather

    # --- hosts --------------------------------------------------------------------------------------------------

    def host(self, kind: str) -> Process:
        self._hosts += 1
        offset = self.plan.clock_offset_seconds_max * (2 * self.random.random() - 1)
        return self.loop.process(f"{kind}{self._hosts}", clock_offset_seconds=offset)

    def replicator(self, process: Process) -> SimulatedReplicator:
        replicator = SimulatedReplicator(self.bucket, self.files, process, self.plan.habits)
        self._replicators.append(replicator)
        return replicator

    def directory(self, process: Process) -> ProcessDirectory:
        directory = ProcessDirectory(self.scratch / process.name)
        self._directories.append(directory)
        return directory

    def clock(self, process: Process) -> Clock:
        return lambda: BEGINNING + timedelta(seconds=self.loop.now + process.clock_offset_seconds)

    def close(self) -> None:
        for replicator in self._replicators:
            for child in replicator.children:
                child.close()
        for directory in self._directories:
            directory.remove()


class WriterHost:
    """A machine that runs the writer, again and again as it dies."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.process: Process
        self.environment: WriterEnvironment
        self._replicator: SimulatedReplicator
        self._stop: asyncio.Event
        self._task: asyncio.Task[None]

    def start(self, *, supervised: bool, on_failure: Callable[[], None]) -> None:
        """`on_failure` when it ends because the store did not answer."""
        world = self._world
        self.process = process = world.host("writer")
        self._replicator = world.replicator(process)
        self.environment = environment = WriterEnvironment(
            store=world.bucket.client(process),
            replicator=self._replicator,
            directory=world.directory(process),
            facts=FACTS,
            executor=InlineExecutor(world.loop),
            timings=_timings(world.plan),
            clock=world.clock(process),
        )
        self._stop = asyncio.Event()

        async def run() -> None:
            await WriterWorker(environment, world.broker.client(process), supervised=supervised).run(self._stop)

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled() or (error := task.exception()) is None:
                return
            if isinstance(error, StoreUnavailable):
                on_failure()
            else:
                world.loop.faults.append(error)

        self._task = process.task(run())
        process.context.copy().run(self._task.add_done_callback, ended)

    @property
    def children(self) -> list[SimulatedChild]:
        return self._replicator.children

    def kill(self) -> None:
        self.process.kill()
        for child in self.children:
            child.orphan()

    @property
    def has_ended(self) -> bool:
        return self._task.done()

    def stop(self) -> None:
        self._stop.set()


def _timings(plan: Plan) -> WriterTimings:
    return WriterTimings(
        lease_ttl=TIMINGS.lease_ttl,
        lease_renew=TIMINGS.lease_renew,
        watchdog=TIMINGS.watchdog,
        settle_after_idle=plan.settle_after_idle,
        sync_timeout=TIMINGS.sync_timeout,
        visibility=TIMINGS.visibility,
    )


class ApiHost:
    """A machine that answers clients."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.process: Process
        self.service: ReplicatedService

    def start(self) -> None:
        world = self._world
        self.process = process = world.host("api")
        environment = ReaderEnvironment(
            store=world.bucket.client(process),
            replicator=world.replicator(process),
            directory=world.directory(process),
            facts=FACTS,
            executor=InlineExecutor(world.loop),
            staleness_seconds_max=STALENESS_SECONDS_MAX,
            clock=world.clock(process),
        )
        queue = world.broker.client(process)
        self.service = process.context.copy().run(ReplicatedService, environment, queue)

    def kill(self) -> None:
        self.process.kill()


@contextmanager
def connections_collected() -> Iterator[list[apsw.Connection]]:
    """Every connection that is opened: killed processes close none."""
    found: list[apsw.Connection] = []
    apsw.connection_hooks.append(found.append)
    try:
        yield found
    finally:
        apsw.connection_hooks.remove(found.append)


@contextmanager
def world(random: Random, plan: Plan, scratch: Path, *, keep_trace: bool) -> Iterator[World]:
    """A run from its first moment to the end of its last task."""
    loop = SimulatedLoop(random)
    scratch.mkdir(parents=True, exist_ok=True)
    trace = Trace(loop, keep=keep_trace)
    with virtual_time(loop, random), errors_collected() as errors, connections_collected() as connections:
        made = loop.world.context.run(lambda: World(random, plan, scratch, loop=loop, errors=errors, trace=trace))
        try:
            yield made
        finally:
            loop.end()
            made.close()
            for connection in connections:
                connection.close(True)
            shutil.rmtree(scratch, ignore_errors=True)

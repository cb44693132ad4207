"""What ratios share: the stack, its store, the floor of writes, and the full tenant, made when first asked for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from memoree import limits
from memoree.objects.s3 import S3Store

from . import data, memories
from .filling import Filled, fill
from .memories import ServedMemory
from .processes import MIB
from .puts import Puts
from .stack import Stack, running_stack
from .wire import Caller, assert_text

SMALL = "bench-small"
"""A tenant for writes, as good as empty."""
FULL = "bench-full"
GRAPH = "bench-graph"
"""A tenant for relations and contradictions."""
BLOBS = "bench-blobs"
"""A tenant for large contents."""
BACKUP = "bench-backup"
"""A tenant that is backed up."""
FAILOVER = "bench-failover"
"""A tenant whose writers go."""
STREAM = "bench-stream"
"""A tenant for one content that is larger than memory should be."""
WARM_UP_WRITES = 20

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. A ratio's samples and its floor's alternate in `rounds`, so that both meet the same
    machine."""

    samples: int = 500
    rounds: int = 10
    cold_starts: int = 10
    claims: int = 100_000
    artifacts: int = 20_000
    claims_grown: int = 1_000_000
    growth_queries: int = 60
    clients: int = 64
    writes_per_client: int = 50
    queries_per_band: int = 170
    edges: int = 10_000
    revisions: int = 1_000
    blobs: int = 25
    blob_bytes: int = 4_000_000
    backup_claims: int = 56_000
    backup_blobs: int = 269
    failover_claims: int = 9_000
    lease_ttl_seconds: float = limits.LEASE_TTL_SECONDS
    stream_bytes: int = 1024 * MIB
    ingested: int = 10_000
    episodes: int = 2_000
    snapshot_rows: int = 200_000
    okf_nodes: int = 10_000

    @property
    def samples_per_round(self) -> int:
        return -(-self.samples // self.rounds)


FULL_PLAN = Plan()
QUICK_PLAN = Plan(
    samples=10,
    rounds=2,
    cold_starts=1,
    claims=1_000,
    artifacts=200,
    claims_grown=5_000,
    growth_queries=6,
    clients=16,
    writes_per_client=4,
    queries_per_band=6,
    edges=250,
    revisions=20,
    blobs=3,
    backup_claims=500,
    backup_blobs=2,
    failover_claims=200,
    lease_ttl_seconds=3.0,
    stream_bytes=16 * MIB,
    ingested=200,
    episodes=50,
    snapshot_rows=1_000,
    okf_nodes=200,
)
"""Enough to prove that everything runs; its numbers mean little."""


class Site:
    """`cranfield` is where that collection is, if it is anywhere; what is opened later is closed with `open_later`."""

    def __init__(
        self,
        plan: Plan,
        stack: Stack,
        store: S3Store,
        puts: Puts,
        directory: Path,
        open_later: AsyncExitStack,
        cranfield: Path | None = None,
    ) -> None:
        self.plan = plan
        self.stack = stack
        self.store = store
        self.puts = puts
        self.directory = directory
        self.cranfield = cranfield
        self._open_later = open_later
        self._filled: Filled | None = None
        self._memory: ServedMemory | None = None
        self._grown_memory: ServedMemory | None = None
        self._found: dict[Callable[..., Any], Any] = {}

    async def filled(self) -> Filled:
        """The tenant `FULL`, filled at the first call."""
        if self._filled is None:
            self._filled = await fill(self.stack, self.store, FULL, self.plan.claims, self.directory, say)
        return self._filled

    async def memory(self) -> ServedMemory:
        """As many claims as the full tenant has, and artifacts, filled and served at the first call."""
        if self._memory is None:
            statements = data.statements(self.plan.claims)
            await asyncio.to_thread(
                memories.fill, self._memory_dir, documents=self.plan.artifacts, statements=statements, say=say
            )
            self._memory = await self._served(self._memory_dir, self.plan.claims)
        return self._memory

    async def grown_memory(self) -> ServedMemory:
        """The same with further claims."""
        if self._grown_memory is None:
            await self.memory()
            statements = islice(data.statements(self.plan.claims_grown), self.plan.claims, None)
            directory = self.directory / "grown"
            await asyncio.to_thread(memories.grow, self._memory_dir, directory, statements=statements, say=say)
            self._grown_memory = await self._served(directory, self.plan.claims_grown)
        return self._grown_memory

    @property
    def _memory_dir(self) -> Path:
        return self.directory / "memory"

    async def _served(self, directory: Path, claims: int) -> ServedMemory:
        return await self._open_later.enter_async_context(memories.served(directory, claims))

    async def once(self, measure: Callable[[], Result]) -> Result:
        """What several ratios are taken from, computed at the first call."""
        if measure not in self._found:
            self._found[measure] = await asyncio.to_thread(measure)
        found: Result = self._found[measure]
        return found

    async def once_for_all(self, measure: Callable[[Site], Awaitable[Result]]) -> Result:
        """As `once`, for what is measured in the event loop."""
        if measure not in self._found:
            self._found[measure] = await measure(self)
        found: Result = self._found[measure]
        return found

    async def warm_caller(self) -> Caller:
        """A connection whose tenant `SMALL` has a reigning writer and a loaded replica."""
        caller = await self.stack.caller(SMALL)
        for number in range(WARM_UP_WRITES):
            await caller.call(assert_text(f"warming up {number}"))
        return caller


@asynccontextmanager
async def open_site(plan: Plan, directory: Path, *, cranfield: Path | None = None) -> AsyncIterator[Site]:
    """A running stack in `directory`, which is created; everything is stopped on leaving."""
    stack_dir, scratch_dir = directory / "stack", directory / "scratch"
    for each in (stack_dir, scratch_dir):
        each.mkdir(mode=0o700, parents=True)
    async with AsyncExitStack() as exit_stack:
        say("starting the stack")
        tenants = [SMALL, FULL, GRAPH, BLOBS, BACKUP, FAILOVER, STREAM]
        stack = await exit_stack.enter_async_context(running_stack(stack_dir, tenants))
        store = await exit_stack.enter_async_context(S3Store(stack.s3))
        puts = Puts(store)
        await puts.warm_up()
        yield Site(plan, stack, store, puts, scratch_dir, exit_stack, cranfield)


def say(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)

"""Jobs on a schedule: every tenant's, one at a time, by one process of a deployment at a time.

What is due is known without asking anybody; only then is the store opened, and left again. What was missed while no
scheduler ran is done once. A job that failed is tried again after a pause that grows. A tenant whose head did not move
since a job's last success costs one look at it per period, and the job itself only now and then, since what is stored
may decay all the same.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from memoree import clock, limits
from memoree.clock import Clock
from memoree.concurrency import for_each
from memoree.errors import MemoreeError
from memoree.jobs.lease import LeaseTaken, ObjectLease
from memoree.jobs.runs import Runs, read_runs, write_runs
from memoree.objects import ObjectStore, ObjectStoreError
from memoree.replication import layout
from memoree.replication.head import HeadFile

LEASE_KEY = "jobs/lease.json"

log = logging.getLogger(__name__)


class Site(Protocol):
    """What the schedule itself needs of a deployment."""

    @property
    def store(self) -> ObjectStore: ...

    def tenants(self) -> AsyncIterator[str]: ...


SiteT = TypeVar("SiteT", bound=Site)


@dataclass(frozen=True, slots=True)
class Done:
    """What a run did. `problems` counts what it found wrong or could not do, and `problem` says what: that is told, and
    not tried again before the next period. `again_seconds`: when there will be something left to do."""

    result: dict[str, Any]
    problems: int = 0
    problem: str | None = None
    again_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Job(Generic[SiteT]):
    """`also_idle`: a tenant to which nothing happened is not left out for ever."""

    name: str
    every_seconds: float
    run: Callable[[SiteT, str], Awaitable[Done]]
    also_idle: bool = True


@dataclass(slots=True)
class Planned:
    """When a job of a tenant is due, what is known of its runs, and when it last succeeded or was seen to be of no
    use."""

    due: datetime
    runs: Runs
    fine_at: datetime | None = None


class Scheduler(Generic[SiteT]):
    """`open_site` is entered for as long as something is done. `changed` is called whenever there is something new to
    tell of `plan`."""

    def __init__(
        self,
        jobs: Sequence[Job[SiteT]],
        open_site: Callable[[], AbstractAsyncContextManager[SiteT]],
        *,
        clock_now: Clock = clock.utc_now,
        changed: Callable[[Scheduler[SiteT]], None] = lambda _: None,
        job_seconds_max: float = limits.JOB_SECONDS_MAX,
    ) -> None:
        self.jobs = {job.name: job for job in jobs if job.every_seconds > 0}
        self.plan: dict[tuple[str, str], Planned] = {}
        """By job and tenant."""
        self._open_site = open_site
        self._clock = clock_now
        self._changed = changed
        self._job_seconds_max = job_seconds_max
        self._look_around_at = clock_now()

    async def run(self, stop: asyncio.Event) -> None:
        """Until the event is set; a job under way is broken off then, and done again by the next run."""
        if not self.jobs:
            log.info("no job has a period: nothing is run by itself")
            await stop.wait()
        while not stop.is_set():
            stepping = asyncio.create_task(self.step())
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait((stepping, stopping), return_when=asyncio.FIRST_COMPLETED)
                pause = stepping.result() if stepping.done() else 0.0
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await stopping
            finally:
                for task in (stepping, stopping):
                    task.cancel()
                await asyncio.gather(stepping, stopping, return_exceptions=True)

    async def step(self) -> float:
        """Do what is due; seconds until something will be. Only what no run can go on from is raised."""
        if self._next() <= self._clock():
            try:
                async with self._open_site() as site:
                    await ObjectLease(site.store, LEASE_KEY).during(self._work(site))
            except (LeaseTaken, ObjectStoreError) as error:
                log.info("the jobs wait: %s", error)
                return limits.JOBS_WAIT_SECONDS
        self._changed(self)
        return max((self._next() - self._clock()).total_seconds(), 0.0)

    def _next(self) -> datetime:
        return min([self._look_around_at, *(planned.due for planned in self.plan.values())])

    async def _work(self, site: SiteT) -> None:
        if self._look_around_at <= self._clock():
            await self._look_around(site)
        while due := [item for item in self.plan.items() if item[1].due <= self._clock()]:
            (name, tenant), planned = min(due, key=lambda item: item[1].due)
            try:
                await self._serve(site, self.jobs[name], tenant, planned)
            except ObjectStoreError as error:
                log.warning("%s of tenant %s waits for the store: %s", name, tenant, error)
                planned.due = self._clock() + timedelta(seconds=limits.JOBS_WAIT_SECONDS)
            self._changed(self)

    async def _look_around(self, site: SiteT) -> None:
        """Which tenants there are, and what is known of the runs of those that are new to this process."""
        tenants = {tenant async for tenant in site.tenants()}
        self.plan = {key: planned for key, planned in self.plan.items() if key[1] in tenants}
        new = [(name, tenant) for tenant in tenants for name in self.jobs if (name, tenant) not in self.plan]

        async def load(key: tuple[str, str]) -> None:
            runs = await read_runs(site.store, *key)
            fine_at = clock.from_stored(runs.succeeded_at) if runs.succeeded_at is not None else None
            self.plan[key] = Planned(self._due(*key, runs), runs, fine_at)

        await for_each(new, load, at_once=limits.JOB_REQUESTS_AT_ONCE_MAX)
        self._look_around_at = self._clock() + timedelta(seconds=limits.JOBS_DISCOVERY_SECONDS)

    # --- one job of one tenant ----------------------------------------------------------------------------------

    async def _serve(self, site: SiteT, job: Job[SiteT], tenant: str, planned: Planned) -> None:
        """Run it, unless another process did meanwhile or there is no need to. Raises `ObjectStoreError` when that
        cannot be found out, or not be kept."""
        runs = await read_runs(site.store, job.name, tenant)
        if runs != planned.runs:
            planned.runs, planned.due = runs, self._due(job.name, tenant, runs)
            if planned.due > self._clock():
                return
        seen = await self._seen(site, tenant)
        if seen is None or not self._is_needed(job, planned.runs, seen):
            planned.fine_at = self._clock()
            planned.due = planned.fine_at + timedelta(seconds=job.every_seconds)
            return
        planned.runs = await self._run(site, job, tenant, planned.runs, seen)
        planned.due = self._due(job.name, tenant, planned.runs)
        if planned.runs.is_fine:
            planned.fine_at = self._clock()
        await write_runs(site.store, job.name, tenant, planned.runs)

    async def _run(self, site: SiteT, job: Job[SiteT], tenant: str, runs: Runs, seen: str) -> Runs:
        log.info("%s of tenant %s begins", job.name, tenant)
        try:
            async with asyncio.timeout(self._job_seconds_max):
                done = await job.run(site, tenant)
        except TimeoutError:
            error = f"it took more than {self._job_seconds_max:g} s and was broken off"
        except MemoreeError as failure:
            error = f"{failure.code}: {failure.message}"
        except Exception as failure:
            log.exception("%s of tenant %s failed", job.name, tenant)
            error = f"{type(failure).__name__}: {failure}"
        else:
            if done.problems:
                log.error("%s of tenant %s: %s", job.name, tenant, done.problem)
            return runs.after_run(self._clock(), seen, done.problems, done.problem, done.again_seconds)
        log.error("%s of tenant %s failed: %s", job.name, tenant, error)
        return runs.after_failure(self._clock(), error)

    async def _seen(self, site: SiteT, tenant: str) -> str | None:
        """What changes with every command of a tenant; `None` where none was ever applied. A head that cannot be read
        keeps no job from telling so."""
        try:
            reading = await HeadFile(site.store, layout.tenant_prefix(tenant)).read()
        except MemoreeError as error:
            return error.message
        if reading is None:
            missing = await HeadFile(site.store, layout.tenant_prefix(tenant)).has_remains()
            return "no head" if missing else None
        head = reading.head
        return f"{head.history}/{head.batch}" if head.prefix is not None else None

    def _is_needed(self, job: Job[SiteT], runs: Runs, seen: str) -> bool:
        if not runs.is_fine or runs.ran_at is None or runs.seen != seen or runs.again_at is not None:
            return True
        idle = timedelta(seconds=job.every_seconds * limits.JOBS_IDLE_PERIODS)
        return job.also_idle and clock.from_stored(runs.ran_at) + idle <= self._clock()

    def _due(self, name: str, tenant: str, runs: Runs) -> datetime:
        """The first runs of many tenants are spread a little, and with them all later ones."""
        every = timedelta(seconds=self.jobs[name].every_seconds)
        if runs.failed_at is not None:
            pause = min(limits.JOBS_RETRY_SECONDS_MIN * 2 ** (runs.failures - 1), limits.JOBS_RETRY_SECONDS_MAX)
            return clock.from_stored(runs.failed_at) + min(timedelta(seconds=pause), every)
        if runs.ran_at is None:
            share = zlib.crc32(f"{name}/{tenant}".encode()) / 2**32
            return self._clock() + share * min(every, timedelta(seconds=limits.JOBS_SPREAD_SECONDS))
        again = [clock.from_stored(runs.again_at)] if runs.again_at is not None else []
        return min([clock.from_stored(runs.ran_at) + every, *again])

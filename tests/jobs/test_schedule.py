"""The schedule: what is due is done once, by one process, and nothing is asked for in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.jobs.lease import TTL_SECONDS, LeaseTaken, ObjectLease
from memoree.jobs.runs import Runs
from memoree.jobs.schedule import LEASE_KEY, Done, Job, Scheduler
from memoree.jobs.status import METRICS_NAME, read_status, tell
from memoree.objects import StoreUnavailable
from memoree.replication import layout
from memoree.replication.head import Head
from operations.bench import ManualClock

from .kiln import LateStore

DAY = 24 * 3600.0
HEAD = Head("w", 1, 0, 1, None, "2026-01-01", "ltx/00000001-ABCDEFGH/", 1, 1, 1, 0, 3, "", "")


class Place:
    """A deployment with a store and tenants, and jobs that note where they ran."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = LateStore(self.clock)
        self.names: list[str] = []
        self.ran: list[tuple[str, str]] = []
        self.during: Callable[[str], object] = lambda _: None
        self.opened = 0

    async def tenants(self) -> AsyncIterator[str]:
        for name in self.names:
            yield name

    def add(self, *names: str, batch: int = 1) -> None:
        self.names += [name for name in names if name not in self.names]
        for name in names:
            self.store.place(f"{layout.tenant_prefix(name)}head.json", replace(HEAD, batch=batch).to_bytes())

    def job(self, name: str = "gc", every: float = DAY, *, also_idle: bool = True) -> Job[Place]:
        async def run(site: Place, tenant: str) -> Done:
            self.ran.append((name, tenant))
            outcome = self.during(tenant)
            if asyncio.iscoroutine(outcome):
                outcome = await outcome
            return outcome if isinstance(outcome, Done) else Done({})

        return Job(name, every, run, also_idle)

    def scheduler(self, *jobs: Job[Place], **how: float) -> Scheduler[Place]:
        @asynccontextmanager
        async def open_site() -> AsyncIterator[Place]:
            self.opened += 1
            yield self

        return Scheduler(jobs or [self.job()], open_site, clock_now=self.clock, **how)  # type: ignore[arg-type]

    def pass_time(self, scheduler: Scheduler[Place], seconds: float) -> None:
        """The scheduler sleeps and wakes as it would by itself."""

        async def live() -> None:
            left = seconds
            while True:
                pause = await scheduler.step()
                if pause > left:
                    break
                self.clock.advance(seconds=pause)
                left -= pause
            self.clock.advance(seconds=left)

        asyncio.run(live())


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.proves("operations-42")
def test_a_job_runs_once_a_period_for_every_tenant(place: Place) -> None:
    place.add("a", "b")
    scheduler = place.scheduler()
    for batch in (2, 3, 4):
        place.pass_time(scheduler, DAY)
        assert sorted(place.ran) == [("gc", "a"), ("gc", "b")]
        place.ran.clear()
        place.add("a", "b", batch=batch)


def test_the_first_runs_of_many_tenants_are_spread(place: Place) -> None:
    names = [f"t{number}" for number in range(50)]
    place.add(*names)
    began: list[float] = []
    place.during = lambda _: began.append(place.clock().timestamp())
    place.pass_time(place.scheduler(), limits.JOBS_SPREAD_SECONDS)
    assert len(set(began)) == 50
    assert max(began) - min(began) > limits.JOBS_SPREAD_SECONDS / 2


@pytest.mark.proves("operations-42")
def test_what_was_missed_is_caught_up_once(place: Place) -> None:
    place.add("a")
    scheduler = place.scheduler()
    place.pass_time(scheduler, DAY)
    place.ran.clear()
    place.add("a", batch=2)
    place.clock.advance(seconds=10 * DAY)
    place.pass_time(scheduler, 600)
    assert place.ran == [("gc", "a")]


@pytest.mark.proves("operations-42")
def test_a_restart_repeats_nothing(place: Place) -> None:
    place.add("a")
    place.pass_time(place.scheduler(), DAY / 2)
    assert place.ran == [("gc", "a")]
    place.add("a", batch=2)
    place.pass_time(place.scheduler(), DAY / 4)
    assert place.ran == [("gc", "a")]
    place.pass_time(place.scheduler(), DAY / 2)
    assert place.ran == [("gc", "a")] * 2


@pytest.mark.proves("operations-42")
def test_of_two_schedulers_one_runs(place: Place) -> None:
    place.add("a")
    one, other = place.scheduler(), place.scheduler()
    pauses: list[float] = []

    async def meanwhile() -> None:
        pauses.append(await other.step())

    place.during = lambda _: meanwhile()
    place.pass_time(one, DAY / 2)
    assert (place.ran, pauses) == ([("gc", "a")], [limits.JOBS_WAIT_SECONDS])
    place.pass_time(other, DAY / 4)
    assert place.ran == [("gc", "a")]


def test_the_lease_of_a_dead_scheduler_runs_out(place: Place) -> None:
    place.add("a")
    place.store.place(LEASE_KEY, b'{"owner": "dead", "write": 7, "released": false}')
    scheduler = place.scheduler()
    place.pass_time(scheduler, TTL_SECONDS - 1)
    assert place.ran == []
    place.pass_time(scheduler, DAY)
    assert place.ran == [("gc", "a")]


def test_a_scheduler_that_lost_its_lease_breaks_off(place: Place) -> None:
    async def run() -> None:
        began = asyncio.Event()

        async def work() -> None:
            place.store.place(LEASE_KEY, b'{"owner": "thief", "write": 1, "released": false}')
            began.set()
            await asyncio.Event().wait()

        with pytest.raises(LeaseTaken):
            await ObjectLease(place.store, LEASE_KEY, ttl_seconds=0.03).during(work())
        assert began.is_set()

    asyncio.run(run())
    assert b"thief" in place.store.body(LEASE_KEY)


@pytest.mark.proves("operations-43")
def test_between_its_jobs_an_idle_tenant_costs_no_request(place: Place) -> None:
    place.add("a")
    scheduler = place.scheduler(place.job("gc"), place.job("backup", also_idle=False))
    place.pass_time(scheduler, 2 * 3600)
    assert sorted(place.ran) == [("backup", "a"), ("gc", "a")]
    place.store.requests.clear()
    place.names.clear()  # so that the hourly look around costs nothing either
    place.pass_time(scheduler, 60)
    assert place.store.requests == []


@pytest.mark.proves("operations-43")
def test_a_tenant_to_which_nothing_happened_costs_one_look_at_its_head_per_period(place: Place) -> None:
    place.add("a")
    scheduler = place.scheduler(place.job("backup", also_idle=False))
    place.pass_time(scheduler, DAY)
    place.store.requests.clear()
    place.pass_time(scheduler, 30 * DAY)
    looks = [request for request in place.store.requests if "head.json" in request]
    assert place.ran == [("backup", "a")]
    assert 29 <= len(looks) <= 31


def test_what_is_stored_of_an_idle_tenant_is_looked_after_now_and_then(place: Place) -> None:
    place.add("a")
    place.pass_time(place.scheduler(place.job("verify")), (limits.JOBS_IDLE_PERIODS + 2) * DAY)
    assert place.ran == [("verify", "a")] * 2


def test_a_job_with_something_left_to_do_runs_again_when_it_can_be_done(place: Place) -> None:
    place.add("a")
    place.during = lambda _: Done({}, again_seconds=7200.0) if len(place.ran) == 1 else Done({})
    place.pass_time(place.scheduler(), 12 * 3600)
    assert place.ran == [("gc", "a")] * 2


def test_a_tenant_that_was_never_written_to_has_no_jobs(place: Place) -> None:
    place.names.append("new")
    place.pass_time(place.scheduler(), 2 * DAY)
    assert place.ran == []


def test_a_tenant_whose_head_is_lost_is_still_verified(place: Place) -> None:
    place.names.append("hurt")
    place.store.place("tenants/hurt/epochs/00000001.json", b"{}")
    place.pass_time(place.scheduler(place.job("verify")), DAY)
    assert place.ran == [("verify", "hurt")]


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.proves("operations-44")
def test_a_job_that_failed_is_told_and_tried_again_after_growing_pauses(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place.add("a")
    tries: list[float] = []

    def fail(_: str) -> None:
        tries.append(place.clock().timestamp())
        if len(tries) < 4:
            raise MemoreeError(Code.TRANSPORT_ERROR, "the writer does not answer")

    place.during = fail
    scheduler = place.scheduler()
    place.pass_time(scheduler, limits.JOBS_SPREAD_SECONDS)
    tell(scheduler, tmp_path)
    status = read_status(tmp_path, place.clock())
    assert status is not None
    assert status["gc"]["failing"] == 1
    assert "the writer does not answer" in status["gc"]["told"]["a"]
    assert "gc of tenant a failed: TRANSPORT_ERROR: the writer does not answer" in caplog.text
    place.pass_time(scheduler, DAY / 2)
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert pauses == [300, 600, 1200]
    assert scheduler.plan["gc", "a"].runs.failures == 0


@pytest.mark.fault_class(4)
@pytest.mark.proves("operations-44")
def test_a_job_that_takes_too_long_has_failed_with_a_reason_and_the_next_try_finishes_it(place: Place) -> None:
    place.add("a")
    scheduler = place.scheduler(job_seconds_max=0.01)
    before: list[Runs] = []

    def hang_once(_: str) -> object:
        before.append(scheduler.plan["gc", "a"].runs)
        return asyncio.Event().wait() if len(before) == 1 else None

    place.during = hang_once
    place.pass_time(scheduler, limits.JOBS_SPREAD_SECONDS + limits.JOBS_RETRY_SECONDS_MIN)
    assert len(before) == 2
    failed = before[1]
    assert (failed.ran_at, failed.succeeded_at, failed.failures) == (None, None, 1)
    assert "broken off" in (failed.error or "")
    assert scheduler.plan["gc", "a"].runs.is_fine


def test_one_tenant_that_cannot_be_served_holds_up_no_other(place: Place) -> None:
    place.add("broken", "sound")

    def refuse(request: str) -> None:
        if "tenants/broken/head.json" in request:
            raise StoreUnavailable("scripted")

    place.store.before_request = refuse
    place.pass_time(place.scheduler(), 2 * 3600)
    assert place.ran == [("gc", "sound")]


def test_what_a_run_found_wrong_is_told_and_counted(place: Place, tmp_path: Path) -> None:
    place.add("a", "b")
    place.during = lambda tenant: Done({}, 3, "3 issues, the first: head ...") if tenant == "a" else Done({})
    scheduler = place.scheduler(place.job("verify"))
    place.pass_time(scheduler, DAY / 2)
    tell(scheduler, tmp_path)
    metrics = (tmp_path / METRICS_NAME).read_text()
    assert "memoree_verify_issues 3\n" in metrics
    assert "memoree_job_last_success_timestamp_seconds{" not in metrics
    assert "head ..." in (read_status(tmp_path, place.clock()) or {})["verify"]["told"]["a"]


def test_the_time_of_the_last_success_is_a_metric(place: Place, tmp_path: Path) -> None:
    place.add("a")
    scheduler = place.scheduler()
    place.pass_time(scheduler, DAY / 2)
    tell(scheduler, tmp_path)
    line = 'memoree_job_last_success_timestamp_seconds{job="gc"} '
    (told,) = [each for each in (tmp_path / METRICS_NAME).read_text().splitlines() if each.startswith(line)]
    assert 0 <= place.clock().timestamp() - float(told.removeprefix(line)) < DAY / 2


@pytest.mark.proves("operations-44")
def test_a_job_that_nobody_runs_is_overdue(place: Place, tmp_path: Path) -> None:
    place.add("a")
    scheduler = place.scheduler()
    place.pass_time(scheduler, DAY / 2)
    tell(scheduler, tmp_path)
    assert (read_status(tmp_path, place.clock()) or {})["gc"]["overdue"] is False
    place.clock.advance(seconds=DAY + limits.JOBS_OVERDUE_SECONDS)
    assert (read_status(tmp_path, place.clock()) or {})["gc"]["overdue"] is True


def test_a_store_that_is_down_is_waited_for(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    place.add("a")

    def down(request: str) -> None:
        raise StoreUnavailable("scripted")

    place.store.before_request = down
    scheduler = place.scheduler()
    assert asyncio.run(scheduler.step()) == limits.JOBS_WAIT_SECONDS
    assert "the jobs wait" in caplog.text
    place.store.before_request = lambda _: None
    place.pass_time(scheduler, DAY)
    assert place.ran == [("gc", "a")]


def test_damaged_notes_of_earlier_runs_are_no_notes(place: Place) -> None:
    place.add("a")
    place.store.place(layout.job_key("a", "gc"), b'{"ran_at": "yesterday"')
    place.pass_time(place.scheduler(), DAY / 2)
    assert place.ran == [("gc", "a")]


def test_without_a_period_nothing_is_run(place: Place) -> None:
    place.add("a")

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_soon(stop.set)
        await place.scheduler(place.job(every=0.0)).run(stop)

    asyncio.run(run())
    assert (place.opened, place.store.requests) == (0, [])


def test_stopping_breaks_off_the_job_under_way_and_lets_go_of_the_lease(place: Place) -> None:
    place.add("a")
    scheduler = place.scheduler()

    async def run() -> None:
        stop = asyncio.Event()
        await scheduler.step()
        place.clock.advance(seconds=DAY)

        async def never() -> None:
            stop.set()
            await asyncio.Event().wait()

        place.during = lambda _: never()
        await scheduler.run(stop)

    asyncio.run(run())
    assert place.ran == [("gc", "a")]
    assert b'"released":true' in place.store.body(LEASE_KEY)
    assert scheduler.plan["gc", "a"].runs.ran_at is None

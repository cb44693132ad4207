"""The replicas of one process: bounds, eviction, and nobody waiting for another tenant's trouble."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.objects import StoreUnavailable
from memoree.reader import replicas as replicas_module
from memoree.reader.environment import ReaderEnvironment
from memoree.reader.replicas import Replicas
from replication.memory_store import Fault, MemoryStore

from .recorded import TENANT, Recorder, Restores, environment

INACTIVE_AFTER_SECONDS = 0.2
"""What is refreshed in the background is not evicted meanwhile."""


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def restores(store: MemoryStore) -> Restores:
    return Restores(store)


@pytest.fixture
def recorder(restores: Restores, tmp_path: Path) -> Iterator[Recorder]:
    recorder = restores.know(Recorder(restores.store, tmp_path))
    recorder.write("first")
    yield recorder
    recorder.close()


OpenEnvironment = Callable[..., ReaderEnvironment]


@pytest.fixture
def make(restores: Restores, tmp_path: Path) -> Iterator[OpenEnvironment]:
    made: list[ReaderEnvironment] = []

    def make(**how: float) -> ReaderEnvironment:
        made.append(environment(restores, tmp_path / "runtime", **how))
        return made[-1]

    yield make
    for each in made:
        each.executor.shutdown()
        each.directory.remove()


async def until(reached: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.002)


def test_a_fresh_enough_replica_is_served_without_a_request(
    store: MemoryStore, recorder: Recorder, make: OpenEnvironment
) -> None:
    async def run() -> None:
        replicas = Replicas(make())
        async with replicas.ready(TENANT, strong=False):
            begun = len(store.requests)
        async with replicas.ready(TENANT, strong=False) as replica:
            assert replica.generation.meta.commit_seq == 1
        assert len(store.requests) == begun
        async with replicas.ready(TENANT, strong=True):
            assert len(store.requests) == begun + 1
        await replicas.close()

    asyncio.run(run())


def test_a_strong_read_sees_what_was_covered_before_it_began(recorder: Recorder, make: OpenEnvironment) -> None:
    async def run() -> None:
        replicas = Replicas(make())
        for number in range(3):
            recorder.write(f"s{number}")
            async with replicas.ready(TENANT, strong=True) as replica:
                assert replica.generation.meta.commit_seq == number + 2
        await replicas.close()

    asyncio.run(run())


def test_while_the_store_is_away_old_states_are_served_to_all_but_strong_reads(
    store: MemoryStore, recorder: Recorder, make: OpenEnvironment
) -> None:
    async def run() -> None:
        replicas = Replicas(make(staleness=0.0001))
        replicas._background.cancel()
        async with replicas.ready(TENANT, strong=True):
            recorder.write("second")
        store.reads.extend([Fault.BEFORE] * 2)
        async with replicas.ready(TENANT, strong=False) as replica:
            assert replica.generation.meta.commit_seq == 1
        with pytest.raises(StoreUnavailable):
            async with replicas.ready(TENANT, strong=True):
                pass
        await replicas.close()

    asyncio.run(run())


def test_active_tenants_are_refreshed_in_the_background(recorder: Recorder, make: OpenEnvironment) -> None:
    async def run() -> None:
        replicas = Replicas(make(staleness=0.01))
        async with replicas.ready(TENANT, strong=True) as replica:
            recorder.write("second")
            await until(lambda: replica.generation.meta.commit_seq == 2)
        await replicas.close()

    asyncio.run(run())


def test_a_tenant_that_hangs_keeps_no_other_from_being_refreshed(
    store: MemoryStore, recorder: Recorder, make: OpenEnvironment
) -> None:
    async def run() -> None:
        replicas = Replicas(make(staleness=0.01))
        async with replicas.ready("hanging", strong=True) as hanging, replicas.ready(TENANT, strong=True) as replica:
            hanging._refreshing = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
            recorder.write("second")
            await until(lambda: replica.generation.meta.commit_seq == 2)
        await replicas.close()

    asyncio.run(run())


def test_the_least_recently_used_replicas_go_first_and_those_in_use_never(
    make: OpenEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPLICAS_MAX", 3)
    monkeypatch.setattr(replicas_module, "ACTIVE_SECONDS", INACTIVE_AFTER_SECONDS)

    async def run() -> None:
        replicas = Replicas(make(staleness=0.01))
        async with replicas.ready("t0", strong=True) as used:
            for number in range(1, 6):
                async with replicas.ready(f"t{number}", strong=True):
                    pass
            await until(lambda: len(replicas._replicas) == 3)
            assert list(replicas._replicas) == ["t0", "t4", "t5"]
            assert used.is_loaded
        files = list(replicas._directory.iterdir())
        assert len(files) == 3
        await replicas.close()
        assert list(replicas._directory.iterdir()) == []

    asyncio.run(run())


@pytest.mark.proves("fault-16")
def test_a_replica_that_nobody_needs_is_given_up(make: OpenEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the last one: nobody refreshes it any more, and it would keep what was erased since."""
    idle_seconds = 0.05
    monkeypatch.setattr(limits, "LOCAL_COPY_IDLE_SECONDS_MAX", idle_seconds)
    monkeypatch.setattr(replicas_module, "ACTIVE_SECONDS", INACTIVE_AFTER_SECONDS)

    async def run() -> None:
        replicas = Replicas(make(staleness=0.01))
        async with replicas.ready("t0", strong=True), replicas.ready("t1", strong=True) as used:
            await until(lambda: time.monotonic() - used.used_at > 2 * idle_seconds)
            assert list(replicas._replicas) == ["t0", "t1"]
        await until(lambda: not replicas._replicas)
        assert list(replicas._directory.iterdir()) == []
        await replicas.close()

    asyncio.run(run())


def test_the_bound_in_bytes_evicts_too_but_never_the_last_replica(
    make: OpenEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPLICA_BYTES_MAX", 1)
    monkeypatch.setattr(replicas_module, "ACTIVE_SECONDS", INACTIVE_AFTER_SECONDS)

    async def run() -> None:
        replicas = Replicas(make(staleness=0.01))
        for number in range(4):
            async with replicas.ready(f"t{number}", strong=True):
                pass
        await until(lambda: list(replicas._replicas) == ["t3"])
        await replicas.close()

    asyncio.run(run())


def test_waiting_for_a_state_ends_with_it_or_with_the_deadline(recorder: Recorder, make: OpenEnvironment) -> None:
    async def run() -> None:
        replicas = Replicas(make())
        async with replicas.ready(TENANT, strong=False) as replica:
            assert not await replicas.until(replica, lambda: replica.generation.meta.commit_seq >= 2, 0.05)
            waiting = asyncio.create_task(
                replicas.until(replica, lambda: replica.generation.meta.commit_seq >= 2, 10.0)
            )
            await asyncio.sleep(0)
            recorder.write("second")
            assert await waiting
        await replicas.close()

    asyncio.run(run())


@pytest.mark.parametrize(("apart_seconds", "looks"), [(0.15, range(2, 4)), (0.0, range(6, 200))])
def test_looks_for_many_things_are_apart_whoever_makes_them(
    store: MemoryStore, recorder: Recorder, make: OpenEnvironment, apart_seconds: float, looks: range
) -> None:
    async def run() -> None:
        replicas = Replicas(make())
        async with replicas.ready(TENANT, strong=False) as replica:
            store.requests.clear()
            waiting = (
                replicas.until(
                    replica, lambda: replica.generation.meta.commit_seq >= 2, 0.4, apart_seconds=apart_seconds
                )
                for _ in range(3)
            )
            assert await asyncio.gather(*waiting) == [False] * 3
            assert store.requests.count(f"GET tenants/{TENANT}/head.json") in looks
        await replicas.close()

    asyncio.run(run())


def test_passing_troubles_are_waited_out_and_damage_is_told(
    store: MemoryStore, recorder: Recorder, make: OpenEnvironment
) -> None:
    async def run() -> None:
        replicas = Replicas(make())
        async with replicas.ready(TENANT, strong=False) as replica:
            recorder.write("second")
            store.reads.extend([Fault.BEFORE] * 3)
            assert await replicas.until(replica, lambda: replica.generation.meta.commit_seq >= 2, 10.0)
            store.remove(f"tenants/{TENANT}/head.json")
            with pytest.raises(MemoreeError) as refused:
                await replicas.until(replica, lambda: replica.generation.meta.commit_seq >= 3, 10.0)
            assert refused.value.code is Code.INTEGRITY_ERROR
            assert replicas.alarmed_tenants == [TENANT]
        await replicas.close()

    asyncio.run(run())


def test_who_waits_for_a_change_is_woken_by_the_looks_of_the_background(
    recorder: Recorder, make: OpenEnvironment
) -> None:
    """Also when the wait is longer than a tenant counts as in use without one."""

    async def run() -> None:
        replicas = Replicas(make(staleness=0.01))
        async with replicas.ready(TENANT, strong=True) as replica:
            replica.used_at -= 2 * replicas_module.ACTIVE_SECONDS
            waiting = asyncio.create_task(replicas.wait(replica, lambda: replica.generation.meta.commit_seq == 2, 10.0))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            recorder.write("second")
            began = time.monotonic()
            assert await waiting
            assert time.monotonic() - began < limits.FEED_LOOK_SECONDS
        await replicas.close()

    asyncio.run(run())


def test_many_who_wait_cost_no_more_looks_than_one(
    store: MemoryStore, recorder: Recorder, make: OpenEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the background seldom looks, as in a function."""
    monkeypatch.setattr(limits, "FEED_LOOK_SECONDS", 0.1)

    async def run() -> None:
        replicas = Replicas(make(staleness=60.0))
        async with replicas.ready(TENANT, strong=True) as replica:
            begun = len(store.requests)
            waiting = [replicas.wait(replica, lambda: False, 0.55) for _ in range(50)]
            assert await asyncio.gather(*waiting) == [False] * 50
            assert 3 <= len(store.requests) - begun <= 6
            seen = asyncio.create_task(replicas.wait(replica, lambda: replica.generation.meta.commit_seq == 2, 10.0))
            recorder.write("second")
            assert await seen
            assert replica._watchers == {}
        await replicas.close()

    asyncio.run(run())


def test_a_wait_for_a_change_outlasts_passing_troubles_and_tells_damage(
    store: MemoryStore, recorder: Recorder, make: OpenEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FEED_LOOK_SECONDS", 0.02)

    async def run() -> None:
        replicas = Replicas(make())
        async with replicas.ready(TENANT, strong=True) as replica:
            recorder.write("second")
            store.reads.extend([Fault.BEFORE] * 3)
            assert await replicas.wait(replica, lambda: replica.generation.meta.commit_seq == 2, 10.0)
            store.remove(f"tenants/{TENANT}/head.json")
            with pytest.raises(MemoreeError) as refused:
                await replicas.wait(replica, lambda: False, 10.0)
            assert refused.value.code is Code.INTEGRITY_ERROR
        await replicas.close()

    asyncio.run(run())

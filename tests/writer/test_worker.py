"""The writer process around the actors: nobody waits for another tenant's trouble, and everything has a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.queue import PATIENT_GROUPS, Message
from memoree.writer import worker as worker_module
from memoree.writer.worker import ACTORS_KEPT_MAX, BATCHES_IN_HAND_MAX, WriterWorker
from replication.memory_store import MemoryStore

from .scripted import ScriptedQueue, environment, until


class ScriptedActor:
    """Stands in for `TenantActor`: serves until its gate is open, settles until its other gate is."""

    made: ClassVar[list[ScriptedActor]] = []

    def __init__(self, tenant: str, environment: Any, queue: ScriptedQueue, *, unleased: bool) -> None:
        self.tenant = tenant
        self.unleased = unleased
        self.holds_lease = False
        self.blocked_until = 0.0
        self.waits_for_lease = False
        self.lease_is_released = False
        self.used_at = self.idle_since = time.monotonic()
        self.serving = asyncio.Event()
        self.may_serve = asyncio.Event()
        self.may_settle = asyncio.Event()
        self.settling = asyncio.Event()
        self.settled = 0
        self.closed = False
        self.fault: BaseException | None = None
        self._queue = queue
        self.may_serve.set()
        self.may_settle.set()
        ScriptedActor.made.append(self)

    async def serve(self, messages: Sequence[Message]) -> None:
        self.holds_lease = True
        self.serving.set()
        await self.may_serve.wait()
        if self.fault is not None:
            raise self.fault
        await self._queue.ack(messages)
        self.used_at = self.idle_since = time.monotonic()

    async def look_at_lease(self) -> None:
        if self.lease_is_released:
            self.blocked_until, self.waits_for_lease = 0.0, False

    async def settle(self) -> None:
        self.settling.set()
        await self.may_settle.wait()
        self.holds_lease = False
        self.settled += 1

    async def close(self) -> None:
        self.closed = True
        self.holds_lease = False


class Bench:
    def __init__(self, directory: Path, **timings: Any) -> None:
        self.queue = ScriptedQueue()
        self.worker = WriterWorker(environment(directory, **timings), self.queue, supervised=True)
        self.stop = asyncio.Event()

    async def __aenter__(self) -> Bench:
        self.running = asyncio.create_task(self.worker.run(self.stop))
        return self

    async def __aexit__(self, *_: object) -> None:
        for actor in ScriptedActor.made:
            actor.may_serve.set()
            actor.may_settle.set()
        self.stop.set()
        await self.running

    def deliver(self, *tenants: str) -> None:
        self.queue.waiting.append([Message(f"m-{name}", "", name, f"r-{name}", 1, 0.0) for name in tenants])

    async def served(self, *tenants: str) -> None:
        self.deliver(*tenants)
        await until(lambda: {f"m-{name}" for name in tenants} <= set(self.queue.acked))

    def actor(self, tenant: str) -> ScriptedActor:
        return next(actor for actor in reversed(ScriptedActor.made) if actor.tenant == tenant)


@pytest.fixture(autouse=True)
def scripted_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    ScriptedActor.made = []
    monkeypatch.setattr(worker_module, "TenantActor", ScriptedActor)
    monkeypatch.setattr(worker_module, "HOUSEKEEPING_SECONDS", 0.01)
    monkeypatch.setattr(worker_module, "QUEUE_RETRY_SECONDS", 0.01)


def test_a_slow_tenant_keeps_no_other_waiting(tmp_path: Path) -> None:
    async def run() -> None:
        async with Bench(tmp_path) as bench:
            await bench.served("slow")
            bench.actor("slow").may_serve.clear()
            bench.deliver("slow")
            await bench.served("quick")

    asyncio.run(run())


def test_messages_in_hand_stay_hidden_also_while_settling_waits_for_the_store(tmp_path: Path) -> None:
    async def run() -> None:
        async with Bench(tmp_path, visibility=0.03, settle_after_idle=0.05) as bench:
            await bench.served("stuck")
            bench.actor("stuck").may_settle.clear()
            await bench.served("slow")
            bench.actor("slow").may_serve.clear()
            bench.actor("slow").serving.clear()
            await until(bench.actor("stuck").settling.is_set)
            bench.deliver("slow")
            await until(bench.actor("slow").serving.is_set)
            extended = len(bench.queue.given_back)
            await until(lambda: len(bench.queue.given_back) >= extended + 3)
            assert bench.queue.given_back[-1][0] == ["m-slow"]

    asyncio.run(run())


def test_no_more_tenants_are_held_than_the_bound_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0

    def holders() -> int:
        nonlocal most
        most = max(most, sum(actor.holds_lease for actor in ScriptedActor.made))
        return most

    async def run() -> None:
        async with Bench(tmp_path) as bench:
            for first in range(0, 3 * limits.TENANTS_HELD_MAX, 24):
                await bench.served(*(f"t{number}" for number in range(first, first + 24)))
                assert holders() <= limits.TENANTS_HELD_MAX
            assert bench.actor("t0").settled == 1, "the longest idle one made room"
            assert bench.actor("t95").holds_lease

    asyncio.run(run())


def test_more_tenants_than_may_be_held_take_turns(tmp_path: Path) -> None:
    async def run() -> None:
        async with Bench(tmp_path) as bench:
            names = [f"t{number}" for number in range(limits.TENANTS_HELD_MAX + 8)]
            ScriptedActor.made.clear()
            await bench.served(*names)
            assert len(bench.queue.acked) == len(names)

    asyncio.run(run())


def test_nothing_more_is_received_than_can_wait_for_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()

    async def serve(self: ScriptedActor, messages: Sequence[Message]) -> None:
        await gate.wait()
        await self._queue.ack(messages)

    monkeypatch.setattr(ScriptedActor, "serve", serve)

    async def run() -> None:
        async with Bench(tmp_path) as bench:
            names = [f"t{number}" for number in range(2 * BATCHES_IN_HAND_MAX)]
            for name in names:
                bench.deliver(name)
            await until(lambda: len(bench.queue.receives) >= BATCHES_IN_HAND_MAX)
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(bench.queue.receives) == BATCHES_IN_HAND_MAX
            gate.set()
            await until(lambda: len(bench.queue.acked) == len(names))

    asyncio.run(run())


def test_tenants_not_heard_of_for_long_are_closed_and_forgotten(tmp_path: Path) -> None:
    async def run() -> None:
        async with Bench(tmp_path, settle_after_idle=0.0) as bench:
            count = ACTORS_KEPT_MAX + 10
            for number in range(count):
                await bench.served(f"t{number}")
            await until(lambda: sum(actor.closed for actor in ScriptedActor.made) >= 10)
            assert bench.actor("t0").closed and not bench.actor(f"t{count - 1}").closed
            await bench.served("t0")

    asyncio.run(run())


@pytest.mark.proves("fault-16")
def test_a_settled_tenant_is_closed_when_nobody_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its local database would keep what was erased since."""
    monkeypatch.setattr(limits, "LOCAL_COPY_IDLE_SECONDS_MAX", 0.0)

    async def run() -> None:
        async with Bench(tmp_path, settle_after_idle=0.0) as bench:
            await bench.served("a")
            await until(lambda: bench.actor("a").closed)
            await bench.served("a")

    asyncio.run(run())


def test_a_queue_without_a_backlog_is_rewritten_when_a_writer_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one may have been killed between the acknowledgement of a deletion and that."""
    monkeypatch.setattr(worker_module, "BACKLOG_LOOK_SECONDS", 0.01)

    async def run() -> None:
        async with Bench(tmp_path) as bench:
            bench.queue.backlog = 1
            await until(lambda: bench.queue.looks > 2)
            assert bench.queue.scrubs == 0
            bench.queue.backlog = 0
            await until(lambda: bench.queue.scrubs == 1)
            looks = bench.queue.looks
            await bench.served("a")
            assert (bench.queue.scrubs, bench.queue.looks) == (1, looks)

    asyncio.run(run())


@pytest.mark.parametrize("fault", [RuntimeError("a bug"), MemoreeError(Code.INTEGRITY_ERROR, "damage")], ids=repr)
def test_an_actor_that_fails_is_logged_and_the_worker_goes_on(
    tmp_path: Path, fault: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with Bench(tmp_path) as bench:
            await bench.served("a")
            bench.actor("a").fault = fault
            bench.deliver("a")
            await until(lambda: "was given up" in caplog.text)
            await bench.served("b")

    asyncio.run(run())


@pytest.mark.fault_class(2)
def test_a_queue_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with Bench(tmp_path) as bench:
            bench.queue.faults = {"receive", "set_visibility"}
            await until(lambda: len(bench.queue.receives) > 3)
            bench.queue.faults = set()
            await bench.served("a")

    asyncio.run(run())


def test_a_blocked_tenant_is_not_asked_for_until_its_time_has_come(tmp_path: Path) -> None:
    async def run() -> None:
        async with Bench(tmp_path) as bench:
            await bench.served("a")
            bench.actor("a").blocked_until = time.monotonic() + 0.1
            seen = len(bench.queue.receives)
            await until(lambda: ["a"] in [list(groups) for groups in bench.queue.receives[seen:]])
            await until(lambda: list(bench.queue.receives[-1]) == [])
            assert time.monotonic() >= bench.actor("a").blocked_until

    asyncio.run(run())


def test_a_lease_that_is_given_up_early_is_noticed_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with Bench(tmp_path) as bench:
            await bench.served("a")
            actor = bench.actor("a")
            actor.waits_for_lease, actor.blocked_until = True, time.monotonic() + 3600
            seen = len(bench.queue.receives)
            await until(lambda: ["a"] in [list(groups) for groups in bench.queue.receives[seen:]])
            actor.lease_is_released = True
            await until(lambda: list(bench.queue.receives[-1]) == [])

    asyncio.run(run())


def test_stopping_finishes_what_is_in_hand_and_closes_every_tenant(tmp_path: Path) -> None:
    async def run() -> None:
        async with Bench(tmp_path) as bench:
            await bench.served("a")
            bench.actor("a").may_serve.clear()
            bench.actor("a").serving.clear()
            bench.deliver("a")
            await until(bench.actor("a").serving.is_set)
            bench.stop.set()
        assert bench.queue.acked.count("m-a") == 2
        assert all(actor.closed for actor in ScriptedActor.made)

    asyncio.run(run())


@pytest.mark.fault_class(46)
def test_a_store_that_breaks_a_promise_is_not_written_to(tmp_path: Path) -> None:
    class Careless(MemoryStore):
        async def put(self, key: str, body: bytes, **_: Any) -> str:
            return await super().put(key, body)

    worker = WriterWorker(environment(tmp_path, store=Careless()), ScriptedQueue())

    with pytest.raises(MemoreeError) as refused:
        asyncio.run(worker.run(asyncio.Event()))
    assert refused.value.code is Code.CONFIG_ERROR


class ScriptedVerifier:
    """Stands in for `UploadVerifier`: holds every upload until its gate is open."""

    def __init__(self, queue: ScriptedQueue) -> None:
        self.may_serve = asyncio.Event()
        self.serving: list[str] = []
        self.cancelled: list[str] = []
        self._queue = queue

    async def serve(self, message: Message) -> None:
        self.serving.append(message.message_id)
        try:
            await self.may_serve.wait()
        except asyncio.CancelledError:
            self.cancelled.append(message.message_id)
            raise
        await self._queue.ack([message])


def uploads(count: int) -> list[str]:
    return [f"{PATIENT_GROUPS}upload-{number}" for number in range(count)]


def test_uploads_being_verified_keep_nobody_waiting_and_stay_hidden(tmp_path: Path) -> None:
    async def run() -> None:
        async with Bench(tmp_path, visibility=0.03) as bench:
            verifier: Any = ScriptedVerifier(bench.queue)
            bench.worker._verifier = verifier
            bench.deliver(*uploads(BATCHES_IN_HAND_MAX + 1), "t")
            await until(lambda: len(verifier.serving) > BATCHES_IN_HAND_MAX)
            await bench.served("t")
            hidden = [f"m-{uploads(1)[0]}"]
            await until(lambda: (hidden, 0.03) in bench.queue.given_back)
            verifier.may_serve.set()
            await until(lambda: len(bench.queue.acked) == BATCHES_IN_HAND_MAX + 3)

    asyncio.run(run())


def test_uploads_beyond_the_bound_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UPLOADS_IN_HAND_MAX", 2)

    async def run() -> None:
        async with Bench(tmp_path) as bench:
            verifier: Any = ScriptedVerifier(bench.queue)
            bench.worker._verifier = verifier
            bench.deliver(*uploads(3))
            await until(lambda: bench.queue.given_back)
            assert bench.queue.given_back == [([f"m-{uploads(3)[2]}"], worker_module.UPLOADS_BACK_OFF_SECONDS)]
            assert len(verifier.serving) == 2

    asyncio.run(run())


def test_stopping_waits_for_no_verification(tmp_path: Path) -> None:
    async def run() -> None:
        async with Bench(tmp_path) as bench:
            verifier: Any = ScriptedVerifier(bench.queue)
            bench.worker._verifier = verifier
            bench.deliver(*uploads(2))
            await until(lambda: len(verifier.serving) == 2)
        assert len(verifier.cancelled) == 2
        assert bench.queue.acked == []

    asyncio.run(run())

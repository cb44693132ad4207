"""The actor of a tenant: what it does with messages and its reign after every kind of fault."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectStoreError, StoreUnavailable
from memoree.queue import RECEIVE_COUNT_MAX, Message, QueueError
from memoree.replication import layout
from memoree.replication.head import HeadFile, HeadLost
from memoree.writer import tenant as tenant_module
from memoree.writer.reign import BatchFailed, LeaseHeld
from memoree.writer.tenant import FAULT_BACK_OFF_SECONDS, TenantActor
from replication.memory_store import Fault, MemoryStore

from .scripted import OWNER, ScriptedQueue, ScriptedReign, environment
from .test_staging import TENANT, command, delivered, park


class Bench:
    """An actor over scripted parts. `reigns` are those it will be given, `begun` how it asked for them."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = MemoryStore()
        self.queue = ScriptedQueue()
        self.reigns = [ScriptedReign()]
        self.begun: list[dict[str, Any]] = []
        self.begin_faults: list[BaseException] = []
        self._taken = 0

        class Begins:
            @staticmethod
            async def begin(tenant: str, environment: Any, **how: Any) -> ScriptedReign:
                self.begun.append(how)
                if self.begin_faults:
                    raise self.begin_faults.pop(0)
                self._taken += 1
                return self.reigns[self._taken - 1]

        monkeypatch.setattr(tenant_module, "Reign", Begins)
        self.actor = TenantActor(TENANT, environment(directory, store=self.store), self.queue, unleased=False)

    @property
    def reign(self) -> ScriptedReign:
        return self.reigns[0]

    def serve(self, *messages: Message) -> None:
        asyncio.run(self.actor.serve(list(messages)))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def message(receive_count: int = 1) -> Message:
    (one,) = delivered(command()[1])
    return Message(one.message_id, one.body, one.group, one.receipt, receive_count, one.sent_at)


def test_a_batch_is_acknowledged_after_it_is_covered(bench: Bench) -> None:
    bench.serve(message())

    assert len(bench.reign.committed) == 1
    assert bench.queue.acked == ["m0"]


def deletion() -> Message:
    target = {"target": {"Id": "01KJR4GZXJDFPSG3SB9V65FA1E"}, "hard": True}
    receipt = {"target": target["target"], "audit_lsn": {"wall_ms": 1, "counter": 0}}
    (one,) = delivered(command("episode.forget", {**target, "confirmed_by": receipt})[1])
    return one


@pytest.mark.proves("fault-16")
def test_after_a_deletion_a_new_epoch_begins_before_it_is_acknowledged_and_the_queue_is_rewritten(
    bench: Bench,
) -> None:
    bench.reigns.append(ScriptedReign(owner="again"))
    bench.reign.is_rewritten = False
    acked_when_abandoned: list[list[str]] = []
    bench.reign.on_abandon = lambda: acked_when_abandoned.append(list(bench.queue.acked))
    bench.serve(deletion())

    assert bench.reign.abandoned and acked_when_abandoned == [[]]
    assert [how["reaped_owner"] for how in bench.begun] == [None, OWNER]
    assert (bench.queue.acked, bench.queue.scrubs) == (["m0"], 1)
    assert not bench.reigns[1].abandoned


def test_what_is_no_deletion_costs_neither(bench: Bench) -> None:
    bench.reign.is_rewritten = False
    bench.serve(message())

    assert (len(bench.begun), bench.queue.scrubs) == (1, 0)


def test_a_deletion_that_erased_nothing_costs_no_takeover(bench: Bench) -> None:
    bench.serve(deletion())

    assert len(bench.begun) == 1 and bench.queue.acked == ["m0"]


def test_a_deletion_whose_new_epoch_does_not_begin_comes_again(bench: Bench) -> None:
    bench.reigns.append(ScriptedReign(owner="again"))
    bench.reign.is_rewritten = False
    bench.reign.on_abandon = lambda: bench.begin_faults.append(StoreUnavailable("s3"))
    bench.serve(deletion())
    assert bench.queue.acked == []

    bench.serve(deletion())
    assert bench.queue.acked == ["m0"]


def test_a_queue_that_is_busy_is_rewritten_later_and_the_tenant_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_module, "SCRUB_PAUSES_SECONDS", (0.0, 0.0))
    bench.queue.faults = {"scrub"}
    bench.serve(deletion())

    assert (bench.queue.acked, bench.queue.scrubs) == (["m0"], 2)


FAULTS_THAT_END_THE_REIGN = [HeadLost("rival"), MemoreeError(Code.INTEGRITY_ERROR, "damage"), RuntimeError("broken")]
FAULTS_THE_REIGN_SURVIVES = [StoreUnavailable("s3"), ObjectStoreError("403"), BatchFailed("a bug")]


@pytest.mark.parametrize("fault", [*FAULTS_THAT_END_THE_REIGN, *FAULTS_THE_REIGN_SURVIVES], ids=repr)
def test_whatever_fails_nothing_is_acknowledged_and_everything_given_back(bench: Bench, fault: BaseException) -> None:
    bench.reign.faults.append(fault)
    bench.serve(message())

    assert bench.queue.acked == []
    assert [messages for messages, _ in bench.queue.given_back] == [["m0"]]


@pytest.mark.parametrize("fault", FAULTS_THAT_END_THE_REIGN, ids=repr)
def test_a_reign_that_may_be_lost_is_ended_and_its_own_lease_is_not_waited_for(
    bench: Bench, fault: BaseException
) -> None:
    bench.reigns.append(ScriptedReign(owner="other"))
    bench.reign.faults.append(fault)
    bench.serve(message())
    bench.serve(message())

    assert bench.reign.abandoned
    assert [how["reaped_owner"] for how in bench.begun] == [None, OWNER]
    assert bench.queue.acked == ["m0"]


@pytest.mark.parametrize("fault", FAULTS_THE_REIGN_SURVIVES, ids=repr)
def test_a_passing_fault_costs_no_takeover(bench: Bench, fault: BaseException) -> None:
    bench.reign.faults.append(fault)
    bench.serve(message())
    bench.serve(message())

    assert not bench.reign.abandoned
    assert len(bench.begun) == 1
    assert bench.queue.acked == ["m0"]


def test_a_queue_that_fails_to_acknowledge_costs_no_takeover(bench: Bench) -> None:
    bench.queue.faults = {"ack"}

    with pytest.raises(QueueError):
        bench.serve(message())
    assert not bench.reign.abandoned


def test_faults_in_a_row_are_retried_ever_more_slowly(bench: Bench) -> None:
    bench.begin_faults = [RuntimeError("no Litestream") for _ in range(6)]
    pauses = []
    for _ in range(6):
        asyncio.run(_timed(bench, pauses.append))

    assert pauses == pytest.approx([*FAULT_BACK_OFF_SECONDS, FAULT_BACK_OFF_SECONDS[-1]], abs=0.05)


@pytest.mark.parametrize("outage", [StoreUnavailable("s3"), MemoreeError(Code.INTEGRITY_ERROR, "damage")], ids=repr)
def test_no_command_is_dead_before_its_time_however_long_an_outage_lasts(
    bench: Bench, outage: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every delivery counts, and after so many a queue gives a message up."""
    now = 0.0
    monkeypatch.setattr(tenant_module, "time", SimpleNamespace(monotonic=lambda: now))
    bench.begin_faults = [outage] * RECEIVE_COUNT_MAX
    deliveries = 0
    while now < limits.COMMAND_AGE_SECONDS_MAX:
        asyncio.run(bench.actor.serve([message()]))
        deliveries += 1
        _, hidden_seconds = bench.queue.given_back[-1]
        assert bench.actor.blocked_until == now + hidden_seconds
        now += hidden_seconds
    assert deliveries < RECEIVE_COUNT_MAX


async def _timed(bench: Bench, note: Callable[[float], None]) -> None:
    await bench.actor.serve([message()])
    note(max(0.0, bench.actor.blocked_until - time.monotonic()))


def test_a_lease_of_another_is_waited_for_while_the_messages_return_soon(bench: Bench) -> None:
    bench.begin_faults = [LeaseHeld("other", 12.0)]
    pauses: list[float] = []
    asyncio.run(_timed(bench, pauses.append))

    assert pauses == pytest.approx([12.0], abs=0.2)
    assert bench.queue.given_back == [(["m0"], 0.3)]


def test_a_lease_is_waited_for_as_long_as_it_is_held(bench: Bench) -> None:
    async def run() -> None:
        head_file = HeadFile(bench.store, layout.tenant_prefix(TENANT))
        held = await head_file.create(1, "00")
        held = await head_file.swap(held, replace(held.head, owner=OWNER))
        bench.begin_faults = [LeaseHeld(OWNER, 12.0)]
        await bench.actor.serve([message()])
        bench.store.reads.append(Fault.BEFORE)
        for _ in ("no answer", "held"):
            await bench.actor.look_at_lease()
            assert bench.actor.waits_for_lease

        await head_file.swap(held, replace(held.head, released_at="2026-03-02T20:41:07.000000000Z"))
        await bench.actor.look_at_lease()
        assert not bench.actor.waits_for_lease
        assert bench.actor.blocked_until < time.monotonic()

    asyncio.run(run())


def test_a_newer_apis_command_blocks_without_ending_the_reign(bench: Bench) -> None:
    bench.serve(message())
    (newer,) = delivered(command()[1].replace(b'"version":1', b'"version":9'))
    bench.serve(newer)

    assert not bench.reign.abandoned
    assert bench.queue.acked == ["m0"]


# --- parked commands --------------------------------------------------------------------------------------------


def test_a_parked_command_is_removed_after_the_acknowledgement(bench: Bench) -> None:
    made, body = command()
    bench.serve(*delivered(park(bench.store, made, body)))

    assert bench.queue.acked == ["m0"]
    assert bench.store.keys(layout.parked_command_key(TENANT, made.attempt_id)) == []


def test_a_parked_command_that_cannot_be_removed_gives_nothing_back(bench: Bench) -> None:
    made, body = command()
    (claim_check,) = delivered(park(bench.store, made, body))

    def refuse(request: str) -> None:
        if request.startswith("DELETE"):
            raise StoreUnavailable("scripted")

    bench.store.before_request = refuse
    bench.serve(claim_check)

    assert bench.queue.acked == ["m0"]
    assert bench.queue.given_back == []


@pytest.mark.fault_class(1)
def test_a_parked_command_that_is_lost_is_refused_visibly(bench: Bench) -> None:
    made, body = command()
    (claim_check,) = delivered(park(bench.store, made, body))
    bench.store.remove(layout.parked_command_key(TENANT, made.attempt_id))
    bench.serve(claim_check)

    assert bench.reign.refused == [made.attempt_id]
    assert bench.queue.acked == ["m0"]


# --- poison -----------------------------------------------------------------------------------------------------


@pytest.mark.fault_class(55)
def test_a_command_that_fails_every_time_is_refused_after_three_tries(bench: Bench) -> None:
    poison = message(receive_count=2)
    bench.reign.faults.extend(BatchFailed("a bug") for _ in range(5))
    for _ in range(4):
        bench.serve(poison)

    assert len(bench.reign.refused) == 1
    assert bench.queue.acked == ["m0"]


def test_a_try_that_the_store_prevented_does_not_count(bench: Bench) -> None:
    innocent = message(receive_count=2)
    bench.reign.faults.extend(StoreUnavailable("an outage") for _ in range(5))
    for _ in range(6):
        bench.serve(innocent)

    assert bench.reign.refused == []
    assert bench.queue.acked == ["m0"]


def test_a_redelivered_command_that_is_decided_leaves_no_mark(bench: Bench) -> None:
    made, body = command()
    bench.reign.decided.add(made.attempt_id)
    (one,) = delivered(body)
    bench.serve(Message(one.message_id, one.body, one.group, one.receipt, 3, 0.0))

    assert bench.store.keys("tenants/t/tries/") == []
    assert bench.queue.acked == ["m0"]


# --- resting ----------------------------------------------------------------------------------------------------


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@pytest.mark.parametrize("fault", [HeadLost("rival"), RuntimeError("no child"), StoreUnavailable("s3")], ids=repr)
def test_a_reign_that_cannot_settle_is_ended_and_raises_nothing(bench: Bench, fault: BaseException) -> None:
    bench.serve(message())
    bench.reign.settle_fault = fault
    run(bench.actor.settle())

    assert bench.reign.abandoned
    assert not bench.actor.holds_lease


def test_a_settled_reign_is_continued_and_not_taken_over(bench: Bench) -> None:
    bench.serve(message())
    run(bench.actor.settle())
    assert not bench.actor.holds_lease and bench.actor.idle_since == float("inf")
    bench.serve(message())

    assert len(bench.begun) == 1
    assert len(bench.reign.committed) == 2


def test_closing_releases_the_lease_and_keeps_nothing(bench: Bench) -> None:
    bench.serve(message())
    run(bench.actor.close())

    assert bench.reign.settled and bench.reign.abandoned


def test_a_store_that_fails_while_marking_a_try_gives_the_messages_back(bench: Bench) -> None:
    bench.store.writes.append(Fault.BEFORE)
    bench.serve(message(receive_count=2))

    assert bench.queue.acked == []
    assert len(bench.queue.given_back) == 1

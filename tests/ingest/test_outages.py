"""What waits for somebody else's fault to pass: it takes nobody's place, and pays with no try of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import apsw
import pytest

from memoree import limits
from memoree.database.meta import Meta
from memoree.embedded import EmbeddedService
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId, new_attempt_id
from memoree.ingest import judge, submission
from memoree.ingest.dead import Retried
from memoree.ingest.message import SourceReference, group_of, to_body
from memoree.ingest.site import one_by_one
from memoree.ingest.worker import IngestWorker
from memoree.jobs.tenancy import Tenancy
from memoree.queue import Message
from memoree.service import OperationStatus, Reply, Request, refusal, write_pending

from .conftest import Bench, Meddle, Troubled, at, item, register

WithBench = Callable[..., None]


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "RETRY_SECONDS_MIN", 0.01)
    monkeypatch.setattr(judge, "RETRY_SECONDS_MAX", 0.02)


def about(request: Request) -> str:
    return getattr(request.call.input, "external_id", "")


def unanswered(request: Request) -> Reply:
    return refusal(request.call.request_id, MemoreeError(Code.TRANSPORT_ERROR, "the writer does not answer"))


def undecided(request: Request) -> Reply:
    return refusal(request.call.request_id, write_pending(new_attempt_id()))


class Unreadable:
    """A tenant whose next snapshots fail."""

    def __init__(self, tenancy: Tenancy, failures: list[MemoreeError]) -> None:
        self.store = tenancy.store
        self._tenancy = tenancy
        self._failures = failures

    async def snapshot(self, work: Callable[[apsw.Connection], Any]) -> tuple[Any, Meta]:
        if self._failures:
            raise self._failures.pop()
        return await self._tenancy.snapshot(work)


class Telling(Troubled):
    """A service that tells, or raises, this of attempts, one after the other."""

    def __init__(self, service: EmbeddedService, meddle: Meddle, tells: list[Any]) -> None:
        super().__init__(service, meddle)
        self._tells = tells

    async def operation_status(self, _tenant: str, _attempt_id: AttemptId) -> OperationStatus:
        told = self._tells.pop(0)
        if isinstance(told, Exception):
            raise told
        return told


async def again(bench: Bench, messages: list[Message]) -> list[Message]:
    """Delivered once more, so that all of them are suspect."""
    await bench.queue.set_visibility(messages, 0)
    return await bench.received()


@pytest.mark.proves("operations-50")
@pytest.mark.fault_class(1)
def test_a_try_that_is_cut_off_is_none(with_bench: WithBench) -> None:
    answers = False

    async def hang(request: Request) -> Reply | None:
        if about(request) and not answers:
            await asyncio.Event().wait()
        return None

    async def scenario(bench: Bench) -> None:
        nonlocal answers
        await bench.apply(register())
        await bench.publish(item())
        received = await again(bench, await bench.received())
        for _ in range(limits.INGEST_TRIES_MAX):
            assert len(await bench.worker.serve(received, seconds_max=0.05)) == 1
            received = await again(bench, received)
        answers = True
        assert await bench.worker.serve(received, seconds_max=10) == []
        assert await bench.letters() == []
        assert bench.item("page-1") is not None

    with_bench(scenario, meddle=hang)


@pytest.mark.proves("operations-50")
@pytest.mark.parametrize("answer", [unanswered, undecided])
@pytest.mark.parametrize("suspect", [True, False])
def test_who_waits_takes_nobodys_place(
    suspect: bool, answer: Callable[[Request], Reply], with_bench: WithBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INGEST_IN_FLIGHT_MAX", 1)

    async def down(request: Request) -> Reply | None:
        return answer(request) if about(request) == "waits" else None

    async def scenario(bench: Bench) -> None:
        await bench.apply(register())
        later = item("goes on", b"two", external_revision="v2", observed_at=at(2))
        await bench.publish(item("waits"), item("goes on"), later)
        received = await bench.received()
        if suspect:
            received = await again(bench, received)
        # Made anew: the one of the bench knew the bound as it is.
        left = await IngestWorker(bench.worker.site).serve(received, seconds_max=0.5)
        assert [message.body for message in left] == [to_body(item("waits"))]
        assert await bench.content("goes on") == b"two"

    with_bench(scenario, meddle=down)


@pytest.mark.proves("operations-50")
def test_a_tenant_with_much_that_waits_is_one_in_the_line_of_suspects(with_bench: WithBench) -> None:
    tried: list[str] = []

    async def known(_tenant: str) -> bool:
        return True

    async def note(request: Request) -> Reply | None:
        if not about(request):
            return None
        tried.append(about(request))
        return unanswered(request)

    async def scenario(bench: Bench) -> None:
        await bench.apply(register())
        noisy = [item(f"noisy-{number}", tenant="noisy") for number in range(20)]
        quiet = item("quiet", tenant="quiet")
        await bench.put(*map(to_body, noisy), group=group_of(noisy[0]))
        await bench.put(to_body(quiet), group=group_of(quiet))
        received = await again(bench, await bench.received())
        worker = IngestWorker(replace(bench.worker.site, knows=known))
        await worker.serve(received, seconds_max=0.3)
        assert tried.index("quiet") <= 2, tried

    with_bench(scenario, meddle=note)


RETRYABLE = [Code.INDEX_NOT_READY, Code.TRANSPORT_ERROR]


@pytest.mark.proves("operations-50")
@pytest.mark.fault_class(1)
@pytest.mark.parametrize("code", RETRYABLE)
def test_a_tenant_that_cannot_be_read_for_a_while_refuses_nothing(code: Code, with_bench: WithBench) -> None:
    failures = [MemoreeError(code, "it is being restored")] * (limits.INGEST_TRIES_MAX + 1)

    async def scenario(bench: Bench) -> None:
        await bench.apply(register())
        site = bench.worker.site
        tenancy: Any = Unreadable(site.tenancy("local"), failures)
        await bench.publish(item())
        worker = IngestWorker(replace(site, tenancy=lambda _tenant: tenancy))
        assert await worker.serve(await bench.received(), seconds_max=10) == []
        assert failures == []
        assert await bench.letters() == []
        assert bench.item("page-1") is not None

    with_bench(scenario)


@pytest.mark.proves("operations-50")
@pytest.mark.fault_class(1)
@pytest.mark.parametrize("suspect", [True, False])
@pytest.mark.parametrize("code", RETRYABLE)
def test_a_store_that_does_not_tell_what_became_of_a_command_is_asked_again(
    code: Code, suspect: bool, with_bench: WithBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "PENDING_LOOK_SECONDS_MIN", 0.01)
    silent: Any = MemoreeError(code, "the store does not answer")
    tells = [silent, silent, OperationStatus("pending"), silent, OperationStatus("applied")]
    submitted: list[str] = []

    async def pending(request: Request) -> Reply | None:
        if not about(request):
            return None
        submitted.append(about(request))
        return undecided(request)

    async def scenario(bench: Bench) -> None:
        await bench.apply(register())
        await bench.publish(item())
        received = await bench.received()
        if suspect:
            received = await again(bench, received)
        service: Any = Telling(bench.service, pending, tells)
        worker = IngestWorker(replace(bench.worker.site, service=service, write_many=one_by_one(service)))
        assert await worker.serve(received, seconds_max=10) == []
        assert tells == []
        assert submitted == ["page-1"]
        assert await bench.letters() == []

    with_bench(scenario)


@pytest.mark.proves("operations-50")
@pytest.mark.parametrize("by_hand", [True, False])
def test_a_tenant_whose_store_is_slow_takes_no_turn_of_another(
    by_hand: bool, with_bench: WithBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INGEST_IN_FLIGHT_MAX", 1)
    monkeypatch.setattr(judge, "BATCHES_AT_ONCE_MAX", 1)

    async def known(_tenant: str) -> bool:
        return True

    async def slow(request: Request) -> Reply | None:
        if about(request) == "slow":
            await asyncio.Event().wait()
        return None

    async def scenario(bench: Bench) -> None:
        sources = [SourceReference(system="wiki", name=name) for name in ("one", "two", "three")]
        await bench.apply(register(), *(register(source=source) for source in sources))
        for message in [*(item("slow", tenant="slow", source=source) for source in sources), item("quick")]:
            body = to_body(message)
            # What was sent again by hand is submitted alone.
            await bench.put(Retried(body, 1, at(1)).to_body() if by_hand else body, group=group_of(message))
        worker = IngestWorker(replace(bench.worker.site, knows=known))
        assert len(await worker.serve(await bench.received(), seconds_max=0.5)) == len(sources)
        assert bench.item("quick") is not None

    with_bench(scenario, meddle=slow)


@pytest.mark.proves("fault-19")
@pytest.mark.fault_class(19)
def test_a_tenant_that_was_deleted_while_nothing_came_is_not_founded_again(
    with_bench: WithBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "TENANT_KNOWN_SECONDS", 0.05)
    there = True

    async def knows(_tenant: str) -> bool:
        return there

    async def scenario(bench: Bench) -> None:
        nonlocal there
        worker = IngestWorker(replace(bench.worker.site, knows=knows))
        await bench.publish(register())
        received = await bench.received()
        assert await worker.serve(received, seconds_max=10) == []
        await bench.queue.ack(received)
        there = False
        await asyncio.sleep(0.1)
        await bench.publish(item())
        assert await worker.serve(await bench.received(), seconds_max=5) == []
        assert [letter.code for letter in await bench.letters()] == ["NOT_FOUND"]
        assert bench.item("page-1") is None

    with_bench(scenario)


@pytest.mark.proves("fault-19")
@pytest.mark.fault_class(19)
def test_what_comes_for_a_tenant_that_was_deleted_is_told(with_bench: WithBench) -> None:
    there = True

    async def knows(_tenant: str) -> bool:
        return there

    async def gone(request: Request) -> Reply | None:
        return None if there else unanswered(request)

    async def scenario(bench: Bench) -> None:
        nonlocal there
        worker = IngestWorker(replace(bench.worker.site, knows=knows))
        await bench.publish(register(), item())
        received = await bench.received()
        assert await worker.serve(received, seconds_max=10) == []
        await bench.queue.ack(received)
        there = False
        await bench.publish(item("page-2"))
        assert await worker.serve(await bench.received(), seconds_max=5) == []
        assert [letter.code for letter in await bench.letters()] == ["NOT_FOUND"]

    with_bench(scenario, meddle=gone)

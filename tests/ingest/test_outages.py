"""What waits for somebody else's fault to pass: it takes nobody's place, and pays with no try of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.ids import new_attempt_id
from memoree.ingest import judge
from memoree.ingest.message import group_of, to_body
from memoree.ingest.worker import IngestWorker
from memoree.queue import Message
from memoree.service import Reply, Request, refusal, write_pending

from .conftest import Bench, at, item, register

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

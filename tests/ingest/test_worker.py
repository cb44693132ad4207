"""What the worker makes of messages: each applied once, in order where it matters, or told in the dead letters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from blake3 import blake3

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.ingest import judge
from memoree.ingest.message import SourceReference, UploadReference, group_of, to_body
from memoree.service import Reply, Request, refusal

from .conftest import Bench, OpenBench, at, checkpoint, item, register, withdraw
from .test_message import CONTENTS

WithBench = Callable[..., None]


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "RETRY_SECONDS_MIN", 0.001)
    monkeypatch.setattr(judge, "RETRY_SECONDS_MAX", 0.002)


# --- once -------------------------------------------------------------------------------------------------------


@pytest.mark.fault_class(8)
def test_a_message_that_comes_a_thousand_times_is_one_revision(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.publish(register())
        await bench.put(*[to_body(item())] * 1000, group=group_of(item()))
        await bench.work_off()
        assert bench.commit_seq == 2
        assert bench.rows("SELECT count(*) FROM artifact_revisions") == [(1,)]
        assert await bench.letters() == []

    with_bench(scenario)


@pytest.mark.fault_class(11)
@pytest.mark.proves("fault-11", "operations-47")
def test_what_was_decided_before_a_worker_died_is_not_done_again(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.publish(register(), item("a"), item("b"), item("a", b"new", external_revision="v2"))
        await bench.publish(withdraw("b"), checkpoint("c-1"))
        received = await bench.received()
        assert await bench.worker.serve(received, seconds_max=30) == []  # and it dies before it acknowledges any
        before, found = bench.commit_seq, bench.item("a")
        await bench.queue.set_visibility(received, 0)
        await bench.work_off()
        assert (bench.commit_seq, bench.item("a")) == (before, found)
        assert (before, await bench.letters()) == (6, [])

    with_bench(scenario)


@pytest.mark.proves("operations-47")
def test_messages_sent_again_in_another_order_undo_nothing(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        first, second = item(), item(content=b"second", external_revision="v2", observed_at=at(2))
        await bench.apply(register(), first, second)
        await bench.apply(first)
        found = bench.item("page-1")
        assert found is not None and found.external_revision == "v2"
        assert bench.commit_seq == 3

    with_bench(scenario)


@pytest.mark.fault_class(8)
@pytest.mark.proves("fault-8")
def test_a_state_that_returns_is_a_new_delivery(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.apply(register(), item(), withdraw(observed_at=at(2)), item(observed_at=at(3)))
        found = bench.item("page-1")
        assert found is not None and found.state == "live"
        await bench.apply(item(content=b"two", external_revision="v2", observed_at=at(4)), item(observed_at=at(5)))
        assert await bench.content("page-1") == b"Celadon: 2% iron oxide"

    with_bench(scenario)


@pytest.mark.fault_class(10)
@pytest.mark.parametrize("between", [(), (item(content=b"v2", external_revision="v2", observed_at=at(2)),)])
def test_the_same_revision_with_other_bytes_is_told(between: tuple[Any, ...], with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.apply(register(), item(), *between)
        before = bench.commit_seq
        await bench.apply(item(content=b"other bytes"), item("page-2"))
        [letter] = await bench.letters()
        assert (letter.code, letter.tries) == ("REVISION_CONFLICT", 1)
        assert "page-1" in letter.reason
        assert bench.commit_seq == before + 1
        assert await bench.content("page-2") == b"Celadon: 2% iron oxide"

    with_bench(scenario)


@pytest.mark.fault_class(10)
@pytest.mark.proves("fault-10", "operations-47")
def test_large_content_that_is_uploaded_again_is_the_same_delivery(with_bench: WithBench) -> None:
    large = b"\xff" * (limits.INGEST_INLINE_BYTES_MAX + 1)

    async def scenario(bench: Bench) -> None:
        await bench.apply(register())
        for _ in range(2):
            content = await bench.publisher.content("local", large)
            assert isinstance(content, UploadReference)
            await bench.apply(item().model_copy(update={"content": content}))
        other = await bench.publisher.content("local", large + b"!")
        await bench.apply(item().model_copy(update={"content": other}))
        assert await bench.content("page-1") == large
        assert bench.commit_seq == 2
        assert [letter.code for letter in await bench.letters()] == ["REVISION_CONFLICT"]

    with_bench(scenario)


# --- order ------------------------------------------------------------------------------------------------------


@pytest.mark.proves("operations-48")
def test_messages_about_one_item_are_applied_in_their_order(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        revisions = [item(content=b"%d" % n, external_revision=f"v{n}", observed_at=at(n)) for n in range(20)]
        await bench.apply(register(), *revisions)
        assert await bench.content("page-1") == b"19"
        stored = bench.rows("SELECT body FROM artifact_revisions ORDER BY row_id")
        assert [bytes(body) for (body,) in stored] == [b"%d" % n for n in range(20)]

    with_bench(scenario)


@pytest.mark.fault_class(4)
@pytest.mark.proves("fault-4", "operations-51")
def test_a_cursor_moves_only_when_everything_before_it_is_decided(with_bench: WithBench) -> None:
    slow = asyncio.Event()

    async def hold(request: Request) -> Reply | None:
        if getattr(request.call.input, "external_id", "") == "slow":
            await slow.wait()
        return None

    async def scenario(bench: Bench) -> None:
        await bench.publish(register(), item("slow"), item("quick"), checkpoint("c-1"), item("later"))
        working = asyncio.create_task(bench.work_off())
        async with asyncio.timeout(10):
            while bench.item("quick") is None:  # noqa: ASYNC110 - a condition of the store
                await asyncio.sleep(0.005)
        assert bench.source is not None and bench.source.cursor is None
        slow.set()
        await working
        assert bench.source.cursor == "c-1"
        order = bench.rows("SELECT operation, entity_id FROM events ORDER BY commit_seq")
        told = [(operation, entity.rpartition(":")[2]) for operation, entity in order]
        assert [operation for operation, _ in told].index("source.checkpoint") == 3, told

    with_bench(scenario, meddle=hold)


@pytest.mark.proves("operations-49")
def test_a_dead_letter_holds_up_neither_its_neighbours_nor_the_cursor(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.apply(register(), item())
        doomed = item(kind="another_kind", external_revision="v2", observed_at=at(2))
        after = item(content=b"v3", external_revision="v3", observed_at=at(3))
        await bench.apply(doomed, item("neighbour"), after, checkpoint("c-2"))
        assert await bench.content("page-1") == b"v3"
        assert bench.source is not None and bench.source.cursor == "c-2"
        assert [letter.code for letter in await bench.letters()] == ["INVALID_REQUEST"]

    with_bench(scenario)


@pytest.mark.fault_class(1)
@pytest.mark.proves("fault-1")
def test_a_dead_letter_is_never_applied_after_all(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.apply(register(), item())
        doomed = item(content=b"other bytes", observed_at=at(2))
        await bench.publish(doomed, item(content=b"v2", external_revision="v2", observed_at=at(3)))
        received = await bench.received()
        assert await bench.worker.serve(received, seconds_max=30) == []  # and it dies before it acknowledges any
        await bench.queue.set_visibility(received, 0)
        await bench.work_off()
        assert await bench.content("page-1") == b"v2"
        assert len(await bench.letters()) == 1

    with_bench(scenario)


# --- what cannot be applied -------------------------------------------------------------------------------------


@pytest.mark.proves("operations-49")
@pytest.mark.fault_class(1)
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("NOT_FOUND", item(source=SourceReference(system="wiki", name="Nobody registered this"))),
        ("REVISION_CONFLICT", item(source=SourceReference(system="git", name="Studio wiki"))),
        ("NOT_FOUND", item(tenant="stranger")),
        ("NOT_FOUND", withdraw("never-delivered")),
        ("REVISION_CONFLICT", register(locator="https://elsewhere.example")),
    ],
)
def test_a_refusal_is_kept_with_its_reason(code: str, message: Any, with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.apply(register())
        before = datetime.now(UTC)
        await bench.apply(message, item())
        [letter] = await bench.letters()
        assert (letter.code, letter.tries, letter.first_at) == (code, 1, letter.last_at)
        assert before <= datetime.fromisoformat(letter.last_at) <= datetime.now(UTC)
        assert letter.reason
        assert bench.item("page-1") is not None

    with_bench(scenario)


@pytest.mark.proves("operations-49")
@pytest.mark.parametrize(
    "body", ["glaze", '{"version":2}', '{"version":1,"type":"ingest"}', '{"retried":\n{}', "[" * 9999]
)
def test_poison_that_no_publisher_sends_becomes_a_dead_letter(body: str, with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.put(body)
        await bench.apply(register(), item())
        [letter] = await bench.letters()
        assert letter.body == body
        assert bench.item("page-1") is not None

    with_bench(scenario)


@pytest.mark.fault_class(4)
@pytest.mark.proves("fault-4", "operations-49")
def test_what_fails_five_times_is_given_up_with_its_last_reason(with_bench: WithBench) -> None:
    tried: Counter[str] = Counter()

    async def stumble(request: Request) -> Reply | None:
        name = getattr(request.call.input, "external_id", "")
        tried[name] += 1
        if name == "doomed" or (name == "twice" and tried[name] <= 4):
            raise RuntimeError("the glaze ran")
        return None

    async def scenario(bench: Bench) -> None:
        await bench.apply(register(), item("doomed"), item("twice"), item("sound"))
        [letter] = await bench.letters()
        assert (letter.code, letter.tries) == ("INTERNAL_ERROR", limits.INGEST_TRIES_MAX)
        assert "the glaze ran" in letter.reason
        assert bench.item("doomed") is None
        assert bench.item("twice") is not None and bench.item("sound") is not None
        store = bench.worker.site.tenancy("local").store
        assert [info async for info in store.list("tenants/local/tries/")] == [], "decided messages leave no marks"

    with_bench(scenario, meddle=stumble)


@pytest.mark.fault_class(1)
@pytest.mark.proves("fault-1", "operations-50")
def test_an_outage_is_waited_for_and_counts_as_no_try(with_bench: WithBench) -> None:
    answers = 3 * limits.INGEST_TRIES_MAX

    async def down(request: Request) -> Reply | None:
        nonlocal answers
        answers -= 1
        if answers <= 0 or request.call.operation.name != "source.ingest":
            return None
        return refusal(request.call.request_id, MemoreeError(Code.TRANSPORT_ERROR, "the store does not answer"))

    async def scenario(bench: Bench) -> None:
        await bench.publish(register(), item())
        await bench.queue.set_visibility(await bench.received(), 0)  # somebody died with them in hand
        await bench.work_off()
        assert bench.item("page-1") is not None
        assert (answers, await bench.letters()) == (0, [])

    with_bench(scenario, meddle=down)


def test_serve_returns_what_it_had_no_time_for(with_bench: WithBench) -> None:
    async def hang(request: Request) -> Reply | None:
        if getattr(request.call.input, "external_id", "") == "hangs":
            await asyncio.Event().wait()
        return None

    async def scenario(bench: Bench) -> None:
        await bench.publish(register(), item("quick"), item("hangs"), checkpoint("c-1"))
        received = await bench.received()
        left = await bench.worker.serve(received, seconds_max=0.5)
        assert left == received[2:]
        assert bench.item("quick") is not None
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with_bench(scenario, meddle=hang)


@pytest.mark.proves("operations-52")
@pytest.mark.fault_class(61)
def test_any_bytes_are_kept_as_they_are(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        kept = {**CONTENTS, "inline-limit": b"\xfe" * limits.INGEST_INLINE_BYTES_MAX}
        deliveries = [item(name, content, media_type="text/plain") for name, content in kept.items()]
        await bench.apply(register(), *deliveries)
        assert await bench.letters() == []
        for name, content in kept.items():
            assert await bench.content(name) == content, name

    with_bench(scenario)


@pytest.mark.proves("operations-52")
@pytest.mark.fault_class(61)
def test_eight_mebibytes_are_kept_as_they_are(with_bench: WithBench) -> None:
    large = b"\0\xff" * (limits.ARTIFACT_BYTES_MAX // 2)

    async def scenario(bench: Bench) -> None:
        content = await bench.publisher.content("local", large)
        await bench.apply(register(), item().model_copy(update={"content": content}))
        found = bench.item("page-1")
        assert found is not None
        stored = bench.rows("SELECT blob_hash, size_bytes FROM artifact_revisions")
        assert stored == [(blake3(large).digest(), len(large))]
        with pytest.raises(MemoreeError, match="the limit is"):
            await bench.publisher.content("local", large + b"!")

    with_bench(scenario)


def test_what_a_worker_had_in_hand_when_it_stopped_comes_again(open_bench: OpenBench) -> None:
    stop = asyncio.Event()

    async def hang(request: Request) -> Reply | None:
        if request.call.operation.name == "source.ingest":
            stop.set()
            await asyncio.Event().wait()
        return None

    async def scenario() -> None:
        async with open_bench(hang) as bench:
            await bench.publish(register(), item())
            await bench.worker.run(bench.queue, stop)
            assert bench.item("page-1") is None
        async with open_bench() as bench:
            await bench.work_off()
            assert bench.item("page-1") is not None

    asyncio.run(scenario())

"""Dead letters: listed, shown, sent again and dropped, by hand and from the shell."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import orjson
import pytest

from memoree import clock
from memoree.errors import MemoreeError
from memoree.ingest.dead import DeadLetters, Retried
from memoree.ingest.message import to_body
from memoree.queue import OutgoingMessage

from .conftest import Bench, at, item, register

WithBench = Callable[..., None]


@pytest.mark.proves("operations-54")
@pytest.mark.fault_class(4)
def test_a_retried_message_is_applied_once_its_reason_is_gone(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.apply(item())
        [letter] = await bench.letters()
        await bench.apply(register())
        assert await bench.dead.retry([letter.letter_id]) == 1
        await bench.work_off()
        assert bench.item("page-1") is not None
        assert await bench.letters() == []

    with_bench(scenario)


@pytest.mark.fault_class(4)
@pytest.mark.proves("fault-4", "operations-54")
def test_a_message_that_dies_again_keeps_its_first_instant_and_all_its_tries(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.apply(item())
        [first] = await bench.letters()
        await bench.dead.retry([first.letter_id])
        await bench.work_off()
        [again] = await bench.letters()
        assert (again.tries, again.first_at, again.body) == (2, first.first_at, first.body)
        assert again.last_at > first.last_at

    with_bench(scenario)


@pytest.mark.fault_class(8)
@pytest.mark.proves("fault-8")
def test_a_message_that_comes_too_late_does_not_undo_a_later_state(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.apply(item())
        [letter] = await bench.letters()
        later = item(content=b"later", external_revision="v2", observed_at=at(2))
        await bench.apply(register(), later)
        await bench.dead.retry([letter.letter_id])
        await bench.work_off()
        assert await bench.content("page-1") == b"later"
        assert (bench.commit_seq, await bench.letters()) == (2, [])

    with_bench(scenario)


@pytest.mark.proves("operations-54")
def test_a_dropped_letter_is_gone_and_an_unknown_one_is_told(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.apply(item("a"), item("b"))
        first, second = await bench.letters()
        with pytest.raises(MemoreeError, match="no dead letter 'nobody'"):
            await bench.dead.drop([first.letter_id, "nobody"])
        assert await bench.dead.drop([first.letter_id]) == 1
        assert await bench.letters() == [second]
        with pytest.raises(MemoreeError, match="no dead letter"):
            await bench.dead.find(first.letter_id)

    with_bench(scenario)


@pytest.mark.proves("operations-54")
def test_a_letter_says_what_its_message_is_about(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.apply(item())
        await bench.put("glaze")
        await bench.work_off()
        told, poison = await bench.letters()
        assert told.summary().items() >= {
            "type": "ingest", "tenant": "local", "source": "Studio wiki", "external_id": "page-1", "tries": 1
        }.items()  # fmt: skip
        assert told.shown()["message"] == orjson.loads(to_body(item()))
        assert poison.shown()["message"] == "glaze"
        assert "type" not in poison.summary()

    with_bench(scenario)


@pytest.mark.proves("operations-54")
def test_every_letter_is_listed_and_found_however_many_there_are(
    with_bench: WithBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memoree.queue.sqlite.DEAD_LETTERS_PAGE", 2)

    async def scenario(bench: Bench) -> None:
        await bench.apply(*[item(f"page-{number}") for number in range(5)])
        listed = await bench.dead.summaries()
        assert {letter["external_id"] for letter in listed} == {f"page-{number}" for number in range(5)}
        for letter in listed:
            assert (await bench.dead.find(letter["letter_id"])).summary() == letter

    with_bench(scenario)


@pytest.mark.proves("operations-54")
@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=1)])
def test_all_letters_are_sent_again_once_also_those_that_die_again(ahead: timedelta, with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        sent: list[OutgoingMessage] = []

        class WorkedOff:
            async def send(self, message: OutgoingMessage) -> None:
                sent.append(message)
                assert len(sent) <= 2, "sent again without end"
                await bench.queue.send(message)
                await bench.work_off()

        queue: Any = WorkedOff()
        await bench.apply(item("a"), item("b"))
        dead = DeadLetters(bench.queue, queue, lambda: clock.utc_now() + ahead)
        assert await dead.retry_all() == 2
        assert [letter.tries for letter in await bench.letters()] == [2, 2]
        assert await bench.dead.drop_all() == 2
        assert await bench.letters() == []

    with_bench(scenario)


def test_what_dies_after_the_look_for_all_letters_is_not_meant(with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.apply(item("a"))
        began = clock.utc_now()
        await bench.apply(item("b"))
        assert await DeadLetters(bench.queue, bench.queue, lambda: began).drop_all() == 1
        assert [letter.summary()["external_id"] for letter in await bench.letters()] == ["b"]

    with_bench(scenario)


def test_no_byte_of_a_message_is_escaped_once_more() -> None:
    body = '"\\' * 1000 + "\nsecond line"
    wrapped = Retried(body, 3, "2026-03-02T20:00:00Z").to_body()
    assert Retried.of(wrapped) == Retried(body, 3, "2026-03-02T20:00:00Z")
    assert len(wrapped) < len(body) + 100, "or a dead letter may outgrow its queue"

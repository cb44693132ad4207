"""Dead letters: listed, shown, sent again and dropped, by hand and from the shell."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from memoree.errors import MemoreeError
from memoree.ingest.dead import Retried
from memoree.ingest.message import to_body

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


def test_no_byte_of_a_message_is_escaped_once_more() -> None:
    body = '"\\' * 1000 + "\nsecond line"
    wrapped = Retried(body, 3, "2026-03-02T20:00:00Z").to_body()
    assert Retried.of(wrapped) == Retried(body, 3, "2026-03-02T20:00:00Z")
    assert len(wrapped) < len(body) + 100, "or a dead letter may outgrow its queue"

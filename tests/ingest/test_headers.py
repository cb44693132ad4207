"""Bodies that begin like what is written before a body: plain bodies, which hold nobody up and can be looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import orjson
import pytest

from memoree.errors import MemoreeError
from memoree.ingest.dead import DeadLetters, Retried
from memoree.ingest.worker import IngestWorker
from memoree.queue import Message

from .conftest import Bench, item, register

WithBench = Callable[..., None]

INSTANT = "2026-03-02T20:00:00Z"
LETTER = {
    "letter": 1,
    "message_id": "m",
    "group": "source-x",
    "code": "NOT_FOUND",
    "reason": "no",
    "tries": 1,
    "sent_at": INSTANT,
    "first_at": INSTANT,
    "last_at": INSTANT,
}
FALSE_HISTORIES = [
    '{"retried":1}',
    '{"retried":"x","first_at":"y"}',
    f'{{"retried":true,"first_at":"{INSTANT}"}}',
    f'{{"retried":-1,"first_at":"{INSTANT}"}}',
    f'{{"retried":18446744073709551615,"first_at":"{INSTANT}"}}',
    '{"retried":1,"first_at":null}',
    '{"retried":1,"first_at":"2026-03-02T20:00:00.000Z"}',
    f'{{"retried":1,"first_at":"{INSTANT}","more":1}}',
]
FALSE_LETTERS: list[dict[str, Any]] = [
    {"letter": 1},
    {**LETTER, "letter": True},
    {**LETTER, "reason": 4},
    {**LETTER, "tries": "4"},
    {**LETTER, "group": "no group"},
    {**LETTER, "last_at": "yesterday"},
    {**LETTER, "more": 1},
    {name: value for name, value in LETTER.items() if name != "message_id"},
]


@pytest.mark.proves("operations-49")
@pytest.mark.parametrize("header", FALSE_HISTORIES)
def test_a_false_history_is_part_of_a_poison_that_holds_nobody_up(header: str, with_bench: WithBench) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.publish(register(), item())
        await bench.put(f"{header}\nx")
        assert await bench.worker.serve(await bench.received(), seconds_max=10) == []
        [letter] = await bench.letters()
        assert (letter.body, letter.tries) == (f"{header}\nx", 1)
        assert bench.item("page-1") is not None

    with_bench(scenario)


@pytest.mark.proves("operations-54")
def test_whatever_the_queue_gave_up_is_listed_shown_sent_again_and_dropped(with_bench: WithBench) -> None:
    headers = [*FALSE_HISTORIES, *(orjson.dumps(header).decode() for header in FALSE_LETTERS)]
    bodies = {f"{header}\nx" for header in headers}

    async def scenario(bench: Bench) -> None:
        await bench.put(*bodies)
        received = await bench.received()
        for message in received:
            await bench.queue.bury(message, body=message.body, reason="received too often")
        await bench.queue.ack(received)
        letters = await bench.letters()
        assert {letter.body for letter in letters} == bodies
        assert {(await bench.dead.find(letter.letter_id)).group for letter in letters} == {"source-x"}
        assert len(await bench.dead.summaries()) == len(bodies)
        assert await bench.dead.retry_all() == len(bodies)
        again = {Retried.of(message.body).body for message in await bench.received()}
        assert again == bodies

    with_bench(scenario)


@pytest.mark.proves("operations-49")
def test_what_goes_wrong_with_one_message_is_felt_by_its_source_alone(with_bench: WithBench) -> None:
    class Clumsy(DeadLetters):
        async def bury(self, message: Message, history: Retried, error: MemoreeError, *, tries: int) -> None:
            raise KeyError("a bug")

    async def scenario(bench: Bench) -> None:
        await bench.put("poison")
        await bench.publish(register(), item("a"), item("b"))
        received = await bench.received()
        dead = Clumsy(bench.queue, bench.queue, lambda: pytest.fail("nothing is buried"))
        left = await IngestWorker(replace(bench.worker.site, dead=dead)).serve(received, seconds_max=10)
        assert bodies(left) == ["poison"]
        assert bench.item("a") is not None and bench.item("b") is not None

    with_bench(scenario)


def bodies(messages: Collection[Message]) -> list[str]:
    return [message.body for message in messages]

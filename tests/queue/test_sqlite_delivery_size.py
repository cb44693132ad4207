"""One delivery of the SQLite queue is bounded in bytes as well as in messages."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from memoree.queue import Message, OutgoingMessage, sqlite_store
from memoree.queue.sqlite import SqliteQueue


def deliveries(path: Path, messages: list[OutgoingMessage]) -> list[list[Message]]:
    """What is received, delivery by delivery, each acknowledged."""

    async def run() -> list[list[Message]]:
        queue = SqliteQueue(path)
        try:
            await queue.send_batch(messages)
            found = []
            while received := await queue.receive(max_messages=1000, wait_seconds=0, visibility_seconds=30.0):
                found.append(received)
                await queue.ack(received)
            return found
        finally:
            await queue.close()

    return asyncio.run(run())


@pytest.mark.parametrize("groups", [1, 9])
def test_large_messages_come_in_several_deliveries_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    monkeypatch.setattr(sqlite_store, "DELIVERY_CHARACTERS_MAX", 1000)
    bodies = [f"{number}:".ljust(300, "x") for number in range(9)]

    found = deliveries(
        tmp_path / "queue.sqlite3",
        [OutgoingMessage(body, f"g{number % groups}", f"d{number}") for number, body in enumerate(bodies)],
    )

    assert [len(delivery) for delivery in found] == [4, 4, 1]
    assert [message.body for delivery in found for message in delivery] == bodies


def test_a_message_larger_than_the_bound_is_delivered_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "DELIVERY_CHARACTERS_MAX", 10)

    found = deliveries(
        tmp_path / "queue.sqlite3", [OutgoingMessage(f"body {number}" * 10, "g", f"d{number}") for number in range(2)]
    )

    assert [len(delivery) for delivery in found] == [1, 1]

"""Dead letters in the file of a SQLite queue."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlite_support import LONG, ManualClock, message, receive, run

from memoree.queue import sqlite_store
from memoree.queue.sqlite import SqliteQueue


def test_dead_letters_are_listed_page_by_page(path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memoree.queue.sqlite.DEAD_LETTERS_PAGE", 2)

    async def scenario(queue: SqliteQueue) -> None:
        ids = await queue.send_batch([message(f"m{number}", group=f"g{number}", body="poison") for number in range(3)])
        await receive(queue)
        clock.advance(LONG)
        assert await receive(queue) == []
        first, second, third = [letter async for letter in queue.dead_letters()]
        assert [dead.message_id for dead in (first, second, third)] == ids
        assert (first.group, first.body, first.receive_count) == ("g0", "poison", 1)
        assert first.dead_at - first.sent_at == LONG
        assert "without an acknowledgement" in first.reason

    run(path, scenario, clock=clock, receive_count_max=1)


def test_dead_letters_are_kept_for_two_weeks(path: Path, clock: ManualClock) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        for number in range(2):
            await queue.send(message(f"m{number}"))
            await receive(queue)
            clock.advance(sqlite_store.DEAD_LETTER_RETENTION_SECONDS)
            assert await receive(queue) == []
        assert len([letter async for letter in queue.dead_letters()]) == 1

    run(path, scenario, clock=clock, receive_count_max=1)

"""The statements of the SQLite queue against a model: lists in memory that say what SQS FIFO means."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoree.queue import DEDUPLICATION_SECONDS, OutgoingMessage
from memoree.queue.sqlite_store import (
    dead_letters,
    deliver,
    enqueue,
    has_deliverable,
    open_database,
    remove,
    set_visible_at,
    stats,
)

RECEIVE_COUNT_MAX = 3
VISIBILITY_SECONDS = 30.0
GROUPS = ("a", "b")


@dataclass
class Held:
    """What the model knows about one message."""

    message_id: str
    group: str
    receipt: str = ""
    receive_count: int = 0
    visible_at: float = 0.0


class Compared:
    """Does each step to the store and to the model, and asserts that they agree."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.now = 1000.0
        self.messages: list[Held] = []
        self.first_sent: dict[str, tuple[str, float]] = {}
        self.receipts: list[str] = []
        self.dead: set[str] = set()

    def send(self, group: str, dedup_id: str) -> None:
        [message_id] = enqueue(self.connection, [OutgoingMessage("body", group, dedup_id)], self.now)
        first_id, sent_at = self.first_sent.get(dedup_id, ("", -DEDUPLICATION_SECONDS))
        if sent_at + DEDUPLICATION_SECONDS > self.now:
            assert message_id == first_id
        else:
            self.first_sent[dedup_id] = (message_id, self.now)
            self.messages.append(Held(message_id, group))

    def receive(self, max_messages: int, except_groups: list[str]) -> None:
        open_groups = [
            group
            for group in GROUPS
            if group not in except_groups
            and self._of(group)
            and all(held.visible_at <= self.now for held in self._of(group))
        ]
        assert has_deliverable(self.connection, except_groups, self.now) == bool(open_groups)
        delivered = deliver(
            self.connection,
            max_messages=max_messages,
            visibility_seconds=VISIBILITY_SECONDS,
            except_groups=except_groups,
            receive_count_max=RECEIVE_COUNT_MAX,
            now=self.now,
        )
        self._bury(open_groups)
        assert len(delivered) == min(max_messages, sum(len(self._of(group)) for group in open_groups))
        for group in {message.group for message in delivered}:
            assert group in open_groups
            run = [message.message_id for message in delivered if message.group == group]
            assert run == [held.message_id for held in self._of(group)][: len(run)]
        for message in delivered:
            [held] = [held for held in self.messages if held.message_id == message.message_id]
            held.receive_count += 1
            held.receipt, held.visible_at = message.receipt, self.now + VISIBILITY_SECONDS
            assert message.receive_count == held.receive_count <= RECEIVE_COUNT_MAX
            self.receipts.append(message.receipt)

    def ack(self, newest: int) -> None:
        remove(self.connection, self.receipts[-newest:])
        self.messages = [held for held in self.messages if held not in self._held_by(newest)]

    def hide(self, newest: int, seconds: float) -> None:
        set_visible_at(self.connection, self.receipts[-newest:], self.now + seconds)
        for held in self._held_by(newest):
            held.visible_at = self.now + seconds

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def check_counts(self) -> None:
        counted = stats(self.connection, self.now)
        in_flight = sum(held.visible_at > self.now for held in self.messages)
        assert (counted.waiting, counted.in_flight) == (len(self.messages) - in_flight, in_flight)
        assert counted.dead == len(self.dead)

    def _of(self, group: str) -> list[Held]:
        return [held for held in self.messages if held.group == group]

    def _held_by(self, newest: int) -> list[Held]:
        return [held for held in self.messages if held.receipt in self.receipts[-newest:]]

    def _bury(self, open_groups: list[str]) -> None:
        """Follow the store in which groups it looked at; what it buried must have been exhausted and deliverable."""
        dead = {letter.message_id for letter in dead_letters(self.connection, 0, 1000)}
        buried = [held for held in self.messages if held.message_id in dead]
        assert all(h.receive_count == RECEIVE_COUNT_MAX and h.group in open_groups for h in buried)
        assert dead == self.dead | {held.message_id for held in buried}
        self.dead = dead
        self.messages = [held for held in self.messages if held not in buried]


Step = Callable[[Compared], None]

steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(
        lambda group, number: lambda c: c.send(group, f"d{number}"),
        st.sampled_from(GROUPS),
        st.integers(0, 99),
    ),
    st.builds(
        lambda most, groups: lambda c: c.receive(most, groups),
        st.integers(1, 5),
        st.lists(st.sampled_from(GROUPS), max_size=1),
    ),
    st.builds(lambda newest: lambda c: c.ack(newest), st.integers(1, 5)),
    st.builds(
        lambda newest, seconds: lambda c: c.hide(newest, seconds),
        st.integers(1, 5),
        st.sampled_from([0, 5, 60]),
    ),
    st.builds(lambda seconds: lambda c: c.wait(seconds), st.sampled_from([1, 10, 40, DEDUPLICATION_SECONDS])),
)


@given(history=st.lists(steps, min_size=30, max_size=80))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_history_of_calls_gives_what_the_model_gives(history: list[Step], tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    path.unlink(missing_ok=True)
    with contextlib.closing(open_database(path)) as connection:
        connection.pragma("synchronous", "off")
        compared = Compared(connection)
        for step in history:
            step(compared)
            compared.check_counts()

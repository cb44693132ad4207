"""What holds for every connector, shown by one that says what the test tells it to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import pytest

from connectors.support import CONTEXT, Outbox, Runs, content_of
from memoree import limits
from memoree.connectors import Change, Gone, Item, Reached, Settle, Skipped, Unchanged
from memoree.connectors.state import State
from memoree.errors import Code, MemoreeError
from memoree.ingest.message import Ingest, IngestMessage, InlineContent
from memoree.ingest.publisher import Publisher, TooLargeToPublish
from memoree.queue import QueueError


@dataclass
class Scripted:
    says: Sequence[Change | Exception]
    locator: str = "test:here"
    kind: str = "scripted"
    remembered: list[int] = field(default_factory=list)
    """How many items the state knew after each change was taken."""

    async def changes(self, state: State) -> AsyncGenerator[Change, None]:
        for each in self.says:
            if isinstance(each, Exception):
                raise each
            yield each
            self.remembered.append(state.sent_count())


def item(external_id: str, revision: str = "1", **fields: object) -> Item:
    return Item(external_id, revision, "title", "text/plain", b"text", **fields)  # type: ignore[arg-type]


def test_the_source_is_made_known_before_anything_is_said_of_it(runs: Runs) -> None:
    _, outbox = runs.run(Scripted([item("a"), Reached("c-1")]))

    assert [message.type for message in outbox.messages] == ["register", "ingest", "checkpoint"]
    assert {(m.tenant, m.context, m.source.system, m.source.name) for m in outbox.messages} == {
        ("local", CONTEXT, "scripted", "docs")
    }
    assert (outbox.checkpoints[0].health, outbox.checkpoints[0].cursor) == ("healthy", "c-1")


def test_a_run_that_finds_nothing_new_says_nothing(runs: Runs) -> None:
    runs.run(Scripted([item("a")]))

    assert runs.run(Scripted([Unchanged("a", None), Gone("never sent", "gone")]))[1].messages == []


def test_a_position_is_told_once_also_when_nothing_of_interest_lies_before_it(runs: Runs) -> None:
    runs.run(Scripted([item("a"), Reached("c-1")]))

    told = [runs.run(Scripted([Reached("c-2")]))[1].messages for _ in range(2)]

    assert [[message.type for message in messages] for messages in told] == [["register", "checkpoint"], []]


def test_what_was_skipped_is_not_withdrawn_in_the_same_batch(runs: Runs) -> None:
    _, outbox = runs.run(Scripted([Item("a", "1", " ", "text/plain", b""), Gone("a", "gone"), item("b")]))

    assert (outbox.ids(), outbox.withdrawn) == (["b"], [])


def test_health_is_told_when_it_changes_and_not_again(runs: Runs) -> None:
    broken = MemoreeError(Code.CONFIG_ERROR, "out of reach")
    told = []
    for says in ([item("a")], [Skipped("b", "why")], [Skipped("b", "why")], [broken], [broken], [], []):
        outbox = Outbox()
        try:
            runs.run(Scripted(says), outbox)
        except MemoreeError as error:
            assert error is broken
        told.append([(checkpoint.health, checkpoint.message) for checkpoint in outbox.checkpoints])

    assert told == [
        [("healthy", None)],
        [("degraded", "1 not delivered, first b: why")],
        [],
        [("error", "out of reach")],
        [],
        [("healthy", None)],
        [],
    ]


def test_a_source_that_never_worked_is_not_made_known(runs: Runs) -> None:
    outbox = Outbox()
    with pytest.raises(MemoreeError):
        runs.run(Scripted([MemoreeError(Code.CONFIG_ERROR, "out of reach")]), outbox)

    assert outbox.messages == []


@pytest.mark.proves("fault-4")
def test_what_came_before_a_failure_is_delivered_and_the_run_still_fails(runs: Runs) -> None:
    outbox = Outbox()
    with pytest.raises(MemoreeError):
        runs.run(Scripted([item("a"), Reached("c-1"), item("b"), MemoreeError(Code.CONFIG_ERROR, "gone")]), outbox)

    assert outbox.ids() == ["a", "b"]
    assert runs.state(lambda state: (state.cursor, state.sent_count())) == ("c-1", 2)


@pytest.mark.proves("operations-56")
@pytest.mark.proves("fault-4")
def test_what_the_queue_did_not_take_is_not_remembered(runs: Runs) -> None:
    class Refusing(Outbox):
        async def publish(self, messages: object) -> None:
            raise QueueError("out of reach")

    with pytest.raises(QueueError):
        runs.run(Scripted([item("a"), Reached("c-1")]), Refusing())

    assert runs.state(lambda state: (state.cursor, state.sent_count())) == (None, 0)


def test_a_withdrawal_is_told_of_what_was_delivered_in_the_same_batch(runs: Runs) -> None:
    _, outbox = runs.run(Scripted([item("a"), Gone("a", "gone"), item("a", "2"), Gone("a", "gone again")]))

    assert [message.type for message in outbox.messages[1:-1]] == ["ingest", "withdraw", "ingest", "withdraw"]
    assert runs.state(lambda state: state.sent_count()) == 0


def test_batches_are_bounded_in_items_and_in_bytes(runs: Runs) -> None:
    large = Item("large", "1", "title", "text/plain", b"x" * limits.CONNECTOR_BATCH_BYTES_MAX)
    many = [item(str(number)) for number in range(limits.CONNECTOR_BATCH_ITEMS_MAX + 1)]

    class Uploading(Outbox):
        async def content(self, tenant: str, data: bytes) -> InlineContent:
            return InlineContent.of(data[:10])

    outbox = Uploading()
    runs.run(Scripted([item("a"), large, *many]), outbox)

    assert outbox.batches == 4  # two with the large one, a full one, the last one, and the checkpoint


def test_settling_hands_over_and_remembers_at_once(runs: Runs) -> None:
    connector = Scripted([item("a"), Settle(), item("b")])
    runs.run(connector)

    assert connector.remembered == [0, 1, 1]


@pytest.mark.parametrize(
    ("spoiled", "reason"),
    [
        (item("a", provenance={"much": "x" * limits.METADATA_BYTES_MAX}), "provenance"),
        (Item("a", "1", " ", "text/plain", b""), "title"),
        (Item("a", "1", "title", "text/plain", b"x" * (limits.INGEST_INLINE_BYTES_MAX + 1)), "bytes"),
    ],
    ids=["provenance", "title", "content"],
)
def test_an_item_that_no_message_can_carry_is_told_and_the_others_go_on(runs: Runs, spoiled: Item, reason: str) -> None:
    from memoree.connectors.outlets import NoUploads
    from memoree.queue.sqlite import SqliteQueue

    class Unaided(Outbox):
        async def content(self, tenant: str, data: bytes) -> InlineContent:
            publisher = Publisher(SqliteQueue(runs.state_path.with_name("queue")), NoUploads())
            content = await publisher.content(tenant, data)
            assert isinstance(content, InlineContent)
            return content

    summary, outbox = runs.run(Scripted([spoiled, item("b")]), Unaided())

    assert outbox.ids() == ["b"]
    assert content_of(outbox.one("b")) == b"text"
    assert summary.skipped[0].where == "a"
    assert reason in summary.skipped[0].reason
    assert runs.state(lambda state: state.sent("a")) is None


@pytest.mark.proves("operations-56")
def test_an_item_that_is_too_large_as_it_is_written_is_told_and_the_others_are_queued(runs: Runs) -> None:
    """Content, provenance and names have bounds of their own, and together they may have more than a message."""
    from memoree.connectors.outlets import NoUploads
    from memoree.queue.sqlite import SqliteQueue

    class Unaided(Outbox):
        async def publish(self, messages: Sequence[IngestMessage]) -> None:
            queue = SqliteQueue(runs.state_path.with_name("queue"))
            refused: list[IngestMessage] = []
            try:
                await Publisher(queue, NoUploads()).publish(messages)
            except TooLargeToPublish as error:
                refused = [message for message, _ in error.reasons]
                raise
            finally:
                await queue.close()
                self.messages += [message for message in messages if message not in refused]

    name = '"' * limits.EXTERNAL_ID_BYTES_MAX
    much = {"much": "x" * (limits.METADATA_BYTES_MAX - 100)}
    swollen = Item(name, "2", "title", "text/plain", b"\xff" * limits.INGEST_INLINE_BYTES_MAX, much)
    says = [item(name), swollen, Gone(name, "gone"), item("b"), Gone("c", "never sent"), Reached("c-1")]
    runs.run(Scripted([item("d")]), Unaided())

    summary, outbox = runs.run(Scripted(says), Unaided())

    assert [(m.external_id, m.external_revision) for m in outbox.delivered] == [(name, "1"), ("b", "1")]
    assert outbox.withdrawn == [name]
    assert [skipped.where for skipped in summary.skipped] == [name]
    assert runs.state(lambda state: (state.cursor, state.sent_count())) == ("c-1", 2)


@pytest.mark.proves("operations-56")
def test_what_no_queue_took_is_not_withdrawn(runs: Runs) -> None:
    class Refusing(Outbox):
        async def publish(self, messages: Sequence[IngestMessage]) -> None:
            await super().publish(messages)
            if refused := [(message, "too large") for message in messages if isinstance(message, Ingest)]:
                raise TooLargeToPublish(refused)

    summary, outbox = runs.run(Scripted([item("a"), Gone("a", "gone")]), Refusing())

    assert (outbox.withdrawn, summary.skipped_count, summary.delivered) == ([], 1, 0)


def test_another_place_under_the_same_source_is_refused_and_a_move_is_not(runs: Runs) -> None:
    runs.run(Scripted([item("a")]))

    with pytest.raises(MemoreeError, match="--locator test:here"):
        runs.run(Scripted([Gone("a", "gone")], locator="test:there"))

    runs.locator = "test:here"
    assert runs.run(Scripted([item("a", "2")], locator="test:there"))[1].registered[0].locator == "test:here"

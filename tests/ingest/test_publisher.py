"""The connectors' side: everything arrives, in order where it matters, and not faster than it is worked off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.ids import UploadId, new_upload_id
from memoree.ingest import publisher
from memoree.ingest.message import Ingest, IngestMessage, InlineContent, UploadReference, from_body, group_of
from memoree.ingest.publisher import Publisher, TooLargeToPublish, waves
from memoree.queue import MESSAGE_BYTES_MAX, MessageTooLarge, OutgoingMessage, QueueError, QueueStats
from memoree.queue.sqs_text import wire_bytes

from .conftest import checkpoint, item, register, withdraw


@dataclass
class FullQueue:
    """A queue that is as deep, and fails as often, as a test wants; which a real one is only after minutes."""

    depth: int = 0
    failures: list[set[int]] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    dedup_ids: set[str] = field(default_factory=set)
    looks: int = 0

    async def send_batch(self, messages: Sequence[OutgoingMessage]) -> list[str | QueueError]:
        failing = self.failures.pop(0) if self.failures else set()
        outcomes: list[str | QueueError] = []
        for number, message in enumerate(messages):
            if number in failing:
                outcomes.append(QueueError("no answer"))
            else:
                self.sent.append(message.body)
                outcomes.append("id")
            self.dedup_ids.add(message.dedup_id)
        return outcomes

    async def waiting_in(self, group: str, *, most: int) -> int | None:
        return None

    async def stats(self) -> QueueStats:
        self.looks += 1
        return QueueStats(waiting=self.depth, in_flight=0, dead=0, oldest_age_seconds=None)


class Shelf:
    def __init__(self) -> None:
        self.uploads: list[bytes] = []

    async def send(self, tenant: str, data: bytes) -> UploadId:
        self.uploads.append(data)
        return new_upload_id(0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(publisher, "RETRY_SECONDS_MIN", 0.001)


def opened(queue: FullQueue, shelf: Shelf | None = None, **options: Any) -> Publisher:
    return Publisher(queue, shelf or Shelf(), **options)  # type: ignore[arg-type]  # as much of a queue as is used


@pytest.mark.fault_class(1)
@pytest.mark.proves("fault-1", "operations-53")
def test_failed_messages_are_sent_again_until_all_are_queued() -> None:
    queue = FullQueue(failures=[{0, 2}, {1}])
    messages = [item(f"page-{number}") for number in range(4)]
    asyncio.run(opened(queue).publish(messages))
    assert sorted(message.external_id for message in read(queue)) == [f"page-{n}" for n in range(4)]
    assert len(queue.dedup_ids) == 4, "a message that was queued although it failed must not be there twice"


@pytest.mark.fault_class(1)
@pytest.mark.proves("fault-1", "operations-48")
def test_a_failure_never_lets_a_message_overtake_what_it_must_follow() -> None:
    queue = FullQueue(failures=[{0}, set(), {0}])
    messages: list[IngestMessage] = [item(), withdraw(), checkpoint("c"), item("page-2")]
    asyncio.run(opened(queue).publish(messages))
    assert [from_body(body) for body in queue.sent] == messages


def test_a_queue_that_does_not_answer_is_told_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "SEND_SECONDS_MAX", 0.02)
    queue = FullQueue(failures=[{0}] * 1000)
    with pytest.raises(QueueError):
        asyncio.run(opened(queue).publish([item()]))


@pytest.mark.fault_class(1)
@pytest.mark.proves("fault-1", "operations-53")
def test_a_full_queue_is_waited_for() -> None:
    async def scenario() -> None:
        queue = FullQueue(depth=limits.INGEST_QUEUE_DEPTH_MAX)
        publishing = asyncio.create_task(opened(queue).publish([item()]))
        async with asyncio.timeout(10):
            while queue.looks < 3 and not publishing.done():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.001)
        assert not publishing.done() and queue.sent == []
        queue.depth = 0
        await publishing
        assert len(queue.sent) == 1

    asyncio.run(scenario())


@pytest.mark.proves("operations-53")
def test_a_deep_queue_is_told_once_and_slows_publishing_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    queue = FullQueue(depth=limits.INGEST_QUEUE_LAG_WARN)
    told: list[QueueStats] = []
    publishing = opened(queue, on_lag=told.append)
    asyncio.run(publishing.publish([item()]))
    assert (publishing.queue_lag_warn, told, pauses) == (False, [], [0.0])
    queue.depth = limits.INGEST_QUEUE_DEPTH_MAX - 1
    publishing._looked_at = None
    asyncio.run(publishing.publish([item(), item()]))
    assert publishing.queue_lag_warn and len(told) == 1
    assert all(pause > publisher.PAUSE_SECONDS_MAX * 0.9 for pause in pauses[1:])


def test_large_content_goes_before_its_message() -> None:
    shelf = Shelf()
    publishing = opened(FullQueue(), shelf)
    small, large = b"x" * limits.INGEST_INLINE_BYTES_MAX, b"x" * (limits.INGEST_INLINE_BYTES_MAX + 1)
    assert isinstance(asyncio.run(publishing.content("local", small)), InlineContent)
    assert isinstance(asyncio.run(publishing.content("local", large)), UploadReference)
    assert shelf.uploads == [large]
    with pytest.raises(MemoreeError, match="the limit is"):
        asyncio.run(publishing.content("local", b"x" * (limits.ARTIFACT_BYTES_MAX + 1)))


ESCAPED = {
    "by JSON": b"\x01" * limits.INGEST_INLINE_BYTES_MAX,  # six characters each
    "by SQS": "\uffff".encode() + b"%" * (limits.INGEST_INLINE_BYTES_MAX - 3),  # five characters each
}
GROWING_PROVENANCE = {"line": "\uffff" + "%" * 20_000}


@pytest.mark.proves("operations-53")
@pytest.mark.parametrize("content", ESCAPED.values(), ids=ESCAPED)
def test_content_that_grows_on_its_way_goes_in_a_form_that_does_not(content: bytes) -> None:
    queue, shelf = FullQueue(), Shelf()
    asyncio.run(opened(queue, shelf).publish([item(content=content)]))
    [message] = read(queue)
    assert isinstance(message.content, InlineContent) and message.content.decoded() == content
    assert shelf.uploads == []
    assert wire_bytes(queue.sent[0]) <= limits.INGEST_MESSAGE_BYTES_MAX


@pytest.mark.parametrize("content", ESCAPED.values(), ids=ESCAPED)
def test_content_beside_which_nothing_else_fits_goes_ahead(content: bytes) -> None:
    queue, shelf = FullQueue(), Shelf()
    message = item(content=content, provenance=GROWING_PROVENANCE)
    asyncio.run(opened(queue, shelf).publish([message]))
    [sent] = read(queue)
    assert isinstance(sent.content, UploadReference)
    assert shelf.uploads == [content]
    assert wire_bytes(queue.sent[0]) < MESSAGE_BYTES_MAX


@pytest.mark.proves("operations-53")
def test_what_fits_in_no_form_is_told_and_everything_else_is_published() -> None:
    class NoShelf(Shelf):
        async def send(self, tenant: str, data: bytes) -> UploadId:
            raise MemoreeError(Code.CONTENT_TOO_LARGE, "nowhere to go")

    queue = FullQueue()
    content = ESCAPED["by JSON"]
    first, large, last = item("a"), item("large", content, provenance=GROWING_PROVENANCE), checkpoint("c")
    hopeless = item("hopeless", provenance={"line": "\uffff" + "%" * 60_000})
    with pytest.raises(TooLargeToPublish, match="'large' was not published: as a message it has") as told:
        asyncio.run(opened(queue, NoShelf()).publish([first, large, hopeless, last]))
    assert [message for message, _ in told.value.reasons] == [large, hopeless]
    assert [from_body(body) for body in queue.sent] == [first, last]


def test_what_the_queue_itself_finds_too_large_is_told_like_that() -> None:
    class Narrow(FullQueue):
        async def send_batch(self, messages: Sequence[OutgoingMessage]) -> list[str | QueueError]:
            outcomes = await super().send_batch(messages)
            large = [len(message.body) > 1024 for message in messages]
            return [MessageTooLarge("1 KiB at most") if each else o for each, o in zip(large, outcomes, strict=True)]

    queue = Narrow(failures=[{0}])
    messages = [item("a"), item("b", b"x" * 2000), item("c")]
    with pytest.raises(TooLargeToPublish) as told:
        asyncio.run(opened(queue).publish(messages))
    assert told.value.reasons == [(messages[1], "1 KiB at most")]
    assert {message.external_id for message in read(queue)} >= {"a", "c"}


@pytest.mark.proves("operations-48")
def test_a_wave_holds_only_messages_that_commute() -> None:
    a, b, c = item("a"), item("b"), checkpoint("c")
    other = register(source=a.source.model_copy(update={"name": "other"}))
    assert list(waves([a, b, withdraw("a")])) == [[a, b], [withdraw("a")]]
    assert list(waves([a, c, b])) == [[a], [c], [b]]
    assert list(waves([a, other, b])) == [[a, other, b]]
    assert group_of(a) != group_of(other)
    many = [item(f"{number}") for number in range(2 * limits.INGEST_PUBLISHED_AT_ONCE_MAX + 1)]
    assert [len(wave) for wave in waves(many)] == [limits.INGEST_PUBLISHED_AT_ONCE_MAX] * 2 + [1]


def read(queue: FullQueue) -> list[Ingest]:
    messages: list[IngestMessage] = [from_body(body) for body in queue.sent]
    return [message for message in messages if isinstance(message, Ingest)]

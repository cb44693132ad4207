"""The command queue on Amazon SQS FIFO, or an emulator that speaks its protocol.

What SQS does otherwise than the SQLite queue: it knows whole seconds only (rounded up here), delivers at most ten
messages of a group at a time, cannot skip groups, and tells no age.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError

from memoree.queue import MESSAGE_BYTES_MAX, Message, MessageTooLarge, OutgoingMessage, QueueError, QueueStats
from memoree.queue.checks import body_bytes, check_outgoing, check_size
from memoree.queue.sqs_text import ESCAPED_ATTRIBUTE, ESCAPED_ATTRIBUTE_BYTES, escaped, unescaped

if TYPE_CHECKING:
    from types_aiobotocore_sqs import SQSClient
    from types_aiobotocore_sqs.type_defs import BatchResultErrorEntryTypeDef, MessageTypeDef

BATCH_ENTRIES_MAX = 10
BATCH_BYTES_MAX = MESSAGE_BYTES_MAX
"""Servers take 256 KiB or 1 MiB per batch, depending on their age."""

LONG_POLL_SECONDS_MAX = 20
SHORT_POLL_SECONDS = 0.2
"""Between the polls for the part of a wait that is no whole second."""

WAIT_OVERRUN_SECONDS_MAX = 0.1
"""How much longer than asked a wait may be, so that it is one long poll and not many short ones."""

VISIBILITY_SECONDS_MAX = 43_200
EXCLUDED_HOLD_SECONDS_MAX = 0.3
CONNECT_TIMEOUT_SECONDS = 3
READ_TIMEOUT_SECONDS = LONG_POLL_SECONDS_MAX + 10
ATTEMPTS_MAX = 3
RELEASE_SECONDS_MAX = 5.0
CONNECTIONS_MAX = 64

STALE_RECEIPT_CODES = frozenset({"ReceiptHandleIsInvalid", "InvalidReceiptHandle", "MessageNotInflight"})

BatchRequest = Callable[..., Coroutine[Any, Any, Any]]
Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsEndpoint:
    """Where and as whom to reach SQS. What is `None` comes from the environment, as in every AWS program."""

    region: str
    endpoint_url: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    async def connect(self, stack: AsyncExitStack) -> SQSClient:
        """A client that lives as long as `stack`. It may retry everything: sends carry a deduplication id, receives
        an attempt id, and the rest is idempotent."""
        client: SQSClient = await stack.enter_async_context(
            get_session().create_client(
                "sqs",
                region_name=self.region,
                endpoint_url=self.endpoint_url,
                aws_access_key_id=self.access_key_id,
                aws_secret_access_key=self.secret_access_key,
                aws_session_token=self.session_token,
                config=AioConfig(
                    connect_timeout=CONNECT_TIMEOUT_SECONDS,
                    read_timeout=READ_TIMEOUT_SECONDS,
                    retries={"mode": "standard", "total_max_attempts": ATTEMPTS_MAX},
                    max_pool_connections=CONNECTIONS_MAX,
                ),
            )
        )
        return client


class SqsQueue:
    """`CommandQueue` over the FIFO queue `url`; `dead_letter_url` only serves `stats`. Belongs to one event loop.

    SQS gives no more than ten messages of a group before these are acknowledged, whatever `max_messages` says. Once
    its visibility timeout has passed a receipt is stale there, even when nobody else got the message.
    """

    def __init__(self, url: str, dead_letter_url: str | None = None, *, endpoint: SqsEndpoint) -> None:
        self._url = url
        self._dead_letter_url = dead_letter_url
        self._endpoint = endpoint
        self._stack = AsyncExitStack()
        self._connecting = asyncio.Lock()
        self._client: SQSClient | None = None
        self._closed = False
        self._releases: set[asyncio.Task[None]] = set()

    async def send(self, message: OutgoingMessage) -> str:
        entry = _entry(message)
        client = await self._connected()
        answer = await _calling("send", client.send_message(QueueUrl=self._url, **entry))
        return answer["MessageId"]

    async def send_batch(self, messages: Sequence[OutgoingMessage]) -> Sequence[str | QueueError]:
        """A failed message does not keep the later ones from being sent."""
        outcomes: dict[int, str | QueueError] = {}
        entries: list[tuple[int, Mapping[str, Any]]] = []
        for index, message in enumerate(messages):
            try:
                entries.append((index, _entry(message)))
            except QueueError as error:
                outcomes[index] = error
        for chunk in _send_chunks(entries):
            outcomes |= await self._send_chunk(chunk)
        return [outcomes[index] for index in range(len(messages))]

    async def receive(
        self,
        *,
        max_messages: int,
        wait_seconds: float,
        visibility_seconds: float,
        except_groups: Collection[str] = (),
    ) -> list[Message]:
        """Returns at once with what is waiting, asking again while answers are full.

        Messages of excepted groups are held for up to 0.3 s, then given back: that counts as a delivery of theirs.
        """
        assert max_messages >= 1, max_messages
        deadline = time.monotonic() + wait_seconds
        held: list[Message] = []
        try:
            while True:
                await self._receive_into(held, max_messages, _poll_seconds(deadline), visibility_seconds)
                excluded = [message for message in held if message.group in except_groups]
                wanted = [message for message in held if message.group not in except_groups]
                if excluded:
                    if not wanted:
                        await asyncio.sleep(min(_excluded_hold_seconds(), _left(deadline)))
                    self._release(excluded)
                    held = wanted
                if wanted or time.monotonic() >= deadline:
                    return wanted
                if not excluded and _poll_seconds(deadline) == 0:
                    await asyncio.sleep(min(SHORT_POLL_SECONDS, _left(deadline)))
        except BaseException:
            self._release(held)
            raise

    async def ack(self, messages: Sequence[Message]) -> None:
        client = await self._connected()
        await self._change_all("acknowledge", client.delete_message_batch, messages, {})

    async def set_visibility(self, messages: Sequence[Message], seconds: float) -> None:
        client = await self._connected()
        timeout = {"VisibilityTimeout": _whole_seconds(seconds)}
        await self._change_all("set the visibility of", client.change_message_visibility_batch, messages, timeout)

    async def stats(self) -> QueueStats:
        """Approximate, as SQS counts."""
        here = await self._counts(self._url)
        dead = await self._counts(self._dead_letter_url) if self._dead_letter_url else {}
        return QueueStats(
            waiting=here["ApproximateNumberOfMessages"] + here["ApproximateNumberOfMessagesDelayed"],
            in_flight=here["ApproximateNumberOfMessagesNotVisible"],
            dead=sum(dead.values()),
            oldest_age_seconds=None,
        )

    async def waiting_in(self, group: str, *, most: int) -> int | None:
        """SQS counts over all groups only, and a tenant is told nothing of others."""
        return None

    async def scrub(self) -> None:
        return None

    async def close(self) -> None:
        if self._releases:
            await asyncio.wait(self._releases, timeout=RELEASE_SECONDS_MAX)
        async with self._connecting:
            self._closed = True
            self._client = None
            await self._stack.aclose()

    async def _connected(self) -> SQSClient:
        async with self._connecting:
            if self._closed:
                raise QueueError("the queue is closed")
            if self._client is None:
                self._client = await _calling("connect", self._endpoint.connect(self._stack))
            return self._client

    async def _change_all(
        self, what: str, request: BatchRequest, messages: Sequence[Message], fields: Mapping[str, int]
    ) -> None:
        """One batch request per ten deliveries, at once. Raises the first failure after all had their effect."""
        changes = [self._change(what, request, chunk, fields) for chunk in _chunks(messages, BATCH_ENTRIES_MAX)]
        for outcome in await asyncio.gather(*changes, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _change(
        self, what: str, request: BatchRequest, messages: Sequence[Message], fields: Mapping[str, int]
    ) -> None:
        entries = [
            {"Id": str(index), "ReceiptHandle": message.receipt, **fields} for index, message in enumerate(messages)
        ]
        answer = await _calling(what, request(QueueUrl=self._url, Entries=entries))
        _check_failures(what, answer.get("Failed", ()))

    async def _send_chunk(self, chunk: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[int, str | QueueError]:
        entries = [{"Id": str(index), **entry} for index, entry in chunk]
        outcomes: dict[int, str | QueueError] = {
            index: QueueError("SQS did not say what became of the message") for index, _ in chunk
        }
        try:
            client = await self._connected()
            answer = await _calling(
                "send",
                client.send_message_batch(QueueUrl=self._url, Entries=entries),  # type: ignore[arg-type]
            )
        except QueueError as error:
            return dict.fromkeys(outcomes, error)
        for sent in answer.get("Successful", ()):
            outcomes[int(sent["Id"])] = sent["MessageId"]
        for failed in answer.get("Failed", ()):
            outcomes[int(failed["Id"])] = _entry_error("send", failed)
        return outcomes

    async def _receive_into(
        self, held: list[Message], max_messages: int, wait_seconds: int, visibility_seconds: float
    ) -> None:
        """Add what is waiting to `held`: poll long for the first messages, then ask again while answers are full."""
        while len(held) < max_messages:
            asked = min(BATCH_ENTRIES_MAX, max_messages - len(held))
            try:
                received = await self._receive_once(asked, wait_seconds, visibility_seconds)
            except QueueError:
                if held:  # delivered already: the caller must have them, and meets the error at the next call
                    return
                raise
            held += received
            if len(received) < asked:
                return
            wait_seconds = 0

    async def _receive_once(self, max_messages: int, wait_seconds: int, visibility_seconds: float) -> list[Message]:
        client = await self._connected()
        answer = await _calling(
            "receive",
            client.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=max_messages,
                WaitTimeSeconds=wait_seconds,
                VisibilityTimeout=_whole_seconds(visibility_seconds),
                MessageSystemAttributeNames=["MessageGroupId", "ApproximateReceiveCount", "SentTimestamp"],
                MessageAttributeNames=[ESCAPED_ATTRIBUTE],
                ReceiveRequestAttemptId=uuid.uuid4().hex,
            ),
        )
        return [delivered(raw) for raw in answer.get("Messages", ())]

    def _release(self, messages: Sequence[Message]) -> None:
        """Give messages back without waiting for it, so that a cancelled receive can too. Should it fail, their
        visibility timeout gives them back."""
        if messages:
            release = asyncio.create_task(self.set_visibility(messages, 0))
            self._releases.add(release)
            release.add_done_callback(self._released)

    def _released(self, release: asyncio.Task[None]) -> None:
        self._releases.discard(release)
        if not release.cancelled():
            release.exception()  # seen: nobody awaits it

    async def _counts(self, url: str) -> dict[str, int]:
        client = await self._connected()
        answer = await _calling(
            "read the attributes",
            client.get_queue_attributes(
                QueueUrl=url,
                AttributeNames=[
                    "ApproximateNumberOfMessages",
                    "ApproximateNumberOfMessagesNotVisible",
                    "ApproximateNumberOfMessagesDelayed",
                ],
            ),
        )
        return {str(name): int(count) for name, count in answer["Attributes"].items()}


async def _calling(what: str, call: Coroutine[Any, Any, Result]) -> Result:
    try:
        return await call
    except (BotoCoreError, ClientError) as error:
        raise QueueError(f"SQS failed to {what}: {error}") from error


def _entry(message: OutgoingMessage) -> Mapping[str, Any]:
    """The fields that SendMessage and an entry of SendMessageBatch share. Raises as `check_outgoing`."""
    check_outgoing(message)
    fields = {
        "MessageBody": message.body,
        "MessageGroupId": message.group,
        "MessageDeduplicationId": message.dedup_id,
    }
    if (text := escaped(message.body)) is None:
        return fields
    check_size(body_bytes(text) + ESCAPED_ATTRIBUTE_BYTES)
    attributes = {ESCAPED_ATTRIBUTE: {"DataType": "String", "StringValue": "1"}}
    return {**fields, "MessageBody": text, "MessageAttributes": attributes}


def delivered(raw: MessageTypeDef) -> Message:
    """A delivery as `ReceiveMessage` answers it."""
    body = raw["Body"]
    if ESCAPED_ATTRIBUTE in raw.get("MessageAttributes", {}):
        body = unescaped(body)
    attributes = raw["Attributes"]
    return Message(
        message_id=raw["MessageId"],
        body=body,
        group=attributes["MessageGroupId"],
        receipt=raw["ReceiptHandle"],
        receive_count=int(attributes["ApproximateReceiveCount"]),
        sent_at=int(attributes["SentTimestamp"]) / 1000,
    )


def _check_failures(what: str, failures: Iterable[BatchResultErrorEntryTypeDef]) -> None:
    """Raises for what is not merely a stale receipt, once the rest of the batch has had its effect."""
    serious = [failed for failed in failures if not _is_stale(failed)]
    if serious:
        error = _entry_error(what, serious[0])
        raise QueueError(f"{error} ({len(serious)} messages of the batch)")


def _is_stale(failed: BatchResultErrorEntryTypeDef) -> bool:
    code = failed["Code"].rpartition(".")[2]
    return code in STALE_RECEIPT_CODES or (code == "InvalidParameterValue" and "expired" in failed.get("Message", ""))


def _entry_error(what: str, failed: BatchResultErrorEntryTypeDef) -> QueueError:
    message = failed.get("Message", "")
    kind = MessageTooLarge if "must be shorter" in message else QueueError
    return kind(f"SQS failed to {what}: {failed['Code']}: {message}")


def _send_chunks(
    entries: Iterable[tuple[int, Mapping[str, Any]]],
) -> Iterator[list[tuple[int, Mapping[str, Any]]]]:
    chunk: list[tuple[int, Mapping[str, Any]]] = []
    chunk_bytes = 0
    for index, entry in entries:
        size = body_bytes(entry["MessageBody"]) + (ESCAPED_ATTRIBUTE_BYTES if "MessageAttributes" in entry else 0)
        if chunk and (len(chunk) == BATCH_ENTRIES_MAX or chunk_bytes + size > BATCH_BYTES_MAX):
            yield chunk
            chunk, chunk_bytes = [], 0
        chunk.append((index, entry))
        chunk_bytes += size
    if chunk:
        yield chunk


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _poll_seconds(deadline: float) -> int:
    """The whole seconds left to wait, as far as one long poll goes."""
    return min(LONG_POLL_SECONDS_MAX, math.floor(_left(deadline) + WAIT_OVERRUN_SECONDS_MAX))


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _excluded_hold_seconds() -> float:
    return random.uniform(0, EXCLUDED_HOLD_SECONDS_MAX)  # noqa: S311  # spreads load, guards nothing


def _whole_seconds(seconds: float) -> int:
    return min(VISIBILITY_SECONDS_MAX, math.ceil(seconds))

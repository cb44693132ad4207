"""An S3 bucket as a source: one item per object below a prefix, its ETag the revision.

A scan lists everything. Events say only where to look: whatever an event tells, the object is looked at as it is now,
so that events may come late, twice and in any order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore.exceptions import BotoCoreError, ClientError

from memoree import limits
from memoree.clock import Clock, utc_now
from memoree.connectors import Change, Gone, Item, Settle, Skipped, Unchanged
from memoree.connectors.media_types import media_type_of, title_of
from memoree.connectors.names import TWIN_REASON, Wanted, external_id_of, fault_of, name_of
from memoree.connectors.s3_events import Event, events_of
from memoree.connectors.state import State
from memoree.errors import Code, MemoreeError

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client
    from types_aiobotocore_s3.type_defs import ObjectTypeDef
    from types_aiobotocore_sqs import SQSClient
    from types_aiobotocore_sqs.type_defs import MessageTypeDef

SCAN_EVERY = timedelta(hours=6)
"""Where events are followed."""
TIMEOUT_SECONDS = 30
ATTEMPTS_MAX = 5
READ_TRIES_MAX = 3
FETCHES_AT_ONCE = 8
MESSAGES_MAX = 10
EVENT_VISIBILITY_SECONDS = 300
"""For looking at ten objects and queueing them; then the events are told again."""
_SCANNED_AT = "scanned_at"
_GONE_CODE = "NoSuchKey"
"""Not what HEAD says, which is the same for a missing bucket: from that nothing follows for its objects."""
_CHANGED_CODES = frozenset({"412", "PreconditionFailed"})
_REFUSED_STATUSES = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.METHOD_NOT_ALLOWED})
"""Of one object, where the bucket can be listed: archived, encrypted with a key that is not ours, or not allowed."""
_NO_ANSWER = (BotoCoreError, ClientError, aiohttp.ClientError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Access:
    """Where the bucket is and as whom. Whatever is absent comes from the environment, as in every AWS program;
    `profile` names one of the shared configuration."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    async def client(self, stack: AsyncExitStack, service: str, endpoint_url: str | None) -> Any:
        config = AioConfig(
            connect_timeout=TIMEOUT_SECONDS,
            read_timeout=TIMEOUT_SECONDS,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS_MAX},
            s3={"addressing_style": "path" if endpoint_url else "auto"},
        )
        arguments: dict[str, Any] = {
            "endpoint_url": endpoint_url,
            "region_name": self.region,
            "aws_access_key_id": self.access_key_id,
            "aws_secret_access_key": self.secret_access_key,
            "aws_session_token": self.session_token,
            "config": config,
        }
        client = _session(self.profile).create_client(service, **arguments)
        return await stack.enter_async_context(client)


@cache
def _session(profile: str | None) -> Any:
    """Shared by all looks of a process: reading the models of the services takes a tenth of a second."""
    return AioSession(profile=profile)


@dataclass(frozen=True, slots=True)
class EventQueue:
    """The SQS queue that a bucket's notifications go to. `wait_seconds` is how long an empty queue is asked."""

    url: str
    endpoint_url: str | None = None
    wait_seconds: int = 0


@dataclass(frozen=True, slots=True)
class _Object:
    key: str
    external_id: str
    etag: str
    size: int


class _Vanished(Exception):
    """There is no such object any more."""


class _Refused(Exception):
    """The bucket does not give out the object, for a reason that is the message."""


class _Withheld(Skipped):
    """An object that was refused; the next look may get it."""


@dataclass(frozen=True, slots=True)
class S3Connector:
    """All objects below `prefix` whose names, counted from there, are `wanted`. With `scan` they are listed; then the
    `events` that wait are followed. A scan that finds none although some were sent is refused, unless `allow_empty`."""

    bucket: str
    prefix: str
    access: S3Access
    wanted: Wanted = field(default_factory=Wanted)
    bytes_max: int = limits.CONNECTOR_ITEM_BYTES_MAX
    allow_empty: bool = False
    scan: bool = True
    events: EventQueue | None = None
    clock: Clock = utc_now
    kind: str = "s3"

    @property
    def locator(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    async def changes(self, state: State) -> AsyncGenerator[Change, None]:
        """Raises `CONFIG_ERROR` for a bucket or queue that cannot be read."""
        async with AsyncExitStack() as stack:
            with _told(f"s3://{self.bucket}"):
                client = await self.access.client(stack, "s3", self.access.endpoint_url)
            if self.scan and self._is_scan_due(state):
                async for change in self._scan(client, state):
                    yield change
                yield Settle()
                state.remember(_SCANNED_AT, self.clock().isoformat())
            if self.events is not None:
                with _told(self.events.url):
                    queue = await self.access.client(stack, "sqs", self.events.endpoint_url)
                async for change in self._follow(client, queue, self.events, state):
                    yield change

    def _is_scan_due(self, state: State) -> bool:
        """Always, unless events tell what changes; then now and then, in case that somebody has turned them off."""
        scanned_at = state.recall(_SCANNED_AT)
        if self.events is None or scanned_at is None or state.sent_count() == 0:
            return True
        return self.clock() - datetime.fromisoformat(scanned_at) >= SCAN_EVERY

    # --- everything ---------------------------------------------------------------------------------------------

    async def _scan(self, client: S3Client, state: State) -> AsyncIterator[Change]:
        state.begin_scan()
        async for page in self._pages(client):
            changed: list[_Object] = []
            for found in page:
                judged = self._judged(found, state)
                if judged is None:
                    changed.append(found)
                else:
                    yield judged
            for start in range(0, len(changed), FETCHES_AT_ONCE):
                for change in await self._fetched(client, changed[start : start + FETCHES_AT_ONCE], state):
                    yield change
        if (lost := state.saw_nothing_of()) and not self.allow_empty:
            raise MemoreeError(
                Code.CONFIG_ERROR,
                f"{self.locator} holds none of the {lost} objects that were sent before. If they are "
                "really gone, say --allow-empty to withdraw them",
            )
        for external_id in state.unseen():
            yield Gone(external_id, reason="the object was deleted, or is excluded")

    async def _pages(self, client: S3Client) -> AsyncIterator[list[_Object]]:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
        with _told(self.locator):
            async for page in pages:
                objects = [self._object(entry) for entry in page.get("Contents", []) if not entry["Key"].endswith("/")]
                yield [found for found in objects if found.external_id in self.wanted]

    def _object(self, entry: ObjectTypeDef) -> _Object:
        return _Object(entry["Key"], self._id_of(entry["Key"]), entry["ETag"], entry["Size"])

    def _id_of(self, key: str) -> str:
        return external_id_of(key.removeprefix(self.prefix))

    def _judged(self, found: _Object, state: State) -> Unchanged | Skipped | None:
        """What a listing tells of an object, `None` when it has to be fetched."""
        if (fault := fault_of(found.external_id)) is not None:
            return Skipped(found.external_id[: limits.TITLE_BYTES_MAX], fault)
        if not state.see(found.external_id):
            return Skipped(found.external_id, TWIN_REASON)
        sent = state.sent(found.external_id)
        if sent is not None and sent.external_revision == _revision(found.etag):
            return Unchanged(found.external_id, found.key)
        return None

    # --- events -------------------------------------------------------------------------------------------------

    async def _follow(
        self, client: S3Client, queue: SQSClient, events: EventQueue, state: State
    ) -> AsyncIterator[Change]:
        """Until the queue is empty. Messages leave it once what they led to is queued and remembered; those about an
        object that was refused return."""
        while messages := await _received(queue, events):
            understood: list[tuple[MessageTypeDef, set[str]]] = []
            for message in messages:
                try:
                    understood.append((message, self._keys(events_of(message["Body"]))))
                except ValueError as error:
                    yield Skipped(f"message {message['MessageId']} of {events.url}", f"{error}; it stays on the queue")
            changes = await self._looked_at(client, sorted(set().union(*(keys for _, keys in understood))), state)
            for change in changes:
                yield change
            yield Settle()
            withheld = {change.where for change in changes if isinstance(change, _Withheld)}
            told = [message for message, keys in understood if withheld.isdisjoint(map(self._id_of, keys))]
            await _remove(queue, events, told)

    def _keys(self, events: Iterable[Event]) -> set[str]:
        return {
            event.key
            for event in events
            if event.bucket == self.bucket
            and event.key.startswith(self.prefix)
            and not event.key.endswith("/")
            and self._id_of(event.key) in self.wanted
        }

    async def _looked_at(self, client: S3Client, keys: Sequence[str], state: State) -> list[Change]:
        found: list[_Object] = []
        vanished: list[str] = []
        for key in keys:
            try:
                found.append(await self._listed(client, key))
            except _Vanished:
                vanished.append(key)
        present = {each.external_id for each in found}
        changes: list[Change] = [self._vanished(key, state) for key in vanished if self._id_of(key) not in present]
        state.begin_scan()
        wanted: list[_Object] = []
        for each in found:
            change = await self._twin(client, each, state) or self._judged(each, state)
            if change is None:
                wanted.append(each)
            else:
                changes.append(change)
        return changes + await self._fetched(client, wanted, state)

    async def _twin(self, client: S3Client, found: _Object, state: State) -> Skipped | None:
        """What is to be said of an object when another spelling of its name comes before it, as in a listing."""
        sent = state.sent(found.external_id)
        if sent is None or sent.hint is None or sent.hint >= found.key:
            return None
        try:
            await self._listed(client, sent.hint)
        except _Vanished:
            return None
        return Skipped(found.external_id, TWIN_REASON)

    def _vanished(self, key: str, state: State) -> Gone | Unchanged:
        """What follows from an object that does not exist: nothing where another spelling was delivered."""
        external_id = self._id_of(key)
        sent = state.sent(external_id)
        if sent is not None and sent.hint not in (None, key):
            return Unchanged(external_id, sent.hint)
        return Gone(external_id, reason="the object was deleted")

    async def _listed(self, client: S3Client, key: str) -> _Object:
        """The object as it is now. Raises `_Vanished`."""
        with _told(f"s3://{self.bucket}/{key}"):
            answer = await client.list_objects_v2(Bucket=self.bucket, Prefix=key, MaxKeys=1)
        for entry in answer.get("Contents", []):
            if entry["Key"] == key:  # it comes before all that begin like it
                return self._object(entry)
        raise _Vanished

    # --- one object ---------------------------------------------------------------------------------------------

    async def _fetched(self, client: S3Client, objects: Sequence[_Object], state: State) -> list[Change]:
        return list(await asyncio.gather(*(self._change(client, found, state) for found in objects)))

    async def _change(self, client: S3Client, found: _Object, state: State) -> Change:
        try:
            for _ in range(READ_TRIES_MAX):
                if found.size > self.bytes_max:
                    return Skipped(found.external_id, f"it has more than {self.bytes_max} bytes")
                content = await self._content(client, found)
                if content is not None:
                    return self._item(found, content)
                found = await self._listed(client, found.key)
        except _Vanished:
            return self._vanished(found.key, state)
        except _Refused as error:
            return _Withheld(found.external_id, f"it cannot be read: {error}")
        return Skipped(found.external_id, "it changes faster than it can be read")

    async def _content(self, client: S3Client, found: _Object) -> bytes | None:
        """The bytes that the ETag stands for, `None` when it stands for others by now. Raises `_Refused`."""
        with _told(f"s3://{self.bucket}/{found.key}"):
            try:
                answer = await client.get_object(Bucket=self.bucket, Key=found.key, IfMatch=found.etag)
            except ClientError as error:
                if _code(error) in _CHANGED_CODES:
                    return None
                if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in _REFUSED_STATUSES:
                    raise _Refused(str(error)) from error
                raise
            async with answer["Body"] as stream:
                return await stream.read()

    def _item(self, found: _Object, content: bytes) -> Item:
        name = name_of(found.external_id)
        media_type = media_type_of(name, content)
        return Item(
            external_id=found.external_id,
            external_revision=_revision(found.etag),
            title=title_of(name, media_type, content),
            media_type=media_type,
            content=content,
            provenance={"connector": "s3", "bucket": self.bucket, "key": found.key, "etag": found.etag.strip('"')},
            hint=found.key,
        )


def _revision(etag: str) -> str:
    return f"etag:{etag.strip(chr(34))}"


async def _received(queue: SQSClient, events: EventQueue) -> list[MessageTypeDef]:
    with _told(events.url):
        answer = await queue.receive_message(
            QueueUrl=events.url,
            MaxNumberOfMessages=MESSAGES_MAX,
            WaitTimeSeconds=events.wait_seconds,
            VisibilityTimeout=EVENT_VISIBILITY_SECONDS,
        )
    return list(answer.get("Messages", ()))


async def _remove(queue: SQSClient, events: EventQueue, messages: Sequence[MessageTypeDef]) -> None:
    """One that could not be removed is told again, and finds nothing changed."""
    if messages:
        with _told(events.url):
            await queue.delete_message_batch(
                QueueUrl=events.url,
                Entries=[
                    {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                    for number, message in enumerate(messages)
                ],
            )


class _told:
    """Failures of the SDK as what they mean for a connector: `_Vanished`, or `CONFIG_ERROR` with the place."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ClientError) and _code(error) == _GONE_CODE:
            raise _Vanished from error
        if isinstance(error, _NO_ANSWER):
            raise MemoreeError(Code.CONFIG_ERROR, f"{self._where} cannot be read: {error}") from error


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))

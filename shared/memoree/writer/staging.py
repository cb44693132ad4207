"""From deliveries to commands: claim checks, blobs and texts, all before the transaction begins (design §5.2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import orjson
from blake3 import blake3

from memoree import limits
from memoree.command import ClaimCheck, Command, from_message, needs_bytes
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId
from memoree.objects import ObjectMissing, ObjectStore, PreconditionFailed
from memoree.objects.blobs import BlobStore
from memoree.operations.content import StagedContent
from memoree.queue import Message
from memoree.replication import layout

STAGING_CONCURRENCY = 16

TryKey = Callable[[str, AttemptId, int], str]
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

log = logging.getLogger(__name__)


class UnknownCommand(Exception):
    """The message was sent by a newer api than this writer; an older program must not judge it."""


@dataclass(slots=True)
class ProvedBlobs:
    """The blobs that were seen in the store before the transaction began."""

    present: set[bytes] = field(default_factory=set)

    def holds(self, digest: bytes) -> bool:
        return digest in self.present


@dataclass(frozen=True, slots=True)
class Staged:
    """Commands ready to be applied, and the blobs proved for them. `refusals` are attempts whose parked command is
    not there as it was parked. `parked` are keys to remove once acked."""

    commands: Sequence[Command]
    refusals: Sequence[tuple[AttemptId, MemoreeError]]
    blobs: ProvedBlobs
    parked: Sequence[str]


async def stage(store: ObjectStore, tenant: str, messages: Sequence[Message]) -> Staged:
    """Everything the transaction will need from outside. Raises `StoreUnavailable` and `UnknownCommand`."""
    proved = ProvedBlobs()
    blobs = BlobStore(store, tenant)
    checks = [check for message in messages if (check := ClaimCheck.of(message.body)) is not None]
    refusals: list[tuple[AttemptId, MemoreeError]] = []

    async def one(message: Message) -> Command | None:
        try:
            command = await _command(store, tenant, message)
        except ParkedCommandLost as lost:
            refusals.append((lost.attempt_id, _PARKED_COMMAND_LOST))
            return None
        content = command.call.content if command is not None else None
        if command is None or content is None or content.at_hand or content.refusal is not None:
            return command
        content = await _prove(blobs, content, proved, wants_bytes=needs_bytes(content, command.call.input))
        return replace(command, call=replace(command.call, content=content))

    commands = await _bounded_gather(one, messages)
    return Staged(
        [command for command in commands if command is not None],
        refusals,
        proved,
        [layout.parked_command_key(tenant, check.attempt_id) for check in checks],
    )


def history_in(message: Message) -> int:
    """The history that a command is for; that of the first, where the message does not say it or the command is
    parked."""
    with suppress(orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return int(orjson.loads(message.body)["history"])
    return 0


class ParkedCommandLost(Exception):
    def __init__(self, check: ClaimCheck) -> None:
        super().__init__(f"the parked command of {check.attempt_id} is not there as it was parked")
        self.attempt_id, self.tenant = check.attempt_id, check.tenant


_PARKED_COMMAND_LOST = MemoreeError(
    Code.TRANSPORT_ERROR,
    "the write was lost on its way to the writer; nothing was stored, send it again",
    details={"reason": "command_missing"},
    retry_after_seconds=1.0,
)


async def _command(store: ObjectStore, tenant: str, message: Message) -> Command | None:
    """The command of a message; `None`, logged, for one that no api can have sent. Raises `ParkedCommandLost`."""
    command = await read_command(store, message)
    if command is None or command.tenant == tenant:
        return command
    log.error("message %s is dropped: a command of %s in the group of %s", message.message_id, command.tenant, tenant)
    return None


async def read_command(store: ObjectStore, message: Message) -> Command | None:
    """The command of a message of any group; `None`, logged, for one that no api can have sent.

    Raises `ParkedCommandLost`, `StoreUnavailable` and `UnknownCommand`."""
    try:
        if (check := ClaimCheck.of(message.body)) is None:
            return from_message(message.body.encode())
        command = from_message(await _parked_body(store, check))
        if check.refusal is None or command.call.content is None:
            return command
        content = replace(command.call.content, refusal=check.refusal)
        return replace(command, call=replace(command.call, content=content))
    except MemoreeError as error:
        if error.code is Code.CONFIG_ERROR:
            raise UnknownCommand(error.message) from error
        log.error("message %s is dropped: %s", message.message_id, error)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        log.error("message %s is dropped: %r", message.message_id, error)
    return None


async def _parked_body(store: ObjectStore, check: ClaimCheck) -> bytes:
    try:
        found = await store.get(layout.parked_command_key(check.tenant, check.attempt_id))
    except ObjectMissing:
        raise ParkedCommandLost(check) from None
    assert found is not None
    if blake3(found.body).digest() != check.digest:
        raise ParkedCommandLost(check)
    return found.body


async def _prove(blobs: BlobStore, content: StagedContent, proved: ProvedBlobs, *, wants_bytes: bool) -> StagedContent:
    """See the blob in the store, put it there when the command carries its text, fetch what is to be stored inline or
    indexed."""
    digest = content.digest.hex()
    if not await blobs.exists(digest):
        if content.data is None:
            return content
        await blobs.put(content.data)
    if content.data is None and wants_bytes:
        try:
            content = replace(content, data=await blobs.read(digest, size=content.size))
        except MemoreeError as error:
            log.error("a blob is not what its name says, the command citing it will be refused: %s", error)
            return content
    proved.present.add(content.digest)
    return content


async def mark_try(
    store: ObjectStore, tenant: str, attempt_id: AttemptId, key_of: TryKey = layout.try_key
) -> str | None:
    """Leave a mark before a risky application and return its key; `None` when this attempt has had all its tries
    (design §5.2)."""
    for number in range(1, limits.POISON_TRIES_MAX + 1):
        key = key_of(tenant, attempt_id, number)
        try:
            await store.put(key, b"", if_absent=True)
        except PreconditionFailed:
            continue
        return key
    return None


async def _bounded_gather(work: Callable[[Item], Awaitable[Outcome]], items: Sequence[Item]) -> list[Outcome]:
    """Results in order, at most `STAGING_CONCURRENCY` at a time."""
    permits = asyncio.Semaphore(STAGING_CONCURRENCY)

    async def one(item: Item) -> Outcome:
        async with permits:
            return await work(item)

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()

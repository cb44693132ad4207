"""What the writer fetches before a transaction begins, from a store that answers as scripted."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest
from blake3 import blake3

from memoree import ids, limits
from memoree.command import Command, to_message
from memoree.envelope import decode_envelope
from memoree.objects import ObjectStoreError
from memoree.objects.blobs import blob_key
from memoree.operations.call import validate
from memoree.queue import Message
from memoree.replication import layout
from memoree.writer.staging import ClaimCheck, Staged, UnknownCommand, mark_try, stage
from replication.memory_store import Fault, MemoryStore

TENANT = "t"
CONTEXT = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
LONG_TEXT = b"a" * (limits.COMMAND_TEXT_BYTES_MAX + 1)
"""Too long to travel in the command; the writer has to fetch it to index it."""


def command(op: str = "claim.assert", input: dict[str, Any] | None = None) -> tuple[Command, bytes]:
    body = {
        "request_id": "r",
        "op": op,
        "idempotency_key": ids.new_ulid(),
        "context": CONTEXT,
        "input": input or {"claim_type": "fact", "statement": "s"},
    }
    envelope = decode_envelope(json.dumps(body).encode())
    made = Command(ids.new_attempt_id(), TENANT, 0, 0, validate(envelope))
    return made, to_message(made, envelope)


def put(data: bytes, media_type: str = "text/plain") -> dict[str, Any]:
    content = {"type": "base64", "data": base64.b64encode(data).decode()}
    return {"kind": "note", "title": "t", "media_type": media_type, "content": content}


def delivered(*bodies: bytes | str) -> Sequence[Message]:
    texts = [body if isinstance(body, str) else body.decode() for body in bodies]
    return [Message(f"m{number}", text, TENANT, f"r{number}", 1, 0.0) for number, text in enumerate(texts)]


def staged(store: MemoryStore, *bodies: bytes | str) -> Staged:
    return asyncio.run(stage(store, TENANT, delivered(*bodies)))


def park(store: MemoryStore, made: Command, body: bytes) -> str:
    store.place(layout.parked_command_key(TENANT, made.attempt_id), body)
    return ClaimCheck(made.attempt_id, TENANT, blake3(body).digest()).to_message()


def test_commands_keep_the_order_of_their_messages() -> None:
    made = [command() for _ in range(40)]

    assert [each.attempt_id for each in staged(MemoryStore(), *(body for _, body in made)).commands] == [
        each.attempt_id for each, _ in made
    ]


def test_a_parked_command_is_fetched_and_named_for_removal() -> None:
    store = MemoryStore()
    made, body = command()

    found = staged(store, park(store, made, body))

    assert [each.attempt_id for each in found.commands] == [made.attempt_id]
    assert found.parked == [layout.parked_command_key(TENANT, made.attempt_id)]


@pytest.mark.fault_class(1)
@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_a_parked_command_that_is_lost_gets_an_outcome_instead_of_silence(damage: str) -> None:
    store = MemoryStore()
    made, body = command()
    message = park(store, made, body)
    key = layout.parked_command_key(TENANT, made.attempt_id)
    if damage == "missing":
        store.remove(key)
    else:
        store.place(key, body + b" ")

    found = staged(store, message)

    ((attempt_id, error),) = found.refusals
    assert attempt_id == made.attempt_id and error.retryable
    assert found.commands == []


@pytest.mark.parametrize(
    "body",
    ["", "garbage", "[]", "{}", '{"parked": 1}', '{"parked":"../../head","tenant":"t","digest":"00"}', '{"version":1}'],
)
def test_a_message_that_no_api_sent_is_dropped_and_stops_nobody(body: str) -> None:
    made, sound = command()

    found = staged(MemoryStore(), body, sound)

    assert [each.attempt_id for each in found.commands] == [made.attempt_id]


def test_a_command_of_another_tenant_in_this_group_is_dropped() -> None:
    _, body = command()
    foreign = json.loads(body) | {"tenant": "other"}

    assert staged(MemoryStore(), json.dumps(foreign)).commands == []


def test_a_command_of_a_newer_api_is_not_judged() -> None:
    _, body = command()
    newer = json.loads(body) | {"version": 2}

    with pytest.raises(UnknownCommand, match="upgrade"):
        staged(MemoryStore(), json.dumps(newer))


def test_a_long_text_is_fetched_to_be_indexed_and_its_blob_proved() -> None:
    store = MemoryStore()
    _, body = command("artifact.put", put(LONG_TEXT))
    digest = blake3(LONG_TEXT)
    store.place(blob_key(TENANT, digest.hexdigest()), LONG_TEXT)

    found = staged(store, body)

    content = found.commands[0].call.content
    assert content is not None and content.data == LONG_TEXT
    assert found.blobs.holds(digest.digest())


@pytest.mark.fault_class(11)
def test_a_missing_blob_whose_text_travels_along_is_stored_again() -> None:
    store = MemoryStore()
    text = b"b" * (limits.INLINE_BODY_BYTES_MAX + 1)
    _, body = command("artifact.put", put(text))

    found = staged(store, body)

    assert store.body(blob_key(TENANT, blake3(text).hexdigest())) == text
    assert found.blobs.holds(blake3(text).digest())


@pytest.mark.parametrize("stored", [None, b"not what the name says", LONG_TEXT + b"a"])
def test_a_blob_that_is_missing_or_damaged_is_not_proved_and_stops_nobody(stored: bytes | None) -> None:
    store = MemoryStore()
    digest = blake3(LONG_TEXT)
    if stored is not None:
        store.place(blob_key(TENANT, digest.hexdigest()), stored)
    _, broken = command("artifact.put", put(LONG_TEXT))
    sound, body = command()

    found = staged(store, broken, body)

    assert not found.blobs.holds(digest.digest())
    assert found.commands[1].attempt_id == sound.attempt_id


def test_an_unreachable_store_decides_nothing() -> None:
    store = MemoryStore(reads=[Fault.BEFORE])
    made, body = command()

    with pytest.raises(ObjectStoreError):
        staged(store, park(store, made, body))


def test_an_attempt_has_three_tries() -> None:
    store = MemoryStore()
    attempt_id = ids.new_attempt_id()

    async def run() -> list[str | None]:
        return [await mark_try(store, TENANT, attempt_id) for _ in range(limits.POISON_TRIES_MAX + 1)]

    marks = asyncio.run(run())

    assert marks == [layout.try_key(TENANT, attempt_id, number) for number in (1, 2, 3)] + [None]

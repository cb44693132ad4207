"""A command on its way to the writer: in a message, or parked where it would be too large for one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from memoree import limits
from memoree.command import ClaimCheck
from memoree.jobs.tenancy import request_of
from memoree.queue import MESSAGE_BYTES_MAX
from memoree.queue.sqs_text import wire_bytes
from memoree.reader.outgoing import outgoing
from memoree.replication import layout
from replication.memory_store import MemoryStore

from .recorded import Restores, environment

CHECKPOINT = {"source_id": "src_1", "observed_at": "2026-03-02T20:00:00Z", "health": "error"}


@pytest.mark.parametrize(("message", "parked"), [("%" * 60_000, False), ("\uffff" + "%" * 60_000, True)])
def test_what_outgrows_a_message_on_its_way_is_parked(message: str, parked: bool, tmp_path: Path) -> None:
    request = request_of("source.checkpoint", {**CHECKPOINT, "message": message}, "key")

    async def scenario() -> None:
        reader = environment(Restores(MemoryStore()), tmp_path)
        attempt_id, sent = await outgoing(reader, "tenant-a", request, history=0, group="tenant-a")
        assert wire_bytes(sent.body) < MESSAGE_BYTES_MAX
        assert (ClaimCheck.of(sent.body) is not None) == parked
        if parked:
            body = await reader.store.get(layout.parked_command_key("tenant-a", attempt_id))
            assert body is not None and len(body.body) < limits.COMMAND_BYTES_MAX, "it is the way that makes it large"

    asyncio.run(scenario())

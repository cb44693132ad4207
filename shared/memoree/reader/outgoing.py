"""A request as the message that takes it to the writer (design §5.1, step 4)."""

from __future__ import annotations

from blake3 import blake3

from memoree import limits
from memoree.command import ClaimCheck, to_message
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId
from memoree.queue import OutgoingMessage
from memoree.queue.sqs_text import wire_bytes
from memoree.reader.environment import ReaderEnvironment
from memoree.replication import layout
from memoree.service import Request, new_command


async def outgoing(
    environment: ReaderEnvironment, tenant: str, request: Request, *, history: int, group: str
) -> tuple[AttemptId, OutgoingMessage]:
    """A new attempt at the request, and its message; one that is large on the queue is parked in the
    store. Raises `StoreUnavailable`."""
    command = new_command(tenant, request.call, history=history, clock_now=environment.clock)
    body = to_message(command, request.envelope)
    message = body.decode()
    if wire_bytes(message) > limits.COMMAND_BYTES_MAX:
        await environment.store.put(layout.parked_command_key(tenant, command.attempt_id), body)
        message = ClaimCheck(command.attempt_id, tenant, blake3(body).digest()).to_message()
    return command.attempt_id, OutgoingMessage(message, group=group, dedup_id=command.attempt_id)


def unreachable(error: Exception) -> MemoreeError:
    """The outcome is unknown, never "failed": the identical request with the same key is a safe retry."""
    return MemoreeError(
        Code.TRANSPORT_ERROR,
        f"the store or the queue did not answer; whether a write took effect is unknown: {error}",
        retry_after_seconds=1.0,
    )

"""What every adapter refuses before it stores anything, so that a message fits each of them alike."""

from __future__ import annotations

import re

from memoree.errors import shown
from memoree.queue import MESSAGE_BYTES_MAX, MessageTooLarge, OutgoingMessage, QueueError

NAME_PATTERN = re.compile(r"[\x21-\x7e]{1,128}")
"""Message group ids and deduplication ids: SQS takes printable ASCII without spaces."""


def check_outgoing(message: OutgoingMessage) -> None:
    """Raises `MessageTooLarge`, or `QueueError` for an empty or undecodable body and for an unusable name."""
    for what, name in (("message group", message.group), ("deduplication id", message.dedup_id)):
        if not NAME_PATTERN.fullmatch(name):
            raise QueueError(f"{what} {shown(name)} is not 1 to 128 printable ASCII characters without spaces")
    if not message.body:
        raise QueueError("a message needs a body")
    check_size(body_bytes(message.body))


def check_size(size_bytes: int) -> None:
    if size_bytes > MESSAGE_BYTES_MAX:
        raise MessageTooLarge(f"the message has {size_bytes} bytes, the most is {MESSAGE_BYTES_MAX}")


def body_bytes(body: str) -> int:
    """Size of the body on the wire. Raises `QueueError` for text that has no UTF-8 form (a lone surrogate)."""
    try:
        return len(body) if body.isascii() else len(body.encode())
    except UnicodeEncodeError as error:
        raise QueueError(f"the body cannot be encoded as UTF-8: {error.reason} at {error.start}") from error

"""A command: a validated mutation on its way to the writer, and its form as a queue message (design §5.1).

Content does not travel in the envelope: its place there holds an empty text, and `content` names the digest and
size, with the bytes where they are small enough.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Any

import orjson

from memoree import limits
from memoree.envelope import Envelope, parse
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId, UploadId, is_attempt_id
from memoree.media import is_indexed, is_text_like
from memoree.objects.blobs import check_tenant
from memoree.operations.call import Call, validate
from memoree.operations.content import StagedContent

COMMAND_VERSION = 1
"""Of the commands this program sends; it applies all up to this one. Writers are upgraded before the apis: a command
that a writer does not know yet waits for one that does."""
_CONTENT_ELSEWHERE = {"type": "text", "data": ""}


@dataclass(frozen=True, slots=True)
class Command:
    """One attempt at one mutation. `history` is the tenant's history as the api last saw it in head;
    `received_at_ms` is the api's clock, milliseconds since the epoch."""

    attempt_id: AttemptId
    tenant: str
    history: int
    received_at_ms: int
    call: Call[Any]


def to_message(command: Command, envelope: Envelope) -> bytes:
    """The message body. `envelope` is the request the call was made from."""
    document: dict[str, Any] = {
        "version": COMMAND_VERSION,
        "attempt_id": command.attempt_id,
        "tenant": command.tenant,
        "history": command.history,
        "received_at_ms": command.received_at_ms,
        "fingerprint": command.call.fingerprint.hex(),
        "envelope": envelope.model_dump(exclude_none=True),
    }
    if (content := command.call.content) is not None:
        document["envelope"]["input"] = {**envelope.input, "content": _CONTENT_ELSEWHERE}
        document["content"] = {"digest": content.digest.hex(), "size": content.size}
        if content.upload_id is not None:
            document["content"]["upload_id"] = content.upload_id
        if content.data is not None and travels_inline(content, command.call.input):
            document["content"]["data"] = base64.b64encode(content.data).decode("ascii")
    return orjson.dumps(document)


def from_message(body: bytes) -> Command:
    """The command of a message. Raises `CONFIG_ERROR` for a version this program does not know, and
    `INVALID_REQUEST` for a message that no api of this version can have sent."""
    document = orjson.loads(body)
    if not 1 <= document["version"] <= COMMAND_VERSION:
        raise MemoreeError(
            Code.CONFIG_ERROR,
            f"the command has version {document['version']}, this writer knows up to {COMMAND_VERSION}; upgrade it",
        )
    call = validate(parse(Envelope, document["envelope"]))
    content = document.get("content")
    return Command(
        attempt_id=AttemptId(document["attempt_id"]),
        tenant=document["tenant"],
        history=document["history"],
        received_at_ms=document["received_at_ms"],
        call=replace(
            call,
            fingerprint=bytes.fromhex(document["fingerprint"]),
            content=None if content is None else _staged(content, document.get("refusal")),
        ),
    )


def travels_inline(content: StagedContent, call_input: Any) -> bool:
    """Small bodies always travel; text up to 64 KiB does too, so that the writer need not fetch it to index it."""
    if content.inline:
        return True
    media_type = getattr(call_input, "media_type", None)
    return content.size <= limits.COMMAND_TEXT_BYTES_MAX and (media_type is None or is_text_like(media_type))


def needs_bytes(content: StagedContent, call_input: Any) -> bool:
    """Whether the writer does not have bytes that it has to store, or may have to index."""
    if content.data is not None:
        return False
    return content.inline or is_indexed(getattr(call_input, "media_type", None) or "text/plain", content.size)


def refused(message: str, error: MemoreeError) -> str:
    """The message of a command, or its claim check, with what is wrong with the upload it names."""
    return orjson.dumps({**orjson.loads(message), "refusal": error.to_wire()}).decode()


def _staged(document: dict[str, Any], refusal: dict[str, Any] | None) -> StagedContent:
    data, upload_id = document.get("data"), document.get("upload_id")
    return StagedContent(
        bytes.fromhex(document["digest"]),
        document["size"],
        None if data is None else base64.b64decode(data),
        None if upload_id is None else UploadId(upload_id),
        None if refusal is None else MemoreeError.from_wire(refusal),
    )


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """What a message says when its command is parked in the object store."""

    attempt_id: AttemptId
    tenant: str
    digest: bytes
    refusal: MemoreeError | None = None

    def to_message(self) -> str:
        document = {"parked": self.attempt_id, "tenant": self.tenant, "digest": self.digest.hex()}
        return orjson.dumps(document).decode()

    @classmethod
    def of(cls, body: str) -> ClaimCheck | None:
        """The claim check in a message; `None` for any other message."""
        if not body.startswith('{"parked"'):
            return None
        try:
            document = orjson.loads(body)
            if not is_attempt_id(document["parked"]):
                return None
            check_tenant(document["tenant"])
            refusal = MemoreeError.from_wire(document["refusal"]) if "refusal" in document else None
            return cls(AttemptId(document["parked"]), document["tenant"], bytes.fromhex(document["digest"]), refusal)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, MemoreeError):
            return None

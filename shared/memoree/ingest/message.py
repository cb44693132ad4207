"""What a connector may say: the messages of the ingest queue, version 1 (`docs/ingest.md`).

The JSON Schema in `docs/schemas/ingest-message-1.json` is made from these models.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

import orjson
from blake3 import blake3
from pydantic import AfterValidator, Field, TypeAdapter, WithJsonSchema, model_validator

from memoree import limits
from memoree.database.sources import Health
from memoree.envelope import ContextId, WireModel, load_json, parse
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.objects.blobs import check_tenant
from memoree.operations.content import ArtifactContent, UploadedContent
from memoree.operations.shapes import (
    DEFAULT_MEDIA_TYPE,
    Actor,
    ExternalId,
    HealthMessage,
    Kind,
    MediaType,
    Metadata,
    Reason,
    SourceCursor,
    SourceLocator,
    SourceName,
    Timestamp,
    Title,
)

MESSAGE_VERSION: Literal[1] = 1
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _tenant(name: str) -> str:
    try:
        return check_tenant(name)
    except MemoreeError as error:
        raise ValueError(error.message) from None


Tenant = Annotated[
    str, AfterValidator(_tenant), WithJsonSchema({"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"})
]


class MessageContext(WireModel):
    """Where the source belongs: it is registered there, and its items are visible from there."""

    workspace_id: ContextId
    project_id: ContextId
    task_id: ContextId | None = None


class SourceReference(WireModel):
    """A source by name, which is unique in its workspace, project and task. `system` is the kind of external system,
    such as `git`; it is the registered source's `kind`, and never changes."""

    system: Kind
    name: SourceName


class InlineContent(ArtifactContent):
    """At most 128 KiB of raw bytes; more is sent as an upload first, and named."""

    @model_validator(mode="after")
    def _fits(self) -> InlineContent:
        try:
            size = len(self.decoded())
        except MemoreeError as error:
            raise ValueError(error.message) from None
        if size > limits.INGEST_INLINE_BYTES_MAX:
            raise ValueError(f"{size} bytes are too many for a message of the queue; send an upload and name it")
        return self

    @classmethod
    def of(cls, data: bytes) -> InlineContent:
        """As text where the bytes are UTF-8, else as base64; both come back byte for byte. Raises `ValueError` over
        128 KiB."""
        try:
            return cls(type="text", data=data.decode("utf-8", errors="strict"))
        except UnicodeDecodeError:
            return cls.encoded(data)

    @classmethod
    def encoded(cls, data: bytes) -> InlineContent:
        """As base64, whatever the bytes are. Raises as `of`."""
        return cls(type="base64", data=base64.b64encode(data).decode("ascii"))


class UploadReference(UploadedContent):
    """Content that was sent as an upload (`docs/streaming.md`), and what was declared of it."""

    blob_hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size_bytes: Annotated[int, Field(ge=1, le=limits.UPLOAD_BYTES_MAX)]


MessageContent = Annotated[InlineContent | UploadReference, Field(discriminator="type")]


class _Message(WireModel):
    version: Literal[1] = MESSAGE_VERSION
    tenant: Tenant
    source: SourceReference
    context: MessageContext
    actor: Actor | None = None


class Register(_Message):
    """Make the source known, before anything else is said of it. Saying it again changes nothing."""

    type: Literal["register"] = "register"
    locator: SourceLocator | None = None
    metadata: Metadata = Field(default_factory=dict)


class Ingest(_Message):
    """One item in one revision.

    `observed_at` is when the connector saw the item so. The same revision with the same instant is the same delivery,
    however often it comes; a state that returns is a new delivery, with a new instant.
    """

    type: Literal["ingest"] = "ingest"
    external_id: ExternalId
    external_revision: ExternalId
    kind: Kind
    title: Title
    media_type: MediaType = DEFAULT_MEDIA_TYPE
    content: MessageContent
    provenance: Metadata = Field(default_factory=dict)
    observed_at: Timestamp


class Checkpoint(_Message):
    """How the source is, and where it is to be read on. Takes effect once everything that was published before it for
    this source is applied or told in the dead letters."""

    type: Literal["checkpoint"] = "checkpoint"
    health: Health = "healthy"
    cursor: SourceCursor | None = None
    message: HealthMessage | None = None
    observed_at: Timestamp


class Withdraw(_Message):
    """The item is gone from its system."""

    type: Literal["withdraw"] = "withdraw"
    external_id: ExternalId
    reason: Reason
    observed_at: Timestamp


IngestMessage = Register | Ingest | Checkpoint | Withdraw

_MODELS: Mapping[str, type[Register] | type[Ingest] | type[Checkpoint] | type[Withdraw]] = {
    "register": Register,
    "ingest": Ingest,
    "checkpoint": Checkpoint,
    "withdraw": Withdraw,
}


def to_body(message: IngestMessage) -> str:
    """The message as it travels."""
    return orjson.dumps(message.model_dump(exclude_none=True)).decode()


def from_document(document: Any) -> IngestMessage:
    """A message from decoded JSON. Raises `UNSUPPORTED_VERSION` for another version, `INVALID_REQUEST` for whatever
    else is wrong with it."""
    if not isinstance(document, dict):
        invalid("a message is a JSON object")
    if "version" not in document:
        invalid("version: is required")
    if (version := document["version"]) != MESSAGE_VERSION or type(version) is not int:  # `true` equals 1
        raise MemoreeError(
            Code.UNSUPPORTED_VERSION,
            f"version {shown(version)} of ingest messages is not supported; send version {MESSAGE_VERSION}",
            details={"received_version": version, "supported_version": MESSAGE_VERSION},
        )
    kind = document.get("type")
    model = _MODELS.get(kind) if isinstance(kind, str) else None
    if model is None:
        invalid(f"type: must be one of {', '.join(_MODELS)} (got {shown(kind)})")
    return parse(model, document)


def from_body(body: str) -> IngestMessage:
    """Raises as `from_document`, also for what is no JSON."""
    return from_document(load_json(body.encode()))


def group_of(message: IngestMessage) -> str:
    """The queue's group: one per tenant and source, so that what a source says is delivered in its order."""
    context = message.context
    names = (message.tenant, context.workspace_id, context.project_id, context.task_id, message.source.name)
    return f"source-{blake3(orjson.dumps(names)).hexdigest()[:32]}"


def item_of(message: IngestMessage) -> str | None:
    """The item a message is about: messages about different items commute. `None` for one that everything before it in
    its group precedes, and everything after it follows."""
    return message.external_id if isinstance(message, Ingest | Withdraw) else None


@cache
def json_schema() -> dict[str, Any]:
    """The contract as a JSON Schema (dialect 2020-12)."""
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[IngestMessage, Field(discriminator="type")])
    schema = adapter.json_schema()
    for name, definition in schema["$defs"].items():
        if name in {model.__name__ for model in _MODELS.values()}:
            # Defaults are for who builds a message in Python; on the wire both are always said.
            definition["required"] = ["version", "type", *definition["required"]]
    title = f"Memoree ingest message, version {MESSAGE_VERSION}"
    return {"$schema": DIALECT, "title": title, **schema}

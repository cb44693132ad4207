"""A validated request: steps 2 to 8 of the processing order (machine protocol §1.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import orjson
from blake3 import blake3
from pydantic import BaseModel

from memoree import limits
from memoree.envelope import (
    PROTOCOL_VERSION,
    AmbientContext,
    ContextSource,
    Envelope,
    Horizon,
    decode_envelope,
    parse,
)
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.ids import UploadId
from memoree.operations.content import StagedContent, UploadedContent
from memoree.operations.registry import Mutation, Operation
from memoree.operations.registry import operation as find_operation
from memoree.owner import Owner

Input = TypeVar("Input", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call(Generic[Input]):
    """One request whose every field has been judged without the database."""

    operation: Operation
    request_id: str
    context: AmbientContext | None
    context_source: ContextSource
    idempotency_key: str
    """Empty for reads, where the key is ignored."""
    fingerprint: bytes
    """BLAKE3 of what makes two mutations the same request; empty for reads (§1.7)."""
    input: Input
    content: StagedContent | None = None
    upload_id: UploadId | None = None
    """The upload that is to be the content; what it holds is found out by whoever sends the command on its way."""

    @property
    def ambient(self) -> AmbientContext:
        assert self.context is not None, "only operations that need a context ask for it"
        return self.context

    @property
    def owner(self) -> Owner:
        context = self.ambient
        return Owner(context.workspace_id, context.project_id, context.task_id, context.component)

    @property
    def horizon(self) -> Horizon:
        return getattr(self.input, "horizon", "ambient")

    @property
    def idempotency_namespaced(self) -> str:
        """The stored form of the key: a digest of workspace, project and task, then the caller's key (§1.7)."""
        context = self.ambient
        return f"{_namespace(context.workspace_id, context.project_id, context.task_id)}:{self.idempotency_key}"

    def echoed_context(self) -> dict[str, Any] | None:
        """`ResolvedContext` of a success (§2.2): for operations that need context, or when one was sent."""
        if self.context is None:
            return None
        return {
            **self.context.model_dump(exclude_none=True),
            "resolved_from": self.context_source,
            "horizon": self.horizon,
            "broadened": self.horizon != "ambient",
        }


def decode(body: bytes) -> Envelope:
    """Step 1: UTF-8, JSON, envelope shape, an operation that is offered. On failure the request id counts as unread."""
    envelope = decode_envelope(body)
    operation = find_operation(envelope.op)
    if operation is None or operation.internal:
        invalid(f"op: there is no operation {shown(envelope.op)}")
    return envelope


def validate(envelope: Envelope) -> Call[Any]:
    """The call a decoded envelope asks for. Errors come in the order of the contract (§1.3, steps 2 to 8)."""
    operation = find_operation(envelope.op)
    assert operation is not None, "decoding refused unknown operations"
    if envelope.v != PROTOCOL_VERSION:
        raise MemoreeError(
            Code.UNSUPPORTED_VERSION,
            f"protocol version {envelope.v} is not supported; send version {PROTOCOL_VERSION}",
            details={"received_version": envelope.v, "supported_version": PROTOCOL_VERSION},
        )
    _check_length("request_id", envelope.request_id, limits.REQUEST_ID_BYTES_MAX)
    context = parse(AmbientContext, envelope.context, "context") if envelope.context is not None else None
    key = ""
    if isinstance(operation, Mutation):
        key = envelope.idempotency_key or ""
        if not key:
            invalid(f"idempotency_key: {operation.name} changes the store and needs one")
        _check_length("idempotency_key", key, limits.IDEMPOTENCY_KEY_BYTES_MAX)
    parsed = parse(operation.input, envelope.input, "input") if operation.horizon else None
    if operation.needs_context and context is None:
        raise MemoreeError(Code.NO_AMBIENT_CONTEXT, f"{operation.name} needs a context and none is attached")
    if operation.horizon:
        check_reason(parsed, "input.reason")
    if parsed is None:
        parsed = parse(operation.input, envelope.input, "input")
    content, upload_id = _carried(operation, parsed)
    return Call(
        operation=operation,
        request_id=envelope.request_id,
        context=context,
        context_source=envelope.context_source,
        idempotency_key=key,
        fingerprint=_fingerprint(envelope, context) if key else b"",
        input=parsed,
        content=content,
        upload_id=upload_id,
    )


@lru_cache
def _namespace(workspace_id: str, project_id: str, task_id: str | None) -> str:
    return blake3(_joined(workspace_id, project_id, task_id or "").encode()).hexdigest()[:32]


def _joined(*ids: str) -> str:
    """The ids joined by NUL, as the contract says. It forgets that ids may hold NUL themselves: then their lengths
    go first, so that no two contexts share a spelling, neither with such ids nor with ordinary ones."""
    holds_nul = any("\0" in each for each in ids)
    return "\0".join((*(str(len(each)) for each in ids), *ids) if holds_nul else ids)


def _carried(operation: Operation, parsed: BaseModel) -> tuple[StagedContent | None, UploadId | None]:
    """The bytes an input brings along, or the upload it names."""
    if not isinstance(operation, Mutation) or operation.content is None:
        return None, None
    content = operation.content(parsed)
    if isinstance(content, UploadedContent):
        return None, UploadId(content.upload_id)
    return StagedContent.of(content.decoded()), None


def _fingerprint(envelope: Envelope, context: AmbientContext | None) -> bytes:
    identity = {
        "v": envelope.v,
        "op": envelope.op,
        "context": context.model_dump() if context is not None else None,
        "input": envelope.input,
    }
    return blake3(orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)).digest()


def check_reason(parsed: Any, name: str) -> None:
    """A horizon beyond the ambient one needs a reason (§2.5). `name` is what the caller knows it by."""
    if parsed.horizon != "ambient" and not (parsed.reason or "").strip():
        invalid(f"{name}: the horizon {parsed.horizon!r} needs a reason that is not blank")


def _check_length(name: str, text: str, bytes_max: int) -> None:
    size = len(text.encode())
    if not 1 <= size <= bytes_max:
        invalid(f"{name}: must have 1 to {bytes_max} bytes, got {size}")

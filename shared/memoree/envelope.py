"""The request and response envelopes, and the ambient context they carry (machine protocol §1.1, §1.2, §2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from memoree import limits
from memoree.errors import Code, MemoreeError, invalid, shown

PROTOCOL_VERSION = 1
REQUEST_ID_UNREADABLE = "req_transport"

_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**64 - 1
_INTEGER_DIGITS_MAX = 20
_LONG_DIGIT_RUN = b"0" * 19
"""Fewer digits always fit into 64 bits."""
_DIGITS_ONLY = bytes(ord("0") if chr(byte).isdecimal() and byte < 128 else ord(" ") for byte in range(256))

_REASONS = {
    "extra_forbidden": "unknown member",
    "missing": "is required",
    "model_type": "must be an object",
    "dict_type": "must be an object",
}
"""By the validator's type of error, where its own words are about Python."""

Model = TypeVar("Model", bound=BaseModel)

ContextSource = Literal["explicit", "session", "marker", "personal", "none"]
Horizon = Literal["ambient", "workspace", "personal"]


class WireModel(BaseModel):
    """Strict types, unknown members refused: the manners of every object a caller sends."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def bounded(bytes_max: int) -> AfterValidator:
    """A non-blank string of 1 to `bytes_max` UTF-8 bytes: `Annotated[str, bounded(256)]`."""

    def check(text: str) -> str:
        if not text.strip():
            raise ValueError("must not be empty or blank")
        if (size := len(text.encode())) > bytes_max:
            raise ValueError(f"must be at most {bytes_max} bytes, got {size}")
        return text

    return AfterValidator(check)


def length(bytes_max: int, **more: str) -> WithJsonSchema:
    """What JSON Schema can say of a byte bound: its lengths count characters, of which there are never more."""
    return WithJsonSchema({"type": "string", "minLength": 1, "maxLength": bytes_max, **more})


ContextId = Annotated[str, bounded(limits.CONTEXT_ID_BYTES_MAX), length(limits.CONTEXT_ID_BYTES_MAX)]


class AmbientContext(WireModel):
    """Where a request happens: the workspace and project, and optionally a task, a component and pins."""

    workspace_id: ContextId
    project_id: ContextId
    task_id: ContextId | None = None
    component: ContextId | None = None
    pins: Annotated[list[Annotated[str, bounded(limits.PIN_BYTES_MAX)]], Field(max_length=limits.PINS_MAX)] = Field(
        default_factory=list
    )


class Envelope(WireModel):
    """A request as decoded, before its version, bounds and input are judged."""

    v: Annotated[int, Field(ge=0, le=2**32 - 1)] = PROTOCOL_VERSION
    request_id: str
    op: str
    idempotency_key: str | None = None
    context: dict[str, Any] | None = None
    context_source: ContextSource = "none"
    input: Any = None


def load_json(body: bytes) -> Any:
    """One JSON document, or `INVALID_REQUEST`: bad UTF-8, lone surrogates, NaN and absurd nesting included, and
    integers beyond 64 bits, which would silently lose digits."""
    try:
        document = orjson.loads(body)
        if _LONG_DIGIT_RUN in body.translate(_DIGITS_ONLY):
            json.loads(body, parse_int=_checked_integer)
    except (orjson.JSONDecodeError, RecursionError) as error:
        invalid(f"the request is not valid JSON: {error}")
    return document


def _checked_integer(digits: str) -> int:
    """A number without fraction or exponent, by the slow parser that sees every digit of it."""
    if len(digits.removeprefix("-")) > _INTEGER_DIGITS_MAX or not _INTEGER_MIN <= int(digits) <= _INTEGER_MAX:
        invalid(f"the integer {shown(digits)} does not fit into 64 bits")
    return int(digits)


def decode_envelope(body: bytes) -> Envelope:
    """A request object of the right shape. Raises `INVALID_REQUEST`, and `CONTENT_TOO_LARGE` over the frame limit."""
    if len(body) > limits.FRAME_BYTES_MAX:
        raise MemoreeError(
            Code.CONTENT_TOO_LARGE,
            f"the request has {len(body)} bytes; the limit is {limits.FRAME_BYTES_MAX}",
        )
    document = load_json(body)
    if not isinstance(document, dict):
        invalid("the request must be a JSON object")
    envelope = parse(Envelope, document)
    if envelope.context is not None:
        check_context_shape(envelope.context)
    return envelope


def check_context_shape(context: Mapping[str, Any]) -> None:
    """Unknown members and wrong types of `context` are faults of decoding; bounds are judged later."""
    for member, value in context.items():
        if member not in AmbientContext.model_fields:
            invalid(f"context.{member}: unknown member")
        if member == "pins":
            if not isinstance(value, list) or not all(isinstance(pin, str) for pin in value):
                invalid("context.pins: must be an array of strings")
        elif not isinstance(value, str) and not (value is None and member in ("task_id", "component")):
            invalid(f"context.{member}: must be a string")


def parse(model: type[Model], value: Any, where: str = "") -> Model:
    """Validate a decoded JSON value. Raises `INVALID_REQUEST` naming the first offending member."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = ".".join(str(part) for part in (where, *first["loc"]) if part != "")
        kind = "missing" if value is None else first["type"]
        reason = _REASONS.get(kind, first["msg"].removeprefix("Value error, "))
        told_enough = kind in ("missing", "extra_forbidden") or isinstance(first["input"], dict)
        got = "" if told_enough else f" (got {shown(first['input'])})"
        invalid(f"{path or 'request'}: {reason}{got}")


def failure(request_id: str, error: MemoreeError) -> dict[str, Any]:
    """The response envelope of a refusal; it never carries a context or a result."""
    return {
        "v": PROTOCOL_VERSION,
        "request_id": request_id,
        "ok": False,
        "error": error.to_wire(),
        "warnings": [],
    }


def success(
    request_id: str,
    result: Mapping[str, Any],
    *,
    context: Mapping[str, Any] | None,
    commit_seq: int | None = None,
) -> dict[str, Any]:
    body: dict[str, Any] = {"v": PROTOCOL_VERSION, "request_id": request_id, "ok": True}
    if context is not None:
        body["context"] = context
    if commit_seq is not None:
        body["commit_seq"] = commit_seq
    body["result"] = result
    body["warnings"] = []
    return body


def encode(envelope: Mapping[str, Any]) -> bytes:
    """Compact JSON. A response over the frame limit becomes a `CONTENT_TOO_LARGE` failure (§1.4)."""
    body = orjson.dumps(envelope)
    if len(body) <= limits.FRAME_BYTES_MAX:
        return body
    too_large = MemoreeError(
        Code.CONTENT_TOO_LARGE,
        f"the response has {len(body)} bytes; the limit is {limits.FRAME_BYTES_MAX}",
    )
    return orjson.dumps(failure(envelope["request_id"], too_large))

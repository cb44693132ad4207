"""A request as the client holds it, and the answer as it comes back (machine protocol §1.3, §1.5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from memoree import limits
from memoree.client import operations
from memoree.envelope import PROTOCOL_VERSION, REQUEST_ID_UNREADABLE, Envelope, check_context_shape, load_json, parse
from memoree.errors import Code, MemoreeError, invalid, shown

REQUEST_ID_CLI = "req_cli"
"""Request id of failures that happen before the request's own id is known."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request ready to be sent: `body` is the compact JSON of at most one frame."""

    request_id: str
    op: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """A response envelope, as bytes and as read."""

    body: bytes
    envelope: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        return bool(self.envelope["ok"])

    @property
    def code(self) -> str | None:
        """The error code, of this program or of a newer server."""
        return None if self.ok else str(self.envelope["error"]["code"])


class Endpoint(Protocol):
    def exchange(self, request: Outgoing) -> bytes:
        """Send a request and return the response body.

        Raises `TRANSPORT_ERROR` when no answer came: whether the request took effect is then unknown, and
        sending the identical request again is safe.
        """


AmbientSource = Callable[[], Mapping[str, Any]]
"""Gives `context` and `context_source` of this process. Raises `NO_AMBIENT_CONTEXT` or `CONFIG_ERROR`."""


def decode_request(body: bytes) -> dict[str, Any]:
    """The request object of a whole input. Raises `INVALID_REQUEST` for anything but one envelope for a known
    operation, and `INTERNAL_ERROR` for bytes that are no UTF-8 (CLI contract §1.4)."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise MemoreeError(Code.INTERNAL_ERROR, f"the request is not valid UTF-8: {error.reason}") from error
    document = load_json(body)
    if not isinstance(document, dict):
        invalid("the request must be a JSON object")
    _refuse_duplicate_members(text)
    envelope = parse(Envelope, document)
    if envelope.context is not None:
        check_context_shape(envelope.context)
    if not operations.is_known(envelope.op):
        invalid(f"op: there is no operation {shown(envelope.op)}")
    return document


def with_context(document: Mapping[str, Any], ambient: AmbientSource) -> dict[str, Any]:
    """The request with the context it is going to run in: its own, else the ambient one where one is needed."""
    if document.get("context") is not None:
        source = document.get("context_source", "none")
        return {**document, "context_source": "explicit" if source == "none" else source}
    if not operations.needs_context(document["op"]):
        return dict(document)
    return {**document, **ambient()}


def encode_request(document: Mapping[str, Any]) -> Outgoing:
    """Raises `CONTENT_TOO_LARGE` for a request that does not fit into one frame, and `INVALID_REQUEST` for what JSON
    cannot carry: a command line may hold bytes that are no UTF-8, and numbers of any length."""
    try:
        body = orjson.dumps(document)
    except orjson.JSONEncodeError as error:
        invalid(f"the request cannot be sent: {error}")
    if len(body) > limits.FRAME_BYTES_MAX:
        raise MemoreeError(
            Code.CONTENT_TOO_LARGE,
            f"the request has {len(body)} bytes; the limit is {limits.FRAME_BYTES_MAX}",
        )
    return Outgoing(document["request_id"], document["op"], body)


def send(request: Outgoing, endpoint: Endpoint) -> Answer:
    """One exchange. Raises `TRANSPORT_ERROR` when what came back is not the response to this request."""
    body = endpoint.exchange(request)
    try:
        envelope = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise not_an_envelope(body) from None
    if not _is_response(envelope):
        raise not_an_envelope(body)
    if envelope["request_id"] == request.request_id:
        return Answer(body.strip(), envelope)
    if envelope["request_id"] != REQUEST_ID_UNREADABLE:
        raise MemoreeError(Code.TRANSPORT_ERROR, f"the answer is for request {shown(envelope['request_id'])}")
    own = {**envelope, "request_id": request.request_id}  # refused before it was read: we know which one it was
    return Answer(orjson.dumps(own), own)


def not_an_envelope(body: bytes) -> MemoreeError:
    return MemoreeError(
        Code.TRANSPORT_ERROR, f"the answer is not a response envelope: {shown(body[:200].decode(errors='replace'))}"
    )


def _is_response(envelope: Any) -> bool:
    if not isinstance(envelope, dict) or envelope.get("v") != PROTOCOL_VERSION:
        return False
    if not isinstance(envelope.get("request_id"), str):
        return False
    if envelope.get("ok") is True:
        return isinstance(envelope.get("result"), dict)
    error = envelope.get("error")
    return envelope.get("ok") is False and isinstance(error, dict) and isinstance(error.get("code"), str)


def _refuse_duplicate_members(text: str) -> None:
    """The parser of the wire keeps the last of two members of one name; two readers could then disagree on what
    was asked. The standard library's parser is the one that shows them."""

    def unique(pairs: list[tuple[str, Any]]) -> None:
        if len(pairs) != len({name for name, _ in pairs}):
            names = [name for name, _ in pairs]
            invalid(f"the member {shown(next(name for name in names if names.count(name) > 1))} occurs twice")

    try:
        json.loads(text, object_pairs_hook=unique)
    except RecursionError:
        invalid("the request is nested too deeply")

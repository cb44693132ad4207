"""Large content: declared, sent beside the protocol, and named in a request afterwards (`docs/streaming.md`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson
from blake3 import blake3

from memoree import limits
from memoree.client.http import HttpEndpoint, exchanging_at
from memoree.client.request import not_an_envelope
from memoree.errors import Code, MemoreeError, invalid, shown

UPLOADS_PATH = "/v1/artifacts/uploads"
READ_BYTES = limits.MIB
SILENCE_SECONDS_MAX = 60.0
"""Of a server or store that takes the bytes: how long one step may take, not all of them."""
ANSWER_SHOWN_BYTES = 200


def upload(endpoint: HttpEndpoint, file: BinaryIO) -> str:
    """Send a file; gives the id to name it by.

    Raises `CONTENT_TOO_LARGE` over 5 GiB, before it is read; `INVALID_REQUEST` for an empty file and for one that
    became shorter under way; the server's own refusal; and `TRANSPORT_ERROR`. Nothing is stored then, and all of it
    may be done again.
    """
    size = os.fstat(file.fileno()).st_size
    if size > limits.UPLOAD_BYTES_MAX:
        raise MemoreeError(
            Code.CONTENT_TOO_LARGE, f"the content has {size} bytes; the limit of an upload is {limits.UPLOAD_BYTES_MAX}"
        )
    if size == 0:
        invalid("an upload has at least one byte; `memoree artifact put` takes empty files")
    ticket = _declare(endpoint, size, _digest(file))
    _send(endpoint, ticket, file, size)
    return str(ticket["upload_id"])


def _digest(file: BinaryIO) -> str:
    hasher = blake3()
    file.seek(0)
    while chunk := file.read(READ_BYTES):
        hasher.update(chunk)
    return hasher.hexdigest()


def _declare(endpoint: HttpEndpoint, size: int, digest: str) -> dict[str, Any]:
    body = endpoint.post(UPLOADS_PATH, orjson.dumps({"size_bytes": size, "blob_hash": digest}))
    answer = _object(body)
    if answer is None:
        raise not_an_envelope(body)
    if "error" in answer:
        raise _refusal(answer, body)
    if not all(isinstance(answer.get(name), str) for name in ("upload_id", "url")):
        raise MemoreeError(Code.TRANSPORT_ERROR, "the server answered without saying where the content is to be sent")
    return answer


def _send(endpoint: HttpEndpoint, ticket: dict[str, Any], file: BinaryIO, size: int) -> None:
    url, authorization = endpoint.address_of(ticket["url"])
    asked = {name: value for name, value in ticket.get("headers", {}).items() if name.lower() != "content-length"}
    headers = {**asked, **authorization, "Content-Length": str(size)}
    with exchanging_at(url) as (connection, target):
        connection.connect()
        connection.sock.settimeout(SILENCE_SECONDS_MAX)
        connection.request("PUT", target, body=_pieces(file, size), headers=headers)
        response = connection.getresponse()
        check_status(response.status, response.read(limits.METADATA_BYTES_MAX))


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Exactly as many bytes as were declared: more would be taken for another request."""
    file.seek(0)
    while size > 0:
        piece = file.read(min(size, READ_BYTES))
        if not piece:
            invalid("the file became shorter while it was sent; nothing was stored")
        size -= len(piece)
        yield piece


def check_status(status: int, body: bytes) -> None:
    """A store answers 200 and this service 204; a refusal of the service says what was wrong."""
    if 200 <= status < 300:
        return
    answer = _object(body)
    if answer is not None and "error" in answer:
        raise _refusal(answer, body)
    told = shown(body[:ANSWER_SHOWN_BYTES].decode(errors="replace"))
    raise MemoreeError(Code.TRANSPORT_ERROR, f"the content did not get through: HTTP status {status}: {told}")


def _refusal(answer: dict[str, Any], body: bytes) -> MemoreeError:
    try:
        return MemoreeError.from_wire(answer["error"])
    except (KeyError, TypeError, ValueError):  # a code that this version does not know, or no error object
        return not_an_envelope(body)


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None

"""Answers and how they are written: envelopes on the machine protocol's routes, `{"error", "message"}` elsewhere,
and RFC 9457 members on top when the caller's `Accept` names `application/problem+json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import orjson
from starlette.types import Scope, Send

from memoree import limits
from memoree.envelope import REQUEST_ID_UNREADABLE
from memoree.errors import HTTP_STATUS, Code, MemoreeError
from memoree.http.negotiation import weights
from memoree.service import Reply, refusal

HeaderList = tuple[tuple[bytes, bytes], ...]

JSON = b"application/json"
PROBLEM = b"application/problem+json"
CALL_PATH = "/v1/call"
OPERATIONS_PATH = "/v1/operations"
BULK_PATH = "/v1/bulk"
EVENTS_PATH = "/v1/events"
LIST_PATHS = ("/v1/artifacts", "/v1/claims", "/v1/relations")
ADMIN_PATH = "/v1/admin"
ENVELOPE_PREFIXES = (OPERATIONS_PATH, BULK_PATH, *LIST_PATHS, EVENTS_PATH, ADMIN_PATH)
"""Routes beside `/v1/call` that refuse with an envelope."""
PROBLEM_TYPE_PREFIX = "urn:memoree:error:"
RETRY_STATUSES = frozenset({202, 429, 503})
RETRY_AFTER_SECONDS_DEFAULT = 1.0

SECURITY_HEADERS: HeaderList = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response. `headers` are what comes beside its type, its length and the security headers, and instead of
    those of the latter that it names itself."""

    status: int
    body: bytes
    headers: HeaderList = ()
    content_type: bytes = JSON

    def start(self) -> dict[str, Any]:
        entity: HeaderList = ()
        if self.status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            entity = ((b"content-type", self.content_type), (b"content-length", b"%d" % len(self.body)))
        own = {name for name, _ in self.headers}
        security = (header for header in SECURITY_HEADERS if header[0] not in own)
        return {
            "type": "http.response.start",
            "status": self.status,
            "headers": [*entity, *security, *self.headers],
        }

    async def send(self, send: Send) -> None:
        await send(self.start())
        await send({"type": "http.response.body", "body": self.body})

    def with_headers(self, *headers: tuple[bytes, bytes]) -> Answer:
        return replace(self, headers=self.headers + headers)


class HttpRefusal(Exception):
    """A refusal that HTTP itself brings about. `status` where it is not the one of the error's code."""

    def __init__(self, error: MemoreeError, *, status: int | None = None, headers: HeaderList = ()) -> None:
        super().__init__(error.message)
        self.error = error
        self.status = HTTP_STATUS[error.code] if status is None else status
        self.headers = headers

    def reply(self, request_id: str = REQUEST_ID_UNREADABLE) -> Reply:
        return replace(refusal(request_id, self.error), status=self.status)


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of that (lower-case) name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


def json_answer(document: Mapping[str, Any], status: int = 200, *, headers: HeaderList = ()) -> Answer:
    return Answer(status, orjson.dumps(document), headers)


def envelope_answer(scope: Scope, reply: Reply, headers: HeaderList = ()) -> Answer:
    """The reply as HTTP. A body over the frame limit becomes `CONTENT_TOO_LARGE` (machine protocol §1.4)."""
    document, content_type = reply.envelope, JSON
    if "error" in document and wants_problem(scope):
        error = document["error"]
        document = problem(reply.status, error["code"], error["message"], document)
        content_type = PROBLEM
    body = orjson.dumps(document)
    if len(body) > limits.FRAME_BYTES_MAX:
        message = f"the response has {len(body)} bytes; the limit is {limits.FRAME_BYTES_MAX}"
        too_large = refusal(reply.envelope["request_id"], MemoreeError(Code.CONTENT_TOO_LARGE, message))
        return envelope_answer(scope, too_large, headers)
    if reply.snapshot_commit_seq is not None:
        headers += ((b"memoree-commit-seq", b"%d" % reply.snapshot_commit_seq),)
    if reply.status in RETRY_STATUSES:
        headers += (retry_after(reply.retry_after_seconds or RETRY_AFTER_SECONDS_DEFAULT),)
    return Answer(reply.status, body, headers, content_type)


def refusal_answer(scope: Scope, refused: HttpRefusal) -> Answer:
    """The refusal in the manner of the route that was asked: an envelope, or `{"error", "message"}`."""
    if speaks_envelopes(scope):
        return envelope_answer(scope, refused.reply(), refused.headers)
    headers = refused.headers
    if refused.status in RETRY_STATUSES:
        headers += (retry_after(refused.error.retry_after_seconds or RETRY_AFTER_SECONDS_DEFAULT),)
    document = {"error": refused.error.code.value.lower(), "message": refused.error.message}
    return plain_refusal(scope, refused.status, document, headers)


def plain_refusal(scope: Scope, status: int, document: Mapping[str, Any], headers: HeaderList = ()) -> Answer:
    """`{"error", "message", …}`, as problem details where these are wanted."""
    if not wants_problem(scope):
        return json_answer(document, status, headers=headers)
    told = problem(status, document["error"], document["message"], document)
    return Answer(status, orjson.dumps(told), headers, PROBLEM)


def speaks_envelopes(scope: Scope) -> bool:
    path: str = scope["path"]
    return path == CALL_PATH or path.startswith(ENVELOPE_PREFIXES)


def wants_problem(scope: Scope) -> bool:
    """Whether `Accept` names problem details, and no plain JSON that it would rather have."""
    wanted = weights(header_values(scope, b"accept"))
    return wanted.get(PROBLEM, 0.0) > 0.0 and wanted[PROBLEM] >= wanted.get(JSON, 0.0)


def retry_after(seconds: float) -> tuple[bytes, bytes]:
    """Whole seconds, rounded up, at least one."""
    return b"retry-after", b"%d" % max(1, math.ceil(seconds))


def problem(status: int, code: str, detail: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """Problem details that still are what the route refuses with: RFC 9457 allows members of one's own."""
    return {
        "type": PROBLEM_TYPE_PREFIX + code,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **own,
    }

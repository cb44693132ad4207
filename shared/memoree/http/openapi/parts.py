"""What the routes of the document have in common: parameters, answers, refusals."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from memoree.errors import HTTP_STATUS, Code
from memoree.http.answers import RETRY_STATUSES
from memoree.http.openapi.components import Components, Json, ref

ADMISSION = (401, 403, 429)
FAILURES = (500, 503)
HEAD = (400, 408, 431)
"""Also refused before a path is known, with the plain body."""

REASONS: Mapping[int, str] = {
    304: "Not modified: the caller has these bytes",
    400: "A request that cannot be meant, or that is not HTTP",
    408: "The headers or the body took too long to arrive; nothing was stored",
    413: "Larger than the limits allow",
    415: "Another media type, charset or encoding than this route takes",
    431: "The request line and headers take too much room",
    500: "A fault of the service, which its log explains",
    503: "Not now: overloaded, starting, or the store does not answer; `Retry-After` says when to come back",
}
HEADERS: Json = {
    "Memoree-Commit-Seq": {"description": "The state the answer was computed from.", "schema": {"type": "integer"}},
    "ETag": {"description": "A strong tag of exactly these bytes.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}},
}
STRONG: Json = {
    "name": "Memoree-Consistency",
    "in": "header",
    "description": "`strong`: look at the newest state first.",
    "schema": {"type": "string", "enum": ["strong"]},
}
PREFER: Json = {
    "name": "Prefer",
    "in": "header",
    "description": "`wait=N`: whole seconds to wait for a write's outcome; `respond-async`: do not wait.",
    "schema": {"type": "string"},
}
IF_NONE_MATCH: Json = {
    "name": "If-None-Match",
    "in": "header",
    "description": "The `ETag` of what the caller has.",
    "schema": {"type": "string"},
}


def text_of(bytes_max: int) -> Json:
    """A text that is not empty. Lengths of JSON Schema count characters, of which there are no more than bytes."""
    return {"type": "string", "minLength": 1, "maxLength": bytes_max}


def add_plain_error(components: Components) -> None:
    """How routes refuse that do not speak in envelopes, and the server before it knows the path."""
    components.schemas["PlainError"] = {
        "type": "object",
        "required": ["error", "message"],
        "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
    }


def answer(description: str, schema: Json, *headers: str, media_type: str = "application/json") -> Json:
    """A response with a body. `headers` are names of those that come with it."""
    told: Json = {"description": description, "content": {media_type: {"schema": schema}}}
    if headers:
        told["headers"] = {name: HEADERS[name] for name in headers}
    return told


def refusals(statuses: set[int]) -> Json:
    """Failure envelopes; as problem details they have members of RFC 9457 on top."""
    return {str(status): _refusal(status) for status in sorted({*statuses, *HEAD} - {200})}


def _refusal(status: int) -> Json:
    codes = [code.value for code in Code if HTTP_STATUS[code] == status]
    phrase = REASONS.get(status, HTTPStatus(status).phrase)
    problem = {
        "type": "object",
        "required": ["type", "title", "status", "detail", "error"],
        "properties": {"status": {"const": status}, "error": ref("ErrorBody")},
    }
    failure = {"anyOf": [ref("Failure"), ref("PlainError")]} if status in HEAD else ref("Failure")
    told: Json = {
        "description": f"{phrase} ({', '.join(codes)})" if codes else phrase,
        "content": {"application/json": {"schema": failure}, "application/problem+json": {"schema": problem}},
    }
    if status in RETRY_STATUSES:
        told["headers"] = {"Retry-After": HEADERS["Retry-After"]}
    return told


def plain_refusals(*statuses: int) -> Json:
    """Refusals of routes that do not speak in envelopes."""
    problem = {"allOf": [ref("PlainError"), {"required": ["type", "title", "status", "detail"]}]}
    content = {"application/json": {"schema": ref("PlainError")}, "application/problem+json": {"schema": problem}}
    return {
        str(status): {"description": REASONS.get(status, HTTPStatus(status).phrase), "content": content}
        for status in sorted({*statuses, *HEAD})
    }

"""What went wrong, in the words of MemoryProtocol (§11): a status, a code, a message for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from starlette.types import Scope

from memoree.errors import HTTP_STATUS, Code, MemoreeError
from memoree.http.answers import (
    RETRY_AFTER_SECONDS_DEFAULT,
    RETRY_STATUSES,
    Answer,
    HeaderList,
    HttpRefusal,
    plain_refusal,
    retry_after,
)

VALIDATE = "validate"
PATHS = ("/v1/ingest", "/v1/recall", "/v1/forget", "/v1/snapshot/", "/v1/episode/")
"""Of the protocol's routes, or their beginnings."""
_STATUS = {
    Code.INVALID_REQUEST: 422,
    Code.IDEMPOTENCY_CONFLICT: 422,
    Code.WRITE_PENDING: 503,
    Code.TRANSPORT_ERROR: 500,
    Code.INDEX_NOT_READY: 500,
}
"""Where it is not the one of `/v1/call`."""
_CODE_OF_STATUS = {408: "request_timeout", 503: "overloaded"}
"""Of what the door refuses by itself, without a look at the store."""
_CODE = {
    Code.INVALID_REQUEST: VALIDATE,
    Code.CONTENT_TOO_LARGE: VALIDATE,
    Code.IDEMPOTENCY_CONFLICT: VALIDATE,
    Code.UNAUTHENTICATED: "unauthorized",
    Code.FORBIDDEN: "forbidden",
    Code.SCOPE_VIOLATION: "forbidden",
    Code.RATE_LIMITED: "rate_limited",
    Code.NOT_FOUND: "not_found",
    Code.WRITE_PENDING: "write_pending",
    Code.TRANSPORT_ERROR: "storage",
    Code.INDEX_NOT_READY: "storage",
    Code.INTEGRITY_ERROR: "storage",
    Code.CONFIG_ERROR: "storage",
}
UNKNOWN = "unknown"
QUOTA_EXCEEDED = "quota_exceeded"
"""What the tenant holds leaves no room; the answer says `limit`, `used` and `quota`."""
_MEMBER_OF_INPUT = "input."
"""How members are called where an operation has judged them."""


class Refusal(Exception):
    """Ends a request with this status and `{"error": code, "message", **extra}`."""

    def __init__(self, status: int, code: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.extra: Mapping[str, Any] = extra
        self.headers: HeaderList = ()
        self.retryable = False
        self.retry_after_seconds: float | None = None

    @classmethod
    def of(cls, error: MemoreeError) -> Refusal:
        status = _STATUS.get(error.code, HTTP_STATUS[error.code])
        refused = cls(status, _CODE.get(error.code, UNKNOWN), error.message.removeprefix(_MEMBER_OF_INPUT))
        if error.code is Code.CONTENT_TOO_LARGE and error.details is not None:
            refused.code, refused.extra = QUOTA_EXCEEDED, error.details
            refused.message = f"{refused.message}; {error.hint}"
        refused.retryable = error.retryable
        refused.retry_after_seconds = error.retry_after_seconds
        return refused

    @classmethod
    def of_http(cls, refused: HttpRefusal) -> Refusal:
        """What the door refused before the store was asked; its status stands."""
        found = cls.of(refused.error)
        found.status, found.headers = refused.status, refused.headers
        found.code = _CODE_OF_STATUS.get(refused.status, found.code)
        return found

    @classmethod
    def of_any(cls, error: Exception) -> Refusal:
        """What its answer will say, whatever was raised."""
        match error:
            case Refusal():
                return error
            case HttpRefusal():
                return cls.of_http(error)
            case MemoreeError():
                return cls.of(error)
        return cls(500, UNKNOWN, "the request failed; see the log")

    @property
    def document(self) -> dict[str, Any]:
        return {"error": self.code, "message": self.message, **self.extra}

    def answer(self, scope: Scope, headers: HeaderList = ()) -> Answer:
        headers += self.headers
        if self.retryable or self.status in RETRY_STATUSES:
            headers += (retry_after(self.retry_after_seconds or RETRY_AFTER_SECONDS_DEFAULT),)
        return plain_refusal(scope, self.status, self.document, headers)


def refuse(status: int, code: str, message: str, **extra: Any) -> NoReturn:
    raise Refusal(status, code, message, **extra)

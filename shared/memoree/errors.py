"""The one exception type whose content reaches a caller.

Source of the rules: machine protocol §3; `retryable`, `details` and hints are part of the wire contract.
Anything that is not a `MemoreeError` is an internal fault: it is logged, and the caller sees `INTERNAL_ERROR`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NoReturn

MESSAGE_VALUE_CHARS_MAX = 120


class Code(StrEnum):
    """Every error code of the wire, with the extra codes of this service at the end."""

    NO_AMBIENT_CONTEXT = "NO_AMBIENT_CONTEXT"
    INVALID_REQUEST = "INVALID_REQUEST"
    NOT_FOUND = "NOT_FOUND"
    CITATION_ERROR = "CITATION_ERROR"
    REVISION_CONFLICT = "REVISION_CONFLICT"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    INDEX_NOT_READY = "INDEX_NOT_READY"
    SCOPE_VIOLATION = "SCOPE_VIOLATION"
    CONFIG_ERROR = "CONFIG_ERROR"
    CONTENT_TOO_LARGE = "CONTENT_TOO_LARGE"
    INTEGRITY_ERROR = "INTEGRITY_ERROR"
    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
    TRANSPORT_ERROR = "TRANSPORT_ERROR"
    REASONER_ERROR = "REASONER_ERROR"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    FORBIDDEN = "FORBIDDEN"
    RATE_LIMITED = "RATE_LIMITED"
    WRITE_PENDING = "WRITE_PENDING"


RETRYABLE = frozenset({Code.INDEX_NOT_READY, Code.TRANSPORT_ERROR, Code.RATE_LIMITED, Code.WRITE_PENDING})

HINTS: Mapping[Code, str] = {
    Code.NO_AMBIENT_CONTEXT: "say where the request belongs: workspace_id and project_id",
    Code.REVISION_CONFLICT: "read what is current, then decide again",
    Code.IDEMPOTENCY_CONFLICT: "keep a key for identical resends only; choose a new key for another request",
    Code.INDEX_NOT_READY: "repeat the same read once the write is visible",
    Code.SCOPE_VIOLATION: "work in the context that owns the entity; pinned or looked-up entities are read-only",
}

HTTP_STATUS: Mapping[Code, int] = {
    Code.INVALID_REQUEST: 400,
    Code.UNSUPPORTED_VERSION: 400,
    Code.NO_AMBIENT_CONTEXT: 400,
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.SCOPE_VIOLATION: 403,
    Code.NOT_FOUND: 404,
    Code.REVISION_CONFLICT: 409,
    Code.IDEMPOTENCY_CONFLICT: 409,
    Code.CONTENT_TOO_LARGE: 413,
    Code.CITATION_ERROR: 422,
    Code.RATE_LIMITED: 429,
    Code.WRITE_PENDING: 202,
    Code.INDEX_NOT_READY: 503,
    Code.TRANSPORT_ERROR: 503,
    Code.CONFIG_ERROR: 500,
    Code.INTEGRITY_ERROR: 500,
    Code.REASONER_ERROR: 500,
    Code.INTERNAL_ERROR: 500,
}

EXIT_STATUS: Mapping[Code, int] = {
    Code.INVALID_REQUEST: 2,
    Code.CONFIG_ERROR: 2,
    Code.CONTENT_TOO_LARGE: 2,
    Code.UNSUPPORTED_VERSION: 2,
    Code.CITATION_ERROR: 2,
    Code.NOT_FOUND: 3,
    Code.REVISION_CONFLICT: 4,
    Code.IDEMPOTENCY_CONFLICT: 4,
    Code.NO_AMBIENT_CONTEXT: 5,
    Code.INDEX_NOT_READY: 6,
    Code.SCOPE_VIOLATION: 7,
}
"""Exit status of the shell interface; every other code exits 1 (machine protocol §1.5)."""


class MemoreeError(Exception):
    """A refusal or failure with the code, message and details a caller is shown; `hint` where another one than the
    code's own is of use. A message may name a path whose bytes are not UTF-8: these are told as `\\udcff`."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        self.message = message.encode(errors="backslashreplace").decode()
        super().__init__(self.message)
        self.code = code
        self.hint = hint if hint is not None else HINTS.get(code)
        self.details = dict(details) if details is not None else None
        self.retry_after_seconds = retry_after_seconds

    @property
    def retryable(self) -> bool:
        return self.code in RETRYABLE

    def to_wire(self) -> dict[str, Any]:
        """The `error` object of the response envelope (machine protocol §1.2)."""
        body: dict[str, Any] = {"code": self.code.value, "message": self.message, "retryable": self.retryable}
        if self.hint is not None:
            body["hint"] = self.hint
        body["details"] = self.details
        return body

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> MemoreeError:
        """A writer's refusal, as it was recorded; when to try again is then among its details."""
        details = body.get("details") or {}
        return cls(
            Code(body["code"]),
            str(body["message"]),
            details=body.get("details"),
            hint=body.get("hint"),
            retry_after_seconds=details.get("retry_after_seconds"),
        )


def invalid(message: str) -> NoReturn:
    """Refuse the request: `INVALID_REQUEST`, not retryable, no details."""
    raise MemoreeError(Code.INVALID_REQUEST, message)


def not_found(what: str, identifier: str) -> NoReturn:
    raise MemoreeError(Code.NOT_FOUND, f"{what} {shown(identifier)} does not exist")


def erased(what: str, identifier: str) -> NoReturn:
    """Refuse what names something that was erased: its id stays, and answers this for ever."""
    raise MemoreeError(Code.NOT_FOUND, f"{what} {shown(identifier)} was erased", details={"kind": "erased"})


def shown(value: object) -> str:
    """An offending value, quoted and cut to a sane length for a message."""
    text = repr(value)
    if len(text) <= MESSAGE_VALUE_CHARS_MAX:
        return text
    return f"{text[:MESSAGE_VALUE_CHARS_MAX]}… ({len(text)} characters)"

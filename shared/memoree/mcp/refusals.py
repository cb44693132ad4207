"""What a tool says when it fails: `Error [CODE]: message` (OKF contract §3.1)."""

from __future__ import annotations

from collections.abc import Mapping

from memoree.errors import Code, MemoreeError

_CODES: Mapping[Code, str] = {Code.INVALID_REQUEST: "INVALID_ARGUMENT", Code.INTERNAL_ERROR: "INTERNAL"}
"""Where the contract of this door has another word than the machine protocol."""
_REASONS = frozenset({"AMBIGUOUS", "INVALID_ID", "NO_REGISTRY", "ENGINE_NOT_ACTIVE"})
"""Codes of this door that operations tell as the `reason` of a refusal."""


class Refused(MemoreeError):
    """A refusal with a code that only this door has."""

    def __init__(self, reason: str, message: str) -> None:
        assert reason in _REASONS
        super().__init__(Code.INVALID_REQUEST, message, details={"reason": reason})


def code_of(error: MemoreeError) -> str:
    reason = str((error.details or {}).get("reason", ""))
    return reason if reason in _REASONS else _CODES.get(error.code, error.code.value)


def text_of(error: MemoreeError) -> str:
    """The line a model reads. It says what to do where that is known."""
    details = error.details or {}
    hint = details.get("next_action") or error.hint
    advice = f" ({hint})" if hint else ""
    return f"Error [{code_of(error)}]: {error.message.removeprefix('input.')}{advice}"

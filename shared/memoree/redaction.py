"""Secrets are taken out of text before it is logged or told: a library's message may quote what it was given.

Those of the process are known by their values, all others by what stands before them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"
VALUE_CHARACTERS_MIN = 8
"""A shorter value may be an ordinary word."""
_SECRET_VARIABLE = re.compile(r"(?:.*_)?(?:SECRET_ACCESS_KEY|SESSION_TOKEN|TOKEN|PASSWORD)")
_ANNOUNCED = re.compile(
    r"(\bbearer\s+(?=[\w.~+/=-]{8})"
    r"|\b(?:credential|signature|x-amz-security-token)(?:=|%3d)"
    r"|(?:secret_?access_?key|session_?token)['\"]?\s*[=:]\s*['\"]?"
    r"|\bsha256:(?=[0-9a-f]{64}))[^\s'\"\\&,;)>]+",
    re.IGNORECASE,
)
"""Of a header, a presigned URL, a signed request, a setting, and a tokens file."""
_USER_INFORMATION = re.compile(r"(?<=://)[^/?#\s'\"]*@")

_values: frozenset[str] = frozenset()


def redacted(text: str) -> str:
    """The text without secrets."""
    for value in _values:
        text = text.replace(value, HIDDEN)
    return _USER_INFORMATION.sub(f"{HIDDEN}@", _ANNOUNCED.sub(rf"\1{HIDDEN}", text))


def hide_secrets_of(environment: Mapping[str, str]) -> None:
    """From now on `redacted` knows those values of settings that are secret, and every handler of the root logger that
    there is writes redacted lines."""
    global _values
    named = (value for name, value in environment.items() if _SECRET_VARIABLE.fullmatch(name))
    _values = frozenset(value for value in named if len(value) >= VALUE_CHARACTERS_MIN)
    _redact(logging.getLogger().handlers)


class RedactingFormatter(logging.Formatter):
    """What another one makes of a record, traceback included, redacted."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return redacted(self._inner.format(record))


def _redact(handlers: Iterable[logging.Handler]) -> None:
    for handler in handlers:
        if not isinstance(handler.formatter, RedactingFormatter):
            handler.setFormatter(RedactingFormatter(handler.formatter or logging.Formatter()))

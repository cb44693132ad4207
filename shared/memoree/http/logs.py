"""Logs as one JSON object a line, on stderr. Bodies and tokens are never logged."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

from memoree.redaction import hide_secrets_of

EXTRA_MEMBERS = ("request_id", "http_request_id", "route", "op", "code", "tenant", "milliseconds")
MESSAGE_CHARS_MAX = 4096


class JsonFormatter(logging.Formatter):
    """`{"at", "level", "logger", "message", …, "exception"?}`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MESSAGE_CHARS_MAX],
        }
        for member in EXTRA_MEMBERS:
            if (value := getattr(record, member, None)) not in (None, ""):
                line[member] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send the process's logs to stderr in this form, in place of any handlers set before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    hide_secrets_of(os.environ)

"""The tokens file a fresh stack gets: one token, for everything, readable by its owner alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import orjson

TOKEN_BYTES = 32
TENANT = "local"
SCOPES = ["recall", "ingest", "forget", "inbox", "admin"]


def ensure_tokens_file(path: Path) -> Path:
    """Create the file (0600) unless it is there; an existing one is never touched."""
    entry = {secrets.token_urlsafe(TOKEN_BYTES): {"tenant": TENANT, "scopes": SCOPES}}
    staged = path.with_suffix(".new")
    if path.exists():
        return path
    staged.unlink(missing_ok=True)
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(orjson.dumps(entry, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        file.flush()
        os.fsync(file.fileno())
    staged.rename(path)
    return path

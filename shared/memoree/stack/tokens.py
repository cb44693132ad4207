"""The tokens file a fresh stack gets: one token, for everything, readable by its owner alone."""

from __future__ import annotations

import secrets
from pathlib import Path

import orjson

from memoree.private_file import write_private

TOKEN_BYTES = 32
TENANT = "local"
SCOPES = ["recall", "ingest", "forget", "inbox", "admin"]


def ensure_tokens_file(path: Path) -> None:
    """Create the file (0600) unless it is there; an existing one is never touched."""
    if path.exists():
        return
    entry = {secrets.token_urlsafe(TOKEN_BYTES): {"tenant": TENANT, "scopes": SCOPES}}
    write_private(path, orjson.dumps(entry, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

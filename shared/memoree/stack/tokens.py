"""The tokens a fresh stack gets: one, for everything, readable by its owner alone."""

from __future__ import annotations

from pathlib import Path

from memoree.private_file import write_private
from memoree.tokens.document import Document, encode, new_secret
from memoree.tokens.source import TokensSource

TENANT = "local"
SCOPES = ["recall", "ingest", "forget", "inbox", "admin"]


def ensure_tokens_file(path: Path) -> None:
    """Create the file (0600) unless it is there; an existing one is never touched."""
    if path.exists():
        return
    write_private(path, encode(_generated()))


async def ensure_tokens(source: TokensSource) -> None:
    """As `ensure_tokens_file`, where they are kept elsewhere: unless there is an entry. Raises `CONFIG_ERROR` and
    `TRANSPORT_ERROR`."""
    generated = _generated()
    await source.update(lambda document: document or generated)


def _generated() -> Document:
    return {new_secret(): {"tenant": TENANT, "scopes": SCOPES}}

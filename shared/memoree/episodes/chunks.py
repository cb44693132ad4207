"""What a chunk of an episode is called in MemoryProtocol (§6.1, §9.2): an id of its own, in the form of a ULID."""

from __future__ import annotations

from blake3 import blake3

REVISION_PREFIX = "arev_"
_TIME_CHARS, _DIGEST_BYTES = 10, 16
_CHARACTERS = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ" * 8
"""Of Crockford's base 32, by the lower five bits of a byte."""


def chunk_id(revision_id: str, ordinal: int) -> str:
    """Of the chunk with that number: the revision's instant, and eighty bits of a digest of both."""
    instant = revision_id.removeprefix(REVISION_PREFIX)[:_TIME_CHARS]
    return instant + blake3(f"{revision_id}:{ordinal}".encode()).digest(_DIGEST_BYTES).translate(_CHARACTERS).decode()

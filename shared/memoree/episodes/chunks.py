"""What a chunk of an episode is called in MemoryProtocol (§6.1, §9.2): an id of its own, in the form of a ULID."""

from __future__ import annotations

from blake3 import blake3
from ulid import ULID

REVISION_PREFIX = "arev_"
_BYTES, _TIME_BYTES = 16, 6


def chunk_id(revision_id: str, ordinal: int) -> ULID:
    """Of the chunk with that number: the revision's instant, and a digest of both."""
    time = ULID.from_str(revision_id.removeprefix(REVISION_PREFIX)).bytes[:_TIME_BYTES]
    digest = blake3(f"{revision_id}:{ordinal}".encode()).digest()
    return ULID(time + digest[: _BYTES - _TIME_BYTES])

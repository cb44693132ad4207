"""`ETag` and `If-None-Match` (RFC 9110 §13.1.2) of answers that a client may keep and ask about again."""

from __future__ import annotations

from blake3 import blake3
from starlette.types import Scope

from memoree import limits
from memoree.http.answers import Answer, HeaderList, header_values
from memoree.http.compression import is_accepted

_TAG_HEX_DIGITS = 32
REVALIDATED: HeaderList = ((b"cache-control", b"private, no-cache"), (b"vary", b"Authorization, Accept"))
"""May be kept by the client, and is asked about before every use: what it shows can change with any commit."""


def revalidated(scope: Scope, answer: Answer) -> Answer:
    """The answer with the tag of its bytes, or 304 without them when the caller has exactly these. The tag is strong,
    unless the answer will be compressed: then these are not the bytes that are sent (RFC 9110 §8.8.3.3)."""
    tag = b'"%s"' % blake3(answer.body).hexdigest()[:_TAG_HEX_DIGITS].encode()
    compressed = len(answer.body) >= limits.COMPRESSED_BYTES_MIN and is_accepted(scope)
    tagged = answer.with_headers(*REVALIDATED, (b"etag", b"W/" + tag if compressed else tag))
    if has(scope, tag):
        return Answer(304, b"", (*tagged.headers, (b"vary", b"Accept-Encoding")))
    return tagged


def has(scope: Scope, tag: bytes) -> bool:
    """Whether one of the tags the caller names is this one; the comparison is the weak one, as the RFC wants here."""
    named = [part.strip() for value in header_values(scope, b"if-none-match") for part in value.split(b",")]
    return b"*" in named or tag in (name.removeprefix(b"W/") for name in named)

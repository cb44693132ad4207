"""Citations: how an immutable revision, or exact bytes of it, is named in text (machine protocol §5.2).

    memoree://artifact/ARTIFACT@REVISION          a whole revision
    memoree://artifact/ARTIFACT@REVISION#4-23     its bytes 4 up to, not including, 23
    memoree://claim/CLAIM@REVISION                claims have no spans

Ids stand there as they are, without escapes. Free of everything but the bounds, so that the command line can use it.
"""

from __future__ import annotations

from typing import NamedTuple

from memoree import limits

ARTIFACT_PREFIX = "memoree://artifact/"
CLAIM_PREFIX = "memoree://claim/"
OFFSET_MAX = 2**64 - 1
"""The largest unsigned integer of the wire."""
_RESERVED = frozenset("@#")
_OFFSET_DIGITS_MAX = len(str(OFFSET_MAX))


class Span(NamedTuple):
    """Byte offsets as they were written: nothing says yet that they are in order, or inside of anything."""

    start: int
    end: int


class ArtifactCitation(NamedTuple):
    artifact_id: str
    revision_id: str
    span: Span | None = None

    def __str__(self) -> str:
        whole = f"{ARTIFACT_PREFIX}{self.artifact_id}@{self.revision_id}"
        return whole if self.span is None else f"{whole}#{self.span.start}-{self.span.end}"


def claim_citation(claim_id: str, revision_id: str) -> str:
    return f"{CLAIM_PREFIX}{claim_id}@{revision_id}"


def parse(text: str) -> ArtifactCitation:
    """Raises `ValueError`, with a message for users, for anything but the citation of an artifact."""
    if not 1 <= len(text.encode()) <= limits.CITATION_BYTES_MAX:
        raise ValueError(f"a citation has 1 to {limits.CITATION_BYTES_MAX} bytes")
    if not text.startswith(ARTIFACT_PREFIX):
        raise ValueError(f"the citation of an artifact starts with {ARTIFACT_PREFIX}")
    found = parse_locator(text.removeprefix(ARTIFACT_PREFIX))
    for part in (found.artifact_id, found.revision_id):
        if not 1 <= len(part.encode()) <= limits.ID_BYTES_MAX or _RESERVED & set(part):
            raise ValueError(f"ids have 1 to {limits.ID_BYTES_MAX} bytes, and neither @ nor # in them")
    return found


def parse_locator(text: str) -> ArtifactCitation:
    """`ARTIFACT@REVISION` or `ARTIFACT@REVISION#START-END`, with ids of any form, also none. Raises `ValueError`."""
    artifact_id, at, rest = text.partition("@")
    if not at:
        raise ValueError("an @ stands between artifact and revision")
    revision_id, mark, fragment = rest.partition("#")
    return ArtifactCitation(artifact_id, revision_id, parse_span(fragment) if mark else None)


def parse_span(fragment: str) -> Span:
    """`START-END`. Raises `ValueError`."""
    start, _, end = fragment.partition("-")
    return Span(_offset(start), _offset(end))


def _offset(digits: str) -> int:
    significant = digits.lstrip("0") or digits[-1:]
    is_decimal = digits.isascii() and digits.isdigit()
    if not is_decimal or len(significant) > _OFFSET_DIGITS_MAX or int(significant) > OFFSET_MAX:
        raise ValueError("a span is START-END, two byte offsets in decimal digits")
    return int(significant)

"""What a media type says of its bytes: whether they are text to be searched, and text to be shown."""

from __future__ import annotations

from memoree import limits

TEXT_APPLICATION_TYPES = frozenset(
    f"application/{name}" for name in ("json", "xml", "yaml", "x-yaml", "toml", "javascript", "sql", "graphql")
)
_ESCAPES_OF_TWO = '"\\\b\t\n\f\r'


def is_indexed(media_type: str, size: int) -> bool:
    """Whether a body is searchable by its words: of a text-like type, and no larger than what travels in a request."""
    return size <= limits.ARTIFACT_BYTES_MAX and is_text_like(media_type)


def is_text_like(media_type: str) -> bool:
    """Whether bodies of this type are indexed when they are valid UTF-8 (machine protocol §4.5)."""
    bare = media_type.split(";", 1)[0].strip().lower()
    return (
        bare.startswith("text/")
        or bare.endswith(("+json", "+xml"))
        or bare in TEXT_APPLICATION_TYPES
        or bare == "image/svg+xml"
    )


def indexable_text(media_type: str, data: bytes) -> str | None:
    """The body as text, or `None` when it is searchable by title only. Never decodes lossily: spans are bytes."""
    if not is_text_like(media_type):
        return None
    try:
        return data.decode("utf-8", errors="strict")
    except UnicodeDecodeError:
        return None


def shown_as_text(media_type: str, data: bytes) -> str | None:
    """The bytes as text, for `text/*`, valid UTF-8 and at most 12 MiB of JSON string (machine protocol §4.6)."""
    if not media_type.lower().startswith("text/"):
        return None
    try:
        text = data.decode("utf-8", errors="strict")
    except UnicodeDecodeError:
        return None
    return text if json_string_bytes(text, len(data)) <= limits.ENCODED_CONTENT_BYTES_MAX else None


def json_string_bytes(text: str, utf8_bytes: int) -> int:
    """Size of the text as a JSON string: two quotes, 2 per short escape, 6 per other control character."""
    two = sum(text.count(character) for character in _ESCAPES_OF_TWO)
    controls = sum(text.count(chr(code)) for code in range(0x20)) - sum(text.count(c) for c in "\b\t\n\f\r")
    return 2 + utf8_bytes + two + 5 * controls

"""The text of a message as SQS takes it: what it refuses travels escaped, and that is the size that counts."""

from __future__ import annotations

import re

from memoree.queue.checks import body_bytes

UNSENDABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that SQS refuses. A body that holds one travels with these, and `%`, as `%` and four hex digits."""

ESCAPED_ATTRIBUTE = "escaped"
ESCAPED_ATTRIBUTE_BYTES = len(ESCAPED_ATTRIBUTE) + len("String") + len("1")

_TO_ESCAPE = re.compile(f"%|{UNSENDABLE.pattern}")
_ESCAPED = re.compile("%([0-9a-f]{4})")
_SURROGATE = re.compile("[\ud800-\udfff]")


def escaped(body: str) -> str | None:
    """The body as it travels beside `ESCAPED_ATTRIBUTE`; `None` for one that travels as it is."""
    if not UNSENDABLE.search(body):
        return None
    return _TO_ESCAPE.sub(lambda found: f"%{ord(found[0]):04x}", body)


def unescaped(text: str) -> str:
    """The body that travels as this text. The text itself where there is none: whoever may send may send anything, and
    what is received has to fit into a message again, of the dead letters."""
    body = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    return body if escaped(body) == text and not _SURROGATE.search(body) else text


def wire_bytes(body: str) -> int:
    """What a message with this body counts at the queue that lets it grow most. Raises `QueueError` for text that has
    no UTF-8 form."""
    text = escaped(body)
    return body_bytes(body) if text is None else body_bytes(text) + ESCAPED_ATTRIBUTE_BYTES

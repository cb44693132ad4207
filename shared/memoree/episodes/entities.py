"""The entities that a query names, by which graph mode begins (MemoryProtocol §6.3)."""

from __future__ import annotations

import re

_FIRST_CHARACTER = re.compile("[A-Za-z0-9]")
_OUTER = re.compile(r"^[\W_]+|[\W_]+$")


def entities(query: str) -> list[str]:
    """Words that begin in upper case, each once; the first word of a query begins so in any case and is none."""
    named = (word for word in query.split()[1:] if _begins_in_upper_case(word))
    return list(dict.fromkeys(_OUTER.sub("", word) for word in named))


def _begins_in_upper_case(word: str) -> bool:
    first = _FIRST_CHARACTER.search(word)
    return first is not None and first[0].isupper()

"""The entities that a query names, by which graph mode begins (MemoryProtocol §6.3)."""

from __future__ import annotations

import re

_FIRST_CHARACTER = re.compile("[A-Za-z0-9]")
_INNER = re.compile(r"[^\W_](?:.*[^\W_])?")
"""From the first letter or digit to the last one."""


def entities(query: str) -> list[str]:
    """Words that begin in upper case, each once; the first word of a query begins so in any case and is none."""
    named = (_INNER.search(word) for word in query.split()[1:] if _begins_in_upper_case(word))
    return list(dict.fromkeys(found[0] for found in named if found is not None))


def _begins_in_upper_case(word: str) -> bool:
    first = _FIRST_CHARACTER.search(word)
    return first is not None and first[0].isupper()

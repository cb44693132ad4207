"""Literals: pieces with punctuation inside (`38.101`, `src/app.py`), which are one term beside their words.

The index splits them into words. A row with those words together is a better match than one with them scattered, and
a row with the very piece, punctuation included, is the best: it has the piece's own term.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from blake3 import blake3

from memoree.retrieval.words import is_word_character, words

TERM_DIGITS = 14
IDENTIFIER = re.compile(r"\d|^/\w|\w\w[.@]\w|\w[.@]\w\w|::|\w[/\\]\w.*[/\\]")
"""Digits, or the punctuation of paths, hosts and addresses; `client/server` and `ask:me` are just two words."""
PIECE_CHARS_MAX = 256

_INNER_PUNCTUATION = re.compile(r"\w[^\w\s-]+\w")
_PUNCTUATED = re.compile(r"\w[^\w\s]+\w")


def literal_terms(folded: str) -> Iterator[str]:
    """The terms of the literals of a folded text."""
    for piece in folded.split():
        if len(piece) <= PIECE_CHARS_MAX and _PUNCTUATED.search(piece) and is_literal(piece, words(piece)):
            yield literal_term(trimmed(piece).strip("-"))


def literal_term(text: str) -> str:
    """One token that no word of a text is."""
    return f"literal{blake3(text.encode()).hexdigest()[:TERM_DIGITS]}"


def is_literal(piece: str, found: Sequence[str]) -> bool:
    """Whether the punctuation of a piece of these words makes it what it is: `38.101`, `src/app.py`, `SKU-77`, but not
    `high-speed` or `i.e.`"""
    if len(found) < 2:
        return False
    if IDENTIFIER.search(piece):
        return True
    return _INNER_PUNCTUATION.search(piece) is not None and all(len(word) > 1 for word in found)


def trimmed(piece: str) -> str:
    """Without what is neither part of a word nor a hyphen at both ends."""
    start, end = 0, len(piece)
    while start < end and not _holds(piece[start]):
        start += 1
    while end > start and not _holds(piece[end - 1]):
        end -= 1
    return piece[start:end]


def _holds(character: str) -> bool:
    return character == "-" or is_word_character(character)

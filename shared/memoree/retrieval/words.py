"""What a word is: maximal runs of letters, digits, `_` and the marks that belong to them, in any script."""

from __future__ import annotations

import unicodedata

_WORD_CATEGORIES = frozenset("LN")


def words(text: str) -> list[str]:
    """Maximal runs of letters, digits, `_` and the marks that belong to them; other characters separate."""
    return "".join(character if is_word_character(character) else " " for character in text).split()


def is_word_character(character: str) -> bool:
    """Letters and numbers of any script and `_`; combining marks too, since many scripts write vowels as marks."""
    return character == "_" or character.isalnum() or unicodedata.category(character)[0] in "LNM"


def has_letters(word: str) -> bool:
    """Whether the tokenizer can find anything in it: `_` and marks alone are separators there."""
    return any(unicodedata.category(character)[0] in _WORD_CATEGORIES for character in word)

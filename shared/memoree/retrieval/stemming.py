"""The terms of a text: each word once, by its English stem, and each pair of an unspaced run once.

Terms are what is scored. Each counts once however often the text repeats it, so that nobody rises by repetition.
Stems (Snowball's English algorithm) let inflected and derived forms meet, in both directions. Words written as they
are, in their places, stand in columns of their own: phrases and identifiers are looked for there.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import Stemmer

_ENGLISH = Stemmer.Stemmer("english")
_STEMS_KEPT = 1 << 16
_WORD = re.compile(r"[^\W_]+")
_MARKS = re.compile("[\u0300-\u036f]+")


def simple_words(folded: str) -> list[str]:
    """Maximal runs of letters and digits without their diacritics, in order. Scripts that write vowels as marks are cut
    at these."""
    return _WORD.findall(without_diacritics(folded))


def is_simple(word: str) -> bool:
    """Whether the index has a folded word as one term."""
    return _WORD.fullmatch(without_diacritics(word)) is not None


@lru_cache(maxsize=_STEMS_KEPT)
def stem(word: str) -> str:
    """The term of a folded word. Words with digits and words of other scripts are their own."""
    plain = without_diacritics(word)
    return _ENGLISH.stemWord(plain) if plain.isascii() and plain.isalpha() else plain


def without_diacritics(text: str) -> str:
    """As the tokenizer drops them: `fermé` is the term `ferme`. Marks go before they could be sorted, since that takes
    quadratic time."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", _MARKS.sub("", text))))

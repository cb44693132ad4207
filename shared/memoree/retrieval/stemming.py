"""The terms of a text: each word once, by its English stem, and each pair of an unspaced run once.

Terms are what is scored. Each counts once however often the text repeats it, so that nobody rises by repetition.
Stems (Snowball's English algorithm, after a list of irregular forms) let inflected and derived forms meet, in both
directions. Words written as they
are, in their places, stand in columns of their own: phrases and identifiers are looked for there.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from importlib import resources

import Stemmer

_ENGLISH = Stemmer.Stemmer("english")
UNSTEMMED_CHARS_MAX = 3
"""`ids` is an identifier of its own, and `bus` no plural."""
_STEMS_KEPT = 1 << 16
_ASCII_WORD = re.compile(r"[^\W_]+", re.ASCII)
_FIRST_MARK, _PAST_MARKS = 0x0300, 0x1F000
MARKS_KEPT = 8
_MARK_RUNS = re.compile("[\u0300-\u036f]{9,}")
_DIACRITICS = re.compile("([a-z\u0370-\u03ff\u0435])[\u0300-\u036f]+")
"""On Latin and Greek letters and the Cyrillic `е`: `й` is another letter than `и`, `ё` is often written `е`."""


def simple_words(folded: str) -> list[str]:
    """Maximal runs of letters, digits and marks without their diacritics, in order."""
    if folded.isascii():
        return _ASCII_WORD.findall(folded)
    return _word().findall(without_diacritics(folded))


def is_simple(word: str) -> bool:
    """Whether the index has a folded word as one term."""
    return _word().fullmatch(without_diacritics(word)) is not None


@cache
def _regular() -> dict[str, str]:
    """Forms that no rule makes, to the word they are forms of."""
    text = resources.files("memoree.retrieval").joinpath("irregular_forms.txt").read_text(encoding="ascii")
    lines = (line.split() for line in text.splitlines())
    return {form: base for base, *forms in lines for form in forms}


@cache
def _word() -> re.Pattern[str]:
    marks = "".join(c for c in map(chr, range(_FIRST_MARK, _PAST_MARKS)) if unicodedata.category(c)[0] == "M")
    return re.compile(rf"(?:[^\W_]|[{re.escape(marks)}])+")


@lru_cache(maxsize=_STEMS_KEPT)
def stem(word: str) -> str:
    """The term of a folded word. Words with digits and words of other scripts are their own."""
    plain = without_diacritics(word)
    if len(plain) <= UNSTEMMED_CHARS_MAX or not (plain.isascii() and plain.isalpha()):
        return plain
    return str(_ENGLISH.stemWord(_regular().get(plain, plain)))


def without_diacritics(text: str) -> str:
    """Of folded text: `fermé` is the term `ferme`. Long runs of marks are cut before they are sorted, since that takes
    quadratic time."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFD", _MARK_RUNS.sub(lambda run: run[0][:MARKS_KEPT], text))
    return unicodedata.normalize("NFC", _DIACRITICS.sub(r"\1", decomposed))

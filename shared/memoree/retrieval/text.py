"""The form of text that the index and the query share. Stored bytes are never touched: spans point into those.

Folding is NFKC with full case folding, so that `Straße` meets `STRASSE`, full-width meets ASCII and a composed
letter meets its decomposed spelling; the tokenizer strips diacritics afterwards. Scripts written without spaces
are indexed as overlapping pairs of characters, so that a word is found inside a longer run. What is scored are terms
(`memoree.retrieval.stemming`), each once.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from memoree.retrieval.literals import literal_terms
from memoree.retrieval.stemming import simple_words, stem
from memoree.retrieval.unspaced import RUN, mixed_runs, run_pairs

FOLD_CHARS_MAX = 2048
"""Normalisation sorts a run of combining marks in quadratic time, so text is folded in slices of this size."""

GUESSABLE_CHARS_MIN = 3
GUESSABLE_CHARS_MAX = 48

_SLICE = re.compile(rf".{{1,{FOLD_CHARS_MAX - 1}}}(?:\s|\Z)|.{{1,{FOLD_CHARS_MAX}}}", re.DOTALL)


class Segments(NamedTuple):
    """Folded text, split by how it is indexed: words separated by spaces, the pairs of unspaced runs, and the terms of
    both, each once."""

    words: str
    pairs: str
    terms: str


def fold(text: str) -> str:
    """Case and compatibility folded; idempotent except for case pairs that Unicode added later."""
    if text.isascii():
        return text.lower()
    if len(text) <= FOLD_CHARS_MAX:
        return _fold_slice(text)
    return "".join(_fold_slice(part) for part in _SLICE.findall(text))


def segments(text: str) -> Segments:
    """What the index stores for a text: `設備, Caches A1, A1` becomes words `caches a1 a1`, pairs `設備 備`, and terms
    `cach a1 設備 備`; `a社製` becomes the word `a` and pairs `a社 社製 製`."""
    folded = fold(text)
    if folded.isascii() or RUN.search(folded) is None:
        return Segments(folded, "", " ".join((*word_terms(folded), *dict.fromkeys(literal_terms(folded)))))
    pairs = [pair for run in mixed_runs(folded) for pair in run_pairs(run)]
    spaced = RUN.sub(" ", folded)
    terms = (*word_terms(spaced), *dict.fromkeys(filter(RUN.search, pairs)), *dict.fromkeys(literal_terms(folded)))
    return Segments(spaced, " ".join(pairs), " ".join(terms))


def word_terms(folded: str) -> Iterable[str]:
    """The terms of folded words, each once, in order of first appearance."""
    return dict.fromkeys(map(stem, simple_words(folded)))


def guessable_words(folded: str) -> list[str]:
    """The distinct words of letters only that a misspelled one may have meant, as the tokenizer has them. An
    identifier with another digit is another identifier, not a misspelled one."""
    return [word for word in dict.fromkeys(simple_words(folded)) if is_guessable(word)]


def is_guessable(word: str) -> bool:
    return GUESSABLE_CHARS_MIN <= len(word) <= GUESSABLE_CHARS_MAX and word.isalpha() and not RUN.search(word)


def _fold_slice(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())

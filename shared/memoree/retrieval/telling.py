"""Which words tell a question apart: names, numbers, and words that are no ordinary English (decision 0013).

`billing service uses Postgres` shares three of its four words with whatever is known of the billing service; only the
fourth says what is asked. The rule looks at the query and a list of ordinary words, never at the store, so that what
else is stored cannot turn a text into an answer.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from memoree.retrieval.stemming import simple_words, stem
from memoree.retrieval.text import fold

_PIECE = re.compile(r"\S+")
_SECTION = re.compile(r"^\[(\w+)\]\n([^\[]*)", re.MULTILINE)
_SENTENCE_END = (".", "?", "!", ":", ";")


def is_common(word: str) -> bool:
    """Of a folded word: whether it is one of the thousand that every text has."""
    return stem(word) in _terms()["common"]


def is_special(word: str) -> bool:
    """Of a folded word: whether it is English that belongs to some subject, as `velvet` does and `temperature` does
    not."""
    return stem(word) in _terms()["special"]


def is_telling(word: str) -> bool:
    """Of a folded word: whether it is no English that everybody knows."""
    term = stem(word)
    return not any(term in _terms()[name] for name in ("common", "ordinary", "special"))


def names_of(text: str) -> frozenset[str]:
    """The folded words that are written as names: with a capital where no sentence begins, or inside of the word.
    A text all in capitals, or with a capital on every word, says nothing of that kind."""
    pieces = [piece for piece in _PIECE.findall(text) if any(character.isalpha() for character in piece)]
    if all(_is_capital(piece) for piece in pieces):
        pieces = []
    names: set[str] = set()
    begins = True
    for piece in pieces:
        letters = [character for character in piece if character.isalpha()]
        if any(letter.isupper() for letter in (letters[1:] if begins else letters)):
            names.update(simple_words(fold(piece)))
        begins = piece.endswith(_SENTENCE_END)
    return frozenset(names)


def _is_capital(piece: str) -> bool:
    return next(character for character in piece if character.isalpha()).isupper()


@cache
def _terms() -> dict[str, frozenset[str]]:
    """The lists of `english_terms.txt`: after a line `[name]`, its terms."""
    text = resources.files("memoree.retrieval").joinpath("english_terms.txt").read_text(encoding="ascii")
    return {name: frozenset(terms.split()) for name, terms in _SECTION.findall(text)}

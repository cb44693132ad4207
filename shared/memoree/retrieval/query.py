"""Reading a query: its units, what was dropped, and how many units a match needs (retrieval contract §1.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from memoree import limits
from memoree.errors import invalid
from memoree.retrieval.literals import IDENTIFIER, is_literal, literal_term, trimmed
from memoree.retrieval.telling import is_common, is_special, is_telling, names_of
from memoree.retrieval.text import fold
from memoree.retrieval.unspaced import split_runs, telling_parts
from memoree.retrieval.words import words

_STOPWORDS_TEXT = """
    a about an and are as at be been but by can could did do does for from had has have how i if in into is it its
    may of on or should that the their this to was were what when where which who why will with would
"""
STOPWORDS = frozenset(_STOPWORDS_TEXT.split())
"""Negations and `we`, `you`, `our` are not among them: they carry meaning."""
_POSSESSIVE = re.compile(r"['\u2019]s\W*$")
_ANALYSES_KEPT = 512


@dataclass(frozen=True, slots=True)
class Unit:
    """One thing a text can match: a word, or words that must stand together and in order."""

    words: tuple[str, ...]
    is_phrase: bool

    @property
    def display(self) -> str:
        return " ".join(self.words)


class Literal(NamedTuple):
    """A piece with punctuation inside, as it was written (folded), and its words. An identifier is one that must be
    there as a whole."""

    text: str
    words: tuple[str, ...]
    is_identifier: bool

    @property
    def term(self) -> str:
        return literal_term(self.text)


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """One text has one `Query`, compared by identity.

    The masks have one bit per unit, but for that of the literals which are identifiers: all units, the phrases, the
    common words, those that tell the question apart from others about the same things, the names.
    """

    units: tuple[Unit, ...]
    dropped_stopwords: tuple[str, ...]
    required_matches: int
    literals: tuple[Literal, ...]
    all_mask: int
    phrase_mask: int
    identifier_mask: int
    common_mask: int
    number_mask: int
    special_mask: int
    telling_mask: int
    name_mask: int

    @property
    def pointed_mask(self) -> int:
        """Units that point at something: phrases, numbers, names, and words that are not everybody's."""
        return self.phrase_mask | self.number_mask | self.name_mask | self.special_mask | self.telling_mask

    @property
    def normalized(self) -> str:
        return " ".join(f'"{unit.display}"' if unit.is_phrase else unit.display for unit in self.units)


@lru_cache(maxsize=_ANALYSES_KEPT)
def analyze(text: str) -> Query:
    """Raises `INVALID_REQUEST` over 8192 bytes, without any word, or over 48 words.

    A change between spaced and unspaced script ends a word for this count: each piece is a phrase of the index.
    """
    if (size := len(text.encode())) > limits.QUERY_BYTES_MAX:
        invalid(f"input.query: must be at most {limits.QUERY_BYTES_MAX} bytes, got {size}")
    literals: list[Literal] = []
    parsed = list(_parse(text, literals))
    if not parsed:
        invalid("input.query: must contain at least one word (letters, digits or `_`)")
    if (count := sum(len(split_runs(word)) for unit in parsed for word in unit.words)) > limits.QUERY_WORDS_MAX:
        invalid(f"input.query: must have at most {limits.QUERY_WORDS_MAX} words, got {count}")
    kept, dropped = _without_stopwords(parsed)
    units = tuple(dict.fromkeys(kept))
    names = names_of(text)
    return Query(
        units=units,
        dropped_stopwords=tuple(sorted(dropped)),
        required_matches=required_matches(len(units)),
        literals=tuple(dict.fromkeys(literals)),
        all_mask=(1 << len(units)) - 1,
        phrase_mask=_mask(unit.is_phrase for unit in units),
        identifier_mask=_mask(literal.is_identifier for literal in dict.fromkeys(literals)),
        common_mask=_mask(not unit.is_phrase and is_common(unit.words[0]) for unit in units),
        number_mask=_mask(not unit.is_phrase and any(map(str.isdigit, unit.words[0])) for unit in units),
        special_mask=_mask(not unit.is_phrase and is_special(unit.words[0]) for unit in units),
        telling_mask=_mask(unit.is_phrase or is_telling(unit.words[0]) for unit in units),
        name_mask=_mask(not unit.is_phrase and unit.words[0] in names for unit in units),
    )


def _mask(facts: Iterable[bool]) -> int:
    return sum(1 << number for number, fact in enumerate(facts) if fact)


def required_matches(unit_count: int) -> int:
    """How many units a text must match to count as an answer: all of two, two fifths of many."""
    return unit_count if unit_count <= 2 else max(2, -(-2 * unit_count // 5))


def _parse(text: str, literals: list[Literal]) -> Iterator[Unit]:
    segments = text.split('"')
    if len(segments) % 2 == 0:
        segments[-2:] = [f"{segments[-2]} {segments[-1]}"]
    for number, segment in enumerate(segments):
        if number % 2:
            if phrase := words(fold(segment)):
                yield Unit(tuple(phrase), is_phrase=True)
            continue
        for piece in fold(segment).split():
            yield from _parse_piece(piece, literals)


def _parse_piece(piece: str, literals: list[Literal]) -> Iterator[Unit]:
    found = tuple(words(piece))
    bare = trimmed(piece)
    if len(found) >= 2:
        if is_literal(piece, found):
            literals.append(Literal(bare.strip("-"), found, IDENTIFIER.search(piece) is not None))
        if tuple(bare.split("-")) == found:
            yield Unit(found, is_phrase=True)
            return
    for word in _without_possessive(piece, found):
        for part in telling_parts(word):
            yield Unit((part,), is_phrase=False)


def _without_possessive(piece: str, found: tuple[str, ...]) -> tuple[str, ...]:
    return found[:-1] if len(found) > 1 and _POSSESSIVE.search(piece) else found


def _without_stopwords(units: list[Unit]) -> tuple[list[Unit], set[str]]:
    """Function words go, unless nothing else is left."""
    kept = [unit for unit in units if unit.is_phrase or unit.words[0] not in STOPWORDS]
    if not kept:
        return units, set()
    return kept, {unit.display for unit in units} - {unit.display for unit in kept}

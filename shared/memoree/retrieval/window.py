"""Which of the claims that qualify are shown: equal ones once, no source more than its share (retrieval contract §3.1).

A claim in an open contradiction never gives way to one that says almost the same: which of the two holds is the point.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import punctuation
from typing import NamedTuple

from memoree.retrieval.query import STOPWORDS
from memoree.retrieval.text import fold
from memoree.retrieval.words import is_word_character, words

SAME_SOURCE_MAX = 2
"""Claims of one source that are taken before others get a place."""
OVERLAP_MIN = 0.8
OVERLAP_WORDS_MIN = 4
_NEGATIONS_TEXT = """
    no not never without cannot disallowed
    nicht kein keine nie ohne ne pas jamais sans nunca sin não sem non mai senza niet geen bez
    не нет без никогда لا ليس لم لن بدون
"""
_NEGATIONS = frozenset(_NEGATIONS_TEXT.split())
"""Of English, and of the languages most often met beside it."""
_PREPOSITIONS = frozenset(("as", "at", "by", "for", "from", "in", "into", "of", "on", "to", "with"))
"""Stop words that tell who does what to whom: `to Lisbon from Porto` is another way than `from Lisbon to Porto`."""
_MARK_CATEGORIES = ("Sm", "Sc", "So")
_MINUS = re.compile(r"(?<!\w)[-\u2010-\u2013](?=\.?\d)")
"""A hyphen or dash that is the sign of a number."""
_SENTENCE_END = ".!\u3002 "


@dataclass(frozen=True, slots=True)
class Answer:
    """A claim as the choice sees it: what it says, and the artifact of its first evidence or else the claim itself."""

    statement: str
    source: str
    is_disputed: bool


class Choice(NamedTuple):
    """Positions of the answers that are shown, in order, and whether different ones are left out."""

    positions: list[int]
    is_truncated: bool


def choose(answers: Sequence[Answer], places: int) -> Choice:
    """At most `places` answers out of a ranked list, in its order. Where more remain than there are places, every
    source gets `SAME_SOURCE_MAX`; places still free go to the others by rank."""
    distinct = _distinct(answers)
    if len(distinct) <= places:
        return Choice(distinct, False)
    taken: list[int] = []
    waiting: list[int] = []
    of_source: Counter[str] = Counter()
    for position in distinct:
        source = answers[position].source
        if len(taken) < places and of_source[source] < SAME_SOURCE_MAX:
            of_source[source] += 1
            taken.append(position)
        else:
            waiting.append(position)
    return Choice(sorted(taken + waiting[: places - len(taken)]), True)


def _distinct(answers: Sequence[Answer]) -> list[int]:
    """Without those that say again, or almost again, what a better one says."""
    kept: list[int] = []
    seen: set[str] = set()
    compared: list[_Wording] = []
    for position, answer in enumerate(answers):
        statement = " ".join(fold(answer.statement).split()).rstrip(_SENTENCE_END)
        if not answer.is_disputed:
            wording = _Wording.of(statement)
            if statement in seen or any(map(wording.repeats, compared)):
                continue
            compared.append(wording)
        seen.add(statement)
        kept.append(position)
    return kept


@dataclass(frozen=True, slots=True)
class _Wording:
    """What a statement says, in order. `content` are the words that carry meaning, `told` these with the prepositions
    and marks between them, and `decisive` those of which a single one makes another fact: numbers with their signs and
    units, operators, identifiers, negations."""

    content: frozenset[str]
    told: tuple[str, ...]
    decisive: tuple[str, ...]

    @classmethod
    def of(cls, folded: str) -> _Wording:
        told = tuple(token for token in _tokens(folded) if token not in STOPWORDS or token in _PREPOSITIONS)
        pieces = (piece.strip(punctuation) for piece in folded.split())
        return cls(
            frozenset(filter(_is_content, told)),
            told,
            (*filter(_is_decisive, told), *filter(_is_composed, pieces)),
        )

    def repeats(self, earlier: _Wording) -> bool:
        """Whether it says what the other says with a few words more or less. A word in place of another is another
        fact, and so are the same words in another order."""
        if self.decisive != earlier.decisive or len(self.content) < OVERLAP_WORDS_MIN:
            return False
        fewer, more = sorted((self, earlier), key=lambda wording: len(wording.told))
        return len(fewer.content) >= OVERLAP_MIN * len(more.content) and _stands_in(fewer.told, more.told)


def _tokens(folded: str) -> list[str]:
    """Words, and each mark on its own."""
    signed = _MINUS.sub("\N{MINUS SIGN}", folded)
    return "".join(character if is_word_character(character) else _separator(character) for character in signed).split()


def _separator(character: str) -> str:
    return f" {character} " if _is_mark(character) else " "


def _stands_in(fewer: Sequence[str], more: Iterable[str]) -> bool:
    """Whether all of one are among the other in the same order, others between them or not."""
    rest = iter(more)
    return all(token in rest for token in fewer)


def _is_content(token: str) -> bool:
    return token not in _PREPOSITIONS and not _is_mark(token[0])


def _is_decisive(token: str) -> bool:
    return token in _NEGATIONS or _is_number_or_identifier(token) or _is_mark(token[0])


def _is_mark(character: str) -> bool:
    """Operators, currencies, percent and pictures: `<=` is no `>=`."""
    return character in "%\u2030" or unicodedata.category(character) in _MARK_CATEGORIES


def _is_number_or_identifier(word: str) -> bool:
    """Digits of any script count: `٣٠` is as decisive as `30`."""
    return "_" in word or any(map(str.isnumeric, word))


def _is_composed(piece: str) -> bool:
    """Paths, versions and hyphenated names are more than their words, and so is `isn't`."""
    return len(words(piece)) > 1

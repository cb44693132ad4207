"""Which of the claims that qualify are shown: equal ones once, no source more than its share (retrieval contract §3.1).

A claim in an open contradiction never gives way to one that says almost the same: which of the two holds is the point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from string import punctuation
from typing import NamedTuple

from memoree.retrieval.query import STOPWORDS
from memoree.retrieval.text import fold, words

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
    """The words of a statement that carry meaning. `decisive` are those of which a single one makes another fact:
    numbers, identifiers, negations."""

    content: frozenset[str]
    decisive: frozenset[str]

    @classmethod
    def of(cls, folded: str) -> _Wording:
        content = frozenset(words(folded)) - STOPWORDS
        decisive = {word for word in content if word in _NEGATIONS or _is_number_or_identifier(word)}
        pieces = (piece.strip(punctuation) for piece in folded.split())
        return cls(content, frozenset(decisive.union(filter(_is_composed, pieces))))

    def repeats(self, earlier: _Wording) -> bool:
        """Whether it has the words of the other, or a few more or less. A word in place of another is another fact."""
        if self.decisive != earlier.decisive or len(self.content) < OVERLAP_WORDS_MIN:
            return False
        fewer, more = sorted((self.content, earlier.content), key=len)
        return fewer <= more and len(fewer) >= OVERLAP_MIN * len(more)


def _is_number_or_identifier(word: str) -> bool:
    """Digits of any script count: `٣٠` is as decisive as `30`."""
    return "_" in word or any(map(str.isnumeric, word))


def _is_composed(piece: str) -> bool:
    """Paths, versions and hyphenated names are more than their words, and so is `isn't`."""
    return len(words(piece)) > 1

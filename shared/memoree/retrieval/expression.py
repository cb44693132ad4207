"""The full-text expression of a query, and which of its units a row matches.

Every term is quoted, so that operators in a caller's text are inert. FTS5 numbers the phrases of an expression in
the order they are written; an `Expression` remembers which alternative of which unit each number belongs to. An
alternative of several units is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from memoree.retrieval.inflection import variants
from memoree.retrieval.query import Query, Unit
from memoree.retrieval.text import has_letters, run_pairs, split_runs

PHRASES_MAX = 512
"""Of one expression. The 48 words of a query, six forms each, and its literals need 336; guesses may fill the rest."""
_EXPRESSIONS_KEPT = 512
_PATTERNS_KEPT = 512


@dataclass(frozen=True, slots=True)
class Alternative:
    """Phrases that stand for a unit when a row has all of them; `similarity` is 1.0 but for guessed spellings."""

    phrases: tuple[int, ...]
    similarity: float = 1.0


class Matched(NamedTuple):
    """One bit per unit of the query, and one per literal."""

    units: int
    literals: int


@dataclass(slots=True)
class Expression:
    """`match` is FTS5 syntax, empty when nothing in the query can match; at first any alternative will do. `units` and
    `literals` are parallel to the query's; `unit_matches` are expressions of their own, one per unit."""

    match: str = ""
    phrase_count: int = 0
    units: list[tuple[Alternative, ...]] = field(default_factory=list)
    literals: list[tuple[Alternative, ...]] = field(default_factory=list)
    unit_matches: list[str] = field(default_factory=list)
    _numbers: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    _known: dict[tuple[bytes, int], Matched] = field(default_factory=dict, repr=False)

    def matched(self, columns: bytes, column_mask: int) -> Matched:
        """What a row matches within the columns. `columns` has the columns of each phrase; few patterns recur."""
        key = (columns, column_mask)
        if (known := self._known.get(key)) is None:
            if len(self._known) >= _PATTERNS_KEPT:
                self._known.clear()
            units = _mask(self.units, columns, column_mask)
            known = self._known[key] = Matched(units, _mask(self.literals, columns, column_mask))
        return known

    def similarities(self, columns: bytes, column_mask: int) -> list[float]:
        """Per unit, the similarity of the best alternative that the row has; 0.0 when it has none."""
        return [
            max((option.similarity for option in unit if _has(option, columns, column_mask)), default=0.0)
            for unit in self.units
        ]

    def add(self, spellings: Iterable[tuple[Sequence[str], float]]) -> tuple[tuple[Alternative, ...], str]:
        """Number the phrases of alternative spellings, each of words that stand together; returns the alternatives
        and their expression, empty when none of them has anything the tokenizer keeps. Spellings past `PHRASES_MAX`
        are left out."""
        alternatives: list[Alternative] = []
        matches: list[str] = []
        for spelled, similarity in spellings:
            if not (parts := _phrases(spelled)):
                continue
            match = f"({' AND '.join(parts)})" if len(parts) > 1 else parts[0]
            if (numbers := self._numbers.get(match)) is None:
                if self.phrase_count + len(parts) > PHRASES_MAX:
                    break
                numbers = self._write(match, len(parts))
            alternatives.append(Alternative(numbers, similarity))
            matches.append(match)
        return tuple(alternatives), f"({' OR '.join(matches)})" if len(matches) > 1 else "".join(matches)

    def _write(self, match: str, phrase_count: int) -> tuple[int, ...]:
        numbers = self._numbers[match] = tuple(range(self.phrase_count, self.phrase_count + phrase_count))
        self.phrase_count += phrase_count
        self.match = f"{self.match} OR {match}" if self.match else match
        return numbers


@lru_cache(maxsize=_EXPRESSIONS_KEPT)
def expression_of(query: Query) -> Expression:
    """The units with their inflected forms, then the literals: any of them makes a row a candidate."""
    expression = Expression()
    for unit in query.units:
        alternatives, match = expression.add((spelled, 1.0) for spelled in spellings(unit))
        expression.units.append(alternatives)
        expression.unit_matches.append(match)
    for literal in query.literals:
        expression.literals.append(expression.add([(literal.words, 1.0)])[0])
    return expression


def spellings(unit: Unit) -> list[tuple[str, ...]]:
    """A phrase stands for itself; a free word also for its inflected forms."""
    if unit.is_phrase:
        return [unit.words]
    return [(form,) for form in variants(unit.words[0])]


def _phrases(spelled: Sequence[str]) -> list[str]:
    """FTS5 phrases for words that stand together. Runs of unspaced script live in columns of their own, so that
    adjacency holds within a run and within the words between two runs, not from one to the other."""
    phrases: list[str] = []
    together: list[str] = []
    for part, is_run in (part for word in spelled for part in split_runs(word)):
        if is_run:
            phrases += [_quoted(together), _quoted_run(part)]
            together = []
        else:
            together.append(part)
    phrases.append(_quoted(together))
    return [phrase for phrase in dict.fromkeys(phrases) if phrase]


def _quoted(together: Sequence[str]) -> str:
    text = " ".join(together)
    return f'"{text}"' if has_letters(text) else ""


def _quoted_run(run: str) -> str:
    """A word of several characters is its pairs in a row; a single character is where a pair begins."""
    return f'"{run}" *' if len(run) == 1 else f'"{" ".join(run_pairs(run)[:-1])}"'


def _mask(options: Sequence[tuple[Alternative, ...]], columns: bytes, column_mask: int) -> int:
    mask = 0
    for number, alternatives in enumerate(options):
        for alternative in alternatives:
            if _has(alternative, columns, column_mask):
                mask |= 1 << number
                break
    return mask


def _has(alternative: Alternative, columns: bytes, column_mask: int) -> bool:
    return all(columns[phrase] & column_mask for phrase in alternative.phrases)

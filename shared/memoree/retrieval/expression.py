"""The full-text expression of a query, and which of its units a row matches.

Every term is quoted, so that operators in a caller's text are inert. FTS5 numbers the phrases of an expression in
the order they are written; an `Expression` remembers which alternative of which unit each number belongs to. An
alternative of several units is written once.

A word is looked for by its term; a phrase and an identifier as written, by words and by pairs of characters in their
places. Only terms are scored, so whatever is looked for as written is followed by its terms, which match no unit.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from memoree.retrieval.query import Literal, Query, Unit
from memoree.retrieval.stemming import is_simple, simple_words, stem, without_diacritics
from memoree.retrieval.unspaced import EXACT_CHARS_MAX, MIXED, are_most_pairs, run_pairs, split_runs
from memoree.retrieval.words import has_letters

EntityType = typing.Literal["artifact", "claim"]
Table = typing.Literal["artifact", "claim", "projection"]

PHRASES_MAX = 512
"""Of one expression. The 48 words of a query and its literals stay far below; guesses may fill the rest."""
PAIRS_MAX = 256
"""Of one run: a longer one is judged by its beginning."""
_EXPRESSIONS_KEPT = 1024
_PATTERNS_KEPT = 512


class Columns(NamedTuple):
    """Column filters of an index table: words as written, pairs of unspaced characters, terms."""

    words: str
    pairs: str
    terms: str


COLUMNS: dict[Table, Columns] = {
    "claim": Columns("{statement} : ", "{cjk} : ", "{terms} : "),
    "artifact": Columns("{title body} : ", "{title_cjk body_cjk} : ", "{title_terms body_terms} : "),
    "projection": Columns("{text} : ", "{cjk} : ", "{terms} : "),
}


@dataclass(frozen=True, slots=True)
class Alternative:
    """Phrases that stand for a unit when a row has all of them, or, of the pairs of a long run, enough of them;
    `similarity` is 1.0 but for guessed spellings."""

    phrases: tuple[int, ...]
    is_partial: bool = False
    similarity: float = 1.0


class Matched(NamedTuple):
    """One bit per unit of the query, one per literal whose words stand together, one per literal as it was written."""

    units: int
    literals: int
    written: int


@dataclass(slots=True)
class Expression:
    """`match` is FTS5 syntax, empty when nothing in the query can match; at first any alternative will do. `units` and
    `literals` are parallel to the query's; `unit_matches` are expressions of their own, one per unit."""

    columns: Columns
    units: list[tuple[Alternative, ...]]
    unit_matches: list[str]
    match: str = ""
    phrase_count: int = 0
    literals: list[tuple[Alternative, ...]] = field(default_factory=list)
    literal_matches: list[str] = field(default_factory=list)
    written: list[tuple[Alternative, ...]] = field(default_factory=list)
    _numbers: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    _known: dict[tuple[bytes, int], Matched] = field(default_factory=dict, repr=False)

    @classmethod
    def over(cls, table: Table, unit_count: int) -> Expression:
        """An expression of that many units, none of which has a spelling yet."""
        return cls(COLUMNS[table], [()] * unit_count, [""] * unit_count)

    def matched(self, columns: bytes, column_mask: int) -> Matched:
        """What a row matches within the columns. `columns` has the columns of each phrase; few patterns recur."""
        key = (columns, column_mask)
        if (known := self._known.get(key)) is None:
            if len(self._known) >= _PATTERNS_KEPT:
                self._known.clear()
            masks = (_mask(options, columns, column_mask) for options in (self.units, self.literals, self.written))
            known = self._known[key] = Matched(*masks)
        return known

    def similarities(self, columns: bytes, column_mask: int) -> list[float]:
        """Per unit, the similarity of the best alternative that the row has; 0.0 when it has none."""
        return [
            max((option.similarity for option in unit if _has(option, columns, column_mask)), default=0.0)
            for unit in self.units
        ]

    def spell(self, number: int, unit: Unit, spellings: Iterable[tuple[Sequence[str], float]]) -> None:
        """The unit of that number, in any of some spellings, each of words that stand together. Spellings past
        `PHRASES_MAX` are left out, and so are those that have nothing the tokenizer keeps."""
        alternatives: list[Alternative] = []
        matches: list[str] = []
        for spelled, similarity in spellings:
            parts, is_partial = self._parts(unit, spelled)
            if not parts or (written := self._write(parts, " OR " if is_partial else " AND ")) is None:
                continue
            match, numbers = written
            alternatives.append(Alternative(numbers, is_partial, similarity))
            matches.append(match)
        self.units[number] = tuple(alternatives)
        self.unit_matches[number] = _any(matches)

    def add_literal(self, literal: Literal) -> None:
        """Its words together, and its own term."""
        for options, parts in ((self.literals, self._as_written(literal.words)), (self.written, [self._term(literal)])):
            written = self._write(parts)
            options.append((Alternative(written[1]),) if written else ())
            if options is self.literals:
                self.literal_matches.append(written[0] if written else "")

    def _term(self, literal: Literal) -> str:
        return f'{self.columns.terms}"{literal.term}"'

    def add_scored(self, terms: Iterable[str]) -> None:
        """Terms that add to the score of a row and match no unit."""
        for term in terms:
            self._write([self.columns.terms + term])

    def _parts(self, unit: Unit, spelled: Sequence[str]) -> tuple[list[str], bool]:
        """The phrases of a spelling, and whether most of them are enough: of the pairs of a long run."""
        if unit.is_phrase or len(spelled) > 1:
            return self._as_written(spelled), False
        runs = split_runs(spelled[0])
        if len(runs) == 1 and runs[0][1] and len(spelled[0]) > EXACT_CHARS_MAX:
            pairs = list(dict.fromkeys(run_pairs(spelled[0])[:-1]))[:PAIRS_MAX]
            return [f'{self.columns.terms}"{pair}"' for pair in pairs], True
        if len(runs) == 1 and not runs[0][1] and is_simple(spelled[0]):
            return ([self.columns.terms + quoted] if (quoted := _quoted([stem(spelled[0])])) else []), False
        return self._as_written(spelled), False

    def _write(self, parts: Sequence[str], joined_by: str = " AND ") -> tuple[str, tuple[int, ...]] | None:
        """The expression of phrases and their numbers; nothing when there are no phrases, or too many already."""
        match = f"({joined_by.join(parts)})" if len(parts) > 1 else "".join(parts)
        if not match:
            return None
        if (numbers := self._numbers.get(match)) is None:
            if self.phrase_count + len(parts) > PHRASES_MAX:
                return None
            numbers = self._numbers[match] = tuple(range(self.phrase_count, self.phrase_count + len(parts)))
            self.phrase_count += len(parts)
            self.match = f"{self.match} OR {match}" if self.match else match
        return match, numbers

    def _as_written(self, spelled: Sequence[str]) -> list[str]:
        """FTS5 phrases for words that stand together. Runs of unspaced script live in columns of their own, so that
        adjacency holds within a run and within the words between two runs, not from one to the other."""
        phrases: list[str] = []
        together: list[str] = []
        for word in spelled:
            if MIXED.fullmatch(word):
                phrases += [self._words(together), self.columns.pairs + _quoted_run(word)]
                together = []
                continue
            for part, is_run in split_runs(word):
                if is_run:
                    phrases += [self._words(together), self.columns.pairs + _quoted_run(part)]
                    together = []
                else:
                    together.append(part)
        phrases.append(self._words(together))
        return [phrase for phrase in dict.fromkeys(phrases) if phrase]

    def _words(self, together: Sequence[str]) -> str:
        return self.columns.words + quoted if (quoted := _quoted(together)) else ""


@lru_cache(maxsize=_EXPRESSIONS_KEPT)
def expression_of(query: Query, table: Table) -> Expression:
    """The units, then the terms of those that are looked for as written, then the literals: any of them makes a row a
    candidate."""
    expression = Expression.over(table, len(query.units))
    for number, unit in enumerate(query.units):
        expression.spell(number, unit, [(unit.words, 1.0)])
    for unit in query.units:
        expression.add_scored(scored_terms(unit))
    for literal in query.literals:
        expression.add_literal(literal)
    return expression


def scored_terms(unit: Unit) -> Iterator[str]:
    """The quoted terms of a unit, those of its runs included. A single character is where a pair begins."""
    for part, is_run in (part for word in unit.words for part in split_runs(word)):
        if not is_run:
            yield from (f'"{stem(word)}"' for word in simple_words(part) if has_letters(word))
        elif len(part) == 1:
            yield f'"{part}" *'
        else:
            yield from (f'"{pair}"' for pair in run_pairs(part)[:-1])


def vocabulary_terms(unit: Unit) -> list[str]:
    """The terms by which the rows of a unit can be counted: as the tokenizer has them, whole ones only."""
    return [without_diacritics(term[1:-1]) for term in scored_terms(unit) if term.endswith('"')]


def _quoted(together: Sequence[str]) -> str:
    text = " ".join(together)
    return f'"{text}"' if has_letters(text) else ""


def _quoted_run(run: str) -> str:
    """A word of several characters is its pairs in a row; a single character is where a pair begins."""
    return f'"{run}" *' if len(run) == 1 else f'"{" ".join(run_pairs(run)[:-1])}"'


def _any(matches: Sequence[str]) -> str:
    return f"({' OR '.join(matches)})" if len(matches) > 1 else "".join(matches)


def _mask(options: Sequence[tuple[Alternative, ...]], columns: bytes, column_mask: int) -> int:
    mask = 0
    for number, alternatives in enumerate(options):
        for alternative in alternatives:
            if _has(alternative, columns, column_mask):
                mask |= 1 << number
                break
    return mask


def _has(alternative: Alternative, columns: bytes, column_mask: int) -> bool:
    if alternative.is_partial:
        return are_most_pairs([bool(columns[phrase] & column_mask) for phrase in alternative.phrases])
    return all(columns[phrase] & column_mask for phrase in alternative.phrases)

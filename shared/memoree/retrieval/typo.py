"""The typo channel: guessed spellings for words that no visible row has (§2.3, with identifiers kept adjacent).

It runs only when nothing matched the query exactly. A word is compared with the words of the store, never with its
rows: those words are kept in memory, words of the query that matched somewhere are taken as spelled right, and every
step is bounded. The words are those of the whole tenant: one becomes a guess only when the caller may see a row that
has it, lest words of other projects crowd out those in reach.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from itertools import islice, product
from math import ceil, floor, prod
from threading import Lock
from typing import Any

import apsw
import orjson
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from memoree.database import erasures
from memoree.database.events import birth
from memoree.retrieval.candidates import (
    ARTIFACT_COLUMNS,
    BODY_COLUMNS,
    CLAIM_COLUMNS,
    IN_TITLE,
    TITLE_COLUMNS,
    Candidate,
    Row,
    TypoMatch,
    artifact_rows,
    claim_rows,
    closeness,
)
from memoree.retrieval.expression import COLUMNS, EntityType, Expression
from memoree.retrieval.query import Query, Unit
from memoree.retrieval.scope import ARTIFACTS, CURRENT_CLAIM, VISIBLE, Reach
from memoree.retrieval.stemming import stem
from memoree.retrieval.telling import is_telling
from memoree.retrieval.text import is_guessable

SIMILARITY_ONE_WORD = Fraction("0.80")
SIMILARITY = Fraction("0.72")
"""At least this share of the longer word stays. Exact fractions: `hause` is four fifths of `house`, no less."""
SIMILARITY_ENGLISH = Fraction("0.85")
"""For a word that is English as it is: `harbor` may be `harbour`, `internal` is not `external`."""
SIMILARITY_CORRECTED = 0.85
"""From here on a word is taken for the other one misspelled, and not for a word that the store does not have."""
_OPPOSING_PREFIX = re.compile("^(?:un|in|im|ir|il|non|dis|de|en|a|re|mis|anti|pre|post)(?=.{3})")
TERMS_EXAMINED_MAX = 4096
"""Most similar terms of a word that are looked up, however few of them the caller may see."""
GUESSES_PER_WORD_MAX = 16
GUESSES_PER_PHRASE_WORD_MAX = 4
GUESSES_PER_PHRASE_MAX = 32
WORDS_GUESSED_MAX = 8
PHRASE_WORDS_GUESSED_MAX = 20
"""Of all phrases of a query together: each spelling of a phrase is looked for by joining the rows of its words."""
WORDS_MAX = 500_000
VOCABULARIES_KEPT = 8

_WORDS = "SELECT row_id, word FROM words WHERE row_id > ? ORDER BY row_id LIMIT ?"
_VISIBLE_CLAIM_TERMS = f"""
    SELECT term.key FROM json_each(:terms) AS term WHERE EXISTS (
        SELECT 1 FROM claim_fts
        CROSS JOIN claim_revisions AS r ON r.row_id = claim_fts.rowid
        CROSS JOIN claims AS e ON e.row_id = r.claim_row
        WHERE claim_fts MATCH term.value AND {VISIBLE} AND {CURRENT_CLAIM}
    ) LIMIT :count_max
"""  # noqa: S608 - constant predicates
"""Of quoted terms, the places of the first ones that stand in a row the caller may see, in their order."""


@lru_cache
def _visible_terms(reach: Reach) -> str:
    """The same, of artifacts."""
    with_term = f"""
        SELECT 1 FROM artifact_fts
        CROSS JOIN artifact_chunks AS c ON c.row_id = artifact_fts.rowid
        CROSS JOIN artifact_revisions AS r ON r.row_id = c.revision_row
        CROSS JOIN artifacts AS e ON e.row_id = r.artifact_row
        {reach.joined}
        WHERE artifact_fts MATCH"""  # noqa: S608 - constant predicates
    titled = f"OR EXISTS ({with_term} '{IN_TITLE}(' || term.value || ')' AND {reach.titled})" if reach.titled else ""
    return f"""
        SELECT term.key FROM json_each(:terms) AS term
        WHERE EXISTS ({with_term} term.value AND {reach.shown}) {titled}
        LIMIT :count_max
    """  # noqa: S608 - constant predicates


@dataclass(frozen=True, slots=True)
class Guess:
    words: tuple[str, ...]
    similarity: float


class Vocabulary:
    """Words by length. Only ever added to, in the order of the store."""

    def __init__(self) -> None:
        self._by_length: dict[int, list[str]] = {}
        self.last_row = 0
        self.count = 0

    def learn(self, words: Iterable[tuple[int, str]]) -> None:
        """In the order of their rows. Lists are replaced, not lengthened: another thread may be reading them."""
        learned: dict[int, list[str]] = {}
        for row_id, word in words:
            learned.setdefault(len(word), []).append(word)
            self.last_row = row_id
            self.count += 1
        for length, added in learned.items():
            self._by_length[length] = self._by_length.get(length, []) + added

    def guesses(self, word: str, threshold: Fraction) -> list[Guess]:
        """The most similar words, best first: similarity is 1 - edit distance / longer length."""
        found: list[Guess] = []
        for length in range(ceil(len(word) * threshold), floor(len(word) / threshold) + 1):
            longer = max(len(word), length)
            matches = process.extract(
                word,
                self._by_length.get(length, ()),
                scorer=Levenshtein.distance,
                score_cutoff=floor(longer * (1 - threshold)),
                limit=None,
            )
            found.extend(Guess((term,), 1 - distance / longer) for term, distance, _ in matches)
        found.sort(key=lambda guess: (-guess.similarity, guess.words))
        return found[:TERMS_EXAMINED_MAX]


class VocabularyCache:
    """The words of the stores read last. Only an erasure takes words away, and makes another vocabulary of it; so one
    that was read is read on from where it ended."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str, int, int], Vocabulary] = OrderedDict()

    def read(self, db: apsw.Connection, history: int) -> Vocabulary:
        """A private in-memory database has no name and is not kept."""
        key = (db.filename, birth(db), history, erasures.count(db))
        with self._lock:
            vocabulary = self._kept.setdefault(key, Vocabulary()) if db.filename else Vocabulary()
            rows: Iterable[tuple[Any, ...]] = db.execute(_WORDS, (vocabulary.last_row, WORDS_MAX - vocabulary.count))
            vocabulary.learn(rows)
            if db.filename:
                self._kept.move_to_end(key)
                while len(self._kept) > VOCABULARIES_KEPT:
                    self._kept.popitem(last=False)
        return vocabulary


_vocabularies = VocabularyCache()


@dataclass(frozen=True, slots=True)
class Speller:
    """Guesses among the words of one entity type that the caller may see."""

    db: apsw.Connection
    entity_type: EntityType
    scope: Mapping[str, Any]
    vocabulary: Vocabulary
    threshold: Fraction
    reach: Reach

    def guesses(self, unit: Unit) -> list[Guess]:
        """Guesses for a word; for a phrase, its words guessed in place, so that it stays adjacent and in order."""
        if len(unit.words) == 1:
            return self._of_word(unit.words[0], GUESSES_PER_WORD_MAX)
        places = [
            self._of_word(word, GUESSES_PER_PHRASE_WORD_MAX) if is_guessable(word) else [Guess((word,), 1.0)]
            for word in unit.words
        ]
        combined = [
            Guess(sum((guess.words for guess in choice), ()), prod(guess.similarity for guess in choice))
            for choice in islice(product(*places), GUESSES_PER_PHRASE_MAX)
        ]
        return sorted(combined, key=lambda guess: (-guess.similarity, guess.words))

    def _of_word(self, word: str, count_max: int) -> list[Guess]:
        """The filter runs before the cut."""
        threshold = self.threshold if is_telling(word) else max(self.threshold, SIMILARITY_ENGLISH)
        guesses = [guess for guess in self.vocabulary.guesses(word, threshold) if not _opposed(word, *guess.words)]
        if not guesses:
            return []
        columns = COLUMNS[self.entity_type]
        terms = orjson.dumps([f'{columns.terms}"{stem(guess.words[0])}"' for guess in guesses]).decode()
        bindings = {**self.scope, "terms": terms, "count_max": count_max}
        statement = _VISIBLE_CLAIM_TERMS if self.entity_type == "claim" else _visible_terms(self.reach)
        places = self.db.execute(statement, bindings)
        visible = [guesses[int(str(place))] for (place,) in places]
        return visible[:1] if visible and visible[0].words == (word,) else visible


def add_typo_matches(
    db: apsw.Connection,
    query: Query,
    entity_type: EntityType,
    pool: list[Candidate],
    *,
    scope: Mapping[str, Any],
    window: int,
    state: tuple[int, int],
    right: int,
    reach: Reach = ARTIFACTS,
) -> None:
    """Judge the pool's candidates of this type by guessed spellings too, and add those that only these find. Units that
    are `right` need no guess, whoever has them."""
    seen = right
    known = {candidate.revision_row: candidate for candidate in pool if candidate.entity_type == entity_type}
    for member in known.values():
        seen |= member.units
    guessable = _guessable_units(query, seen)
    if not guessable:
        return
    one_word = sum(len(unit.words) for unit in query.units) == 1
    history, _ = state
    vocabulary = _vocabularies.read(db, history)
    speller = Speller(db, entity_type, scope, vocabulary, SIMILARITY_ONE_WORD if one_word else SIMILARITY, reach)
    guesses = {number: speller.guesses(query.units[number]) for number in guessable}
    expression = _guessed_expression(query, entity_type, guesses, seen)
    if expression is None:
        return
    corrected = _corrected(guesses)
    read_rows = claim_rows if entity_type == "claim" else partial(artifact_rows, reach=reach)
    for row in read_rows(db, expression.match, scope, window):
        found = _judged(query, entity_type, expression, row, seen)
        if (candidate := known.get(row.revision_row)) is None:
            pool.append(found)
            continue
        if found.typo is not None and found.typo.units.bit_count() > candidate.units.bit_count():
            candidate.chunk_row = found.chunk_row
        candidate.typo = found.typo
    for candidate in pool:
        if candidate.entity_type == entity_type:
            candidate.corrected = corrected


def _guessable_units(query: Query, seen: int) -> list[int]:
    """Numbers of units that no candidate has and that may be misspelled."""
    unseen = [number for number in range(len(query.units)) if not seen >> number & 1][:WORDS_GUESSED_MAX]
    guessable: list[int] = []
    phrase_words = 0
    for number in unseen:
        unit = query.units[number]
        phrase_words += len(unit.words) if unit.is_phrase else 0
        is_short = not unit.is_phrase or phrase_words <= PHRASE_WORDS_GUESSED_MAX
        if is_short and any(map(is_guessable, unit.words)):
            guessable.append(number)
    return guessable


def _corrected(guesses: Mapping[int, Sequence[Guess]]) -> int:
    """The units whose likeliest spelling is an ordinary word: misspelled, such a word tells nothing either."""
    likeliest = ((number, found[0]) for number, found in guesses.items() if found)
    return sum(
        1 << number
        for number, guess in likeliest
        if guess.similarity >= SIMILARITY_CORRECTED and not any(map(is_telling, guess.words))
    )


def _guessed_expression(
    query: Query, entity_type: EntityType, guesses: Mapping[int, Sequence[Guess]], seen: int
) -> Expression | None:
    """Rows with at least one guess, judged by all units; `None` when there is nothing to guess."""
    count = len(query.units)
    exact = {number for number in range(count) if seen >> number & 1}
    options = [[(guess.words, guess.similarity) for guess in guesses.get(number, ())] for number in range(count)]
    for number in exact:
        options[number] = [(query.units[number].words, 1.0)]
    expression = Expression.over(entity_type, count)
    # A row must have a guess, and may have anything else: FTS5 reports only phrases that the expression names. Words
    # that are right come first, since there is no end of guesses.
    for number in sorted(range(count), key=lambda n: n not in exact):
        expression.spell(number, query.units[number], options[number])
    for literal in query.literals:
        expression.add_literal(literal)
    required = [expression.unit_matches[number] for number in guesses if expression.unit_matches[number]]
    if not required:
        return None
    # The optional part stands first: its phrases keep their numbers, and repeats of the required ones come after.
    expression.match = f"({expression.match}) AND ({' OR '.join(required)})"
    return expression


def _opposed(word: str, other: str) -> bool:
    """Whether one word says the reverse of the other: `subscribe` and `unsubscribe` are both spelled right."""
    return word != other and _OPPOSING_PREFIX.sub("", word) == _OPPOSING_PREFIX.sub("", other)


def _judged(query: Query, entity_type: EntityType, expression: Expression, row: Row, seen: int) -> Candidate:
    mask = CLAIM_COLUMNS if entity_type == "claim" else ARTIFACT_COLUMNS
    similarities = expression.similarities(row.columns, mask)
    units, literals, written = expression.matched(row.columns, mask)
    chunk_row = None
    if entity_type == "artifact":
        title = closeness(expression.matched(row.columns, TITLE_COLUMNS).units, query.phrase_mask)
        body = closeness(expression.matched(row.columns, BODY_COLUMNS).units, query.phrase_mask)
        chunk_row = row.fts_row if body > title else None
    return Candidate(
        entity_type=entity_type,
        revision_row=row.revision_row,
        commit_seq=row.commit_seq,
        lexical_score=0.0,
        units=units & seen,
        literals=literals,
        written_literals=written,
        chunk_row=chunk_row,
        typo=TypoMatch(units, sum(similarities) / len(similarities)),
        is_derived=bool(row.is_derived),
    )

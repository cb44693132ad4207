"""Which words of a query drive the search in a large store, and which only add to the score (decision 0015).

A row that answers has some of the rarer units: were it to lack all of them, too little would be left to answer. So only
rows with one of these are read, and common words are looked up in them alone. In a small store every unit drives.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

import apsw

from memoree.database.connection import scalar
from memoree.database.events import birth
from memoree.retrieval.expression import EntityType, Expression, vocabulary_terms
from memoree.retrieval.qualify import could_answer
from memoree.retrieval.query import Query, Unit

ROWS_DRIVEN_MAX = 8192
"""Rows that are read for units that need not drive."""
ROWS_READ_MAX = 65_536
"""Rows that the driving units may have together, the rarest unit always being one of them. Past it a row is found by
the rarest units only."""
LOOKS_MAX = 8 * ROWS_READ_MAX
"""Rows times units: with more than eight units fewer rows are read."""
STATES_KEPT = 8

_ROWS_WITH = {
    "artifact": "SELECT doc FROM artifact_vocabulary WHERE term = ?",
    "claim": "SELECT doc FROM claim_vocabulary WHERE term = ?",
}
State = tuple[int, int]
"""(history, commit_seq)"""


class RowCounts:
    """In how many rows of an index a term is, for the newest states asked about. Exact, since the choice of what
    drives decides what is found: the same state must give the same answer in every process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str, State, EntityType], dict[str, int]] = OrderedDict()

    def of(self, db: apsw.Connection, entity_type: EntityType, state: State) -> Callable[[str], int]:
        """What counts the rows of a term in a state."""
        counts = self._of_state(db, entity_type, state)

        def count(term: str) -> int:
            if (rows := counts.get(term)) is None:
                rows = counts[term] = scalar(db, _ROWS_WITH[entity_type], (term,)) or 0
            return rows

        return count

    def _of_state(self, db: apsw.Connection, entity_type: EntityType, state: State) -> dict[str, int]:
        if not db.filename:
            return {}
        key = (db.filename, birth(db), state, entity_type)
        with self._lock:
            counts = self._kept.setdefault(key, {})
            self._kept.move_to_end(key)
            while len(self._kept) > STATES_KEPT:
                self._kept.popitem(last=False)
        return counts


_row_counts = RowCounts()


def closest_matches(query: Query, expression: Expression) -> list[str]:
    """Expressions of the rows that must not be missed, however low their score: those with every unit, those with every
    phrase, those with an identifier as it was written."""
    phrases = [match for unit, match in zip(query.units, expression.unit_matches, strict=True) if unit.is_phrase]
    wanted = [expression.unit_matches, phrases] if phrases else [expression.unit_matches]
    conditions = [" AND ".join(dict.fromkeys(matches)) for matches in wanted if all(matches)]
    conditions += filter(None, [" OR ".join(filter(None, dict.fromkeys(expression.literal_matches)))])
    if len(conditions) == 1 and expression.match == " OR ".join(expression.unit_matches):
        # Plain words: all of them, in their order, number their phrases as any of them do.
        return conditions if len(query.units) > 1 else []
    return [f"({expression.match}) AND ({condition})" for condition in dict.fromkeys(conditions)]


class Driven(NamedTuple):
    """The expression of the rows to read, and which units had all of their rows read, one bit each."""

    match: str
    driving: int


def driven(db: apsw.Connection, query: Query, expression: Expression, entity_type: EntityType, state: State) -> Driven:
    """All rows that match anything where these are few. Else those with a driving unit: the rarest ones, so many that
    what is left could not answer alone."""
    count = _row_counts.of(db, entity_type, state)
    rows = [_rows_of(unit, count) for unit in query.units]
    if sum(rows) <= ROWS_DRIVEN_MAX:
        return Driven(_with_a_unit(query, expression), query.all_mask)
    driving = total = 0
    for number in sorted(range(len(rows)), key=lambda n: (rows[n], n)):
        total += rows[number]
        incomplete = could_answer(query, query.all_mask & ~driving)
        rows_max = min(ROWS_READ_MAX, LOOKS_MAX // len(rows)) if incomplete else ROWS_DRIVEN_MAX
        if driving and total > rows_max:
            break
        driving |= 1 << number
    if driving == query.all_mask:
        return Driven(_with_a_unit(query, expression), driving)
    matches = [match for number, match in enumerate(expression.unit_matches) if driving >> number & 1]
    return Driven(_with_any(expression, matches), driving)


def _rows_of(unit: Unit, count: Callable[[str], int]) -> int:
    """At most so many rows have the unit. A single character is where pairs begin, which are not counted: it drives."""
    return min(map(count, vocabulary_terms(unit)), default=0)


def _with_a_unit(query: Query, expression: Expression) -> str:
    """Rows that have only words of a phrase, scattered, match no unit. Where nothing but phrases is asked for, they
    must not fill the window; phrases have no weight, so that repeating them changes no score."""
    only_phrases = query.phrase_mask == query.all_mask
    return _with_any(expression, expression.unit_matches) if only_phrases else expression.match


def _with_any(expression: Expression, matches: Sequence[str]) -> str:
    # The optional part stands first: its phrases keep their numbers, and repeats come after.
    return f"({expression.match}) AND ({' OR '.join(dict.fromkeys(filter(None, matches)))})"

"""The one routine behind every retrieval operation: candidates, typos, fusion (retrieval contract §2.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import apsw

from memoree.retrieval.candidates import Candidate, artifact_candidates, claim_candidates, prepare
from memoree.retrieval.deadline import deadline
from memoree.retrieval.expression import Expression, expression_of
from memoree.retrieval.literals import confirm_literals
from memoree.retrieval.qualify import fused, is_exact, is_qualified
from memoree.retrieval.query import Query
from memoree.retrieval.typo import add_typo_matches

WINDOW_PER_HIT = 8
SEARCH_SECONDS_MAX = 5.0
"""Bounded words keep ordinary queries far below; a long run of common characters in a large store could go beyond."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Every candidate of a query, in relevance order."""

    query: Query
    ranked: list[Candidate]

    def unqualified(self) -> list[Candidate]:
        return [candidate for candidate in self.ranked if not is_qualified(self.query, candidate)]


def find(db: apsw.Connection, query: Query, scope: Mapping[str, Any], *, limit: int, state: tuple[int, int]) -> Pool:
    """Candidates of both entity types. `scope` comes from `scope_bindings`, `state` is (history, commit_seq).

    Raises `INVALID_REQUEST` when the query takes longer than a search may.
    """
    expression = expression_of(query)
    if not expression.match:
        return Pool(query, [])
    prepare(db)
    with deadline(db, SEARCH_SECONDS_MAX):
        pool = _candidates(db, query, expression, scope, window=WINDOW_PER_HIT * (limit + 1), state=state)
    return Pool(query, fused(query, pool))


def _candidates(
    db: apsw.Connection,
    query: Query,
    expression: Expression,
    scope: Mapping[str, Any],
    *,
    window: int,
    state: tuple[int, int],
) -> list[Candidate]:
    pool = claim_candidates(db, expression, scope, window)
    pool += artifact_candidates(db, expression, scope, window, query.phrase_mask)
    confirm_literals(db, query, pool)
    if not any(is_exact(query, candidate) for candidate in pool):
        for entity_type in ("claim", "artifact"):
            add_typo_matches(db, query, entity_type, pool, scope=scope, window=window, state=state)
    return pool

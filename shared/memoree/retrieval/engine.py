"""The one routine behind every retrieval operation: candidates, typos, fusion (retrieval contract §2.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apsw

from memoree.retrieval.candidates import Candidate, artifact_candidates, claim_candidates, prepare
from memoree.retrieval.deadline import deadline
from memoree.retrieval.expression import Expression, expression_of
from memoree.retrieval.literals import confirm_literals
from memoree.retrieval.projections import ProjectionStatus
from memoree.retrieval.qualify import fused, is_exact, is_qualified
from memoree.retrieval.query import Query
from memoree.retrieval.typo import add_typo_matches

WINDOW_PER_HIT = 8
SEARCH_SECONDS_MAX = 5.0
"""Bounded words keep ordinary queries far below; a long run of common characters in a large store could go beyond."""


Surface = Literal["claim", "artifact", "mixed"]
"""What is looked for: one entity type, or both."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Every candidate of a query, in relevance order."""

    query: Query
    ranked: list[Candidate]
    projection: ProjectionStatus

    def qualified(self) -> list[Candidate]:
        return [candidate for candidate in self.ranked if is_qualified(self.query, candidate)]

    def unqualified(self) -> list[Candidate]:
        return [candidate for candidate in self.ranked if not is_qualified(self.query, candidate)]


def find(
    db: apsw.Connection,
    query: Query,
    scope: Mapping[str, Any],
    *,
    surface: Surface,
    limit: int,
    state: tuple[int, int],
) -> Pool:
    """Candidates of a surface. `scope` comes from `scope_bindings`, `state` is (history, commit_seq).

    Raises `INVALID_REQUEST` when the query takes longer than a search may.
    """
    status = ProjectionStatus("not_applicable" if surface == "claim" else "no_candidates")
    expression = expression_of(query)
    if not expression.match:
        return Pool(query, [], status)
    prepare(db)
    with deadline(db, SEARCH_SECONDS_MAX):
        pool = _candidates(db, query, expression, scope, surface, window=WINDOW_PER_HIT * (limit + 1), state=state)
    return Pool(query, fused(query, pool), status)


def cut(query: Query, ranked: Sequence[Candidate], limit: int) -> tuple[list[Candidate], bool]:
    """The page, in relevance order, and whether more was found. A disputed claim just past the limit takes the place
    of the last hit that is neither disputed nor an exact match, and says so (conflict retention, contract §2.8)."""
    page, beyond = list(ranked[:limit]), ranked[limit:]
    replaceable = [n for n, member in enumerate(page) if not member.is_disputed and not is_exact(query, member)]
    for member in beyond:
        if not replaceable:
            break
        if member.is_disputed:
            member.is_retained = True
            page[replaceable.pop()] = member
    return page, bool(beyond)


def _candidates(
    db: apsw.Connection,
    query: Query,
    expression: Expression,
    scope: Mapping[str, Any],
    surface: Surface,
    *,
    window: int,
    state: tuple[int, int],
) -> list[Candidate]:
    pool: list[Candidate] = []
    if surface != "artifact":
        pool += claim_candidates(db, expression, scope, window)
    if surface != "claim":
        pool += artifact_candidates(db, expression, scope, window, query.phrase_mask)
    confirm_literals(db, query, pool)
    if not any(is_exact(query, candidate) for candidate in pool):
        for entity_type in ("claim", "artifact"):
            if surface in (entity_type, "mixed"):
                add_typo_matches(db, query, entity_type, pool, scope=scope, window=window, state=state)
    return pool

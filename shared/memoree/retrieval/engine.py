"""The one routine behind every retrieval operation: candidates, typos, fusion (retrieval contract §2.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import apsw

from memoree.database import derivations
from memoree.retrieval.candidates import (
    ARTIFACT_COLUMNS,
    CLAIM_COLUMNS,
    Candidate,
    Row,
    artifact_candidates,
    artifact_rows,
    claim_candidates,
    claim_rows,
    prepare,
    with_closest,
)
from memoree.retrieval.deadline import deadline
from memoree.retrieval.derivation import originals_first
from memoree.retrieval.driving import closest_matches, driven
from memoree.retrieval.expression import EntityType, Expression, expression_of
from memoree.retrieval.projections import ProjectionStatus, add_anchored, with_projections
from memoree.retrieval.qualify import facts_of, fused, is_exact, is_qualified
from memoree.retrieval.query import Query
from memoree.retrieval.scope import ARTIFACTS, Reach
from memoree.retrieval.typo import add_typo_matches

WINDOW_PER_HIT = 8
SEARCH_SECONDS_MAX = 5.0
"""Bounded words keep ordinary queries far below; a long run of common characters in a large store could go beyond."""


Surface = Literal["claim", "artifact", "mixed"]
"""What is looked for: one entity type, or both."""
_ENTITY_TYPES: Mapping[Surface, tuple[EntityType, ...]] = {
    "claim": ("claim",),
    "artifact": ("artifact",),
    "mixed": ("claim", "artifact"),
}


@dataclass(frozen=True, slots=True)
class Pool:
    """Every candidate of a query, in relevance order; those that count as answers, and those that do not."""

    query: Query
    ranked: list[Candidate]
    qualified: list[Candidate]
    unqualified: list[Candidate]
    projection: ProjectionStatus


def find(
    db: apsw.Connection,
    query: Query,
    scope: Mapping[str, Any],
    *,
    surface: Surface,
    limit: int,
    state: tuple[int, int],
    reach: Reach = ARTIFACTS,
) -> Pool:
    """Candidates of a surface. `scope` comes from `scope_bindings` or binds what `reach` names, `state` is (history,
    commit_seq).

    Raises `INVALID_REQUEST` when the query takes longer than a search may.
    """
    prepare(db)
    with deadline(db, SEARCH_SECONDS_MAX):
        window = WINDOW_PER_HIT * (limit + 1)
        pool, status = _candidates(db, query, scope, surface, window=window, state=state, reach=reach)
    ranked = _copies_behind(db, query, fused(query, pool))
    qualified: list[Candidate] = []
    unqualified: list[Candidate] = []
    for candidate in ranked:
        (qualified if is_qualified(query, candidate) else unqualified).append(candidate)
    return Pool(query, ranked, qualified, unqualified, status)


def _copies_behind(db: apsw.Connection, query: Query, ranked: list[Candidate]) -> list[Candidate]:
    """Text that quotes the store behind what it quotes, where that matches as well."""
    if not any(candidate.is_derived for candidate in ranked):
        return ranked
    quoted = {
        candidate.revision_row: derivations.quoted_rows(db, candidate.revision_row)
        for candidate in ranked
        if candidate.is_derived
    }
    return originals_first(
        ranked,
        match=lambda each: facts_of(query, each).match,
        row=lambda each: each.revision_row,
        quoted=lambda each: quoted.get(each.revision_row, frozenset()),
    )


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
    scope: Mapping[str, Any],
    surface: Surface,
    *,
    window: int,
    state: tuple[int, int],
    reach: Reach,
) -> tuple[list[Candidate], ProjectionStatus]:
    pool: list[Candidate] = []
    driving: dict[EntityType, int] = {}
    for entity_type in _ENTITY_TYPES[surface]:
        found, driving[entity_type] = _lexical_candidates(db, query, entity_type, scope, window, state, reach)
        pool += found
    if not any(is_exact(query, candidate) for candidate in pool):
        for entity_type in _ENTITY_TYPES[surface]:
            unread = query.all_mask & ~driving[entity_type]
            add_typo_matches(
                db, query, entity_type, pool, scope=scope, window=window, state=state, right=unread, reach=reach
            )
    if surface != "artifact":
        add_anchored(db, query, pool, scope)
    if surface == "claim" or not reach.has_projections:
        return pool, ProjectionStatus("not_applicable")
    return with_projections(db, query, pool, scope, window)


def _lexical_candidates(
    db: apsw.Connection,
    query: Query,
    entity_type: EntityType,
    scope: Mapping[str, Any],
    window: int,
    state: tuple[int, int],
    reach: Reach,
) -> tuple[list[Candidate], int]:
    """The candidates, and the units whose rows were all read."""
    expression = expression_of(query, entity_type)
    if not expression.match:
        return [], query.all_mask
    read_rows = claim_rows if entity_type == "claim" else partial(artifact_rows, reach=reach)
    match, driving = driven(db, query, expression, entity_type, state)
    rows = read_rows(db, match, scope, window)
    if len(rows) >= window and not _fills_the_page(query, expression, entity_type, rows):
        for closest in closest_matches(query, expression):
            rows = with_closest(rows, read_rows(db, closest, scope, window))
    if entity_type == "claim":
        return claim_candidates(expression, rows), driving
    return artifact_candidates(db, expression, rows, query.phrase_mask), driving


def _fills_the_page(query: Query, expression: Expression, entity_type: EntityType, rows: Sequence[Row]) -> bool:
    """Whether a full window has enough rows with every unit: those past its edge would stand behind all of them."""
    if query.literals:
        return False
    columns = CLAIM_COLUMNS if entity_type == "claim" else ARTIFACT_COLUMNS
    exact = sum(1 for row in rows if expression.matched(row.columns, columns).units == query.all_mask)
    return exact * WINDOW_PER_HIT >= len(rows)

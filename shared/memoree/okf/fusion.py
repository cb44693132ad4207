"""Several rankings made one (OKF contract §2.9)."""

from __future__ import annotations

from collections.abc import Sequence

RANK_CONSTANT = 60


def by_reciprocal_ranks(*rankings: Sequence[str]) -> list[tuple[str, float]]:
    """Ids with their scores, the best first; of equal ones the first ids."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, node_id in enumerate(ranking, start=1):
            scores[node_id] = scores.get(node_id, 0.0) + 1 / (RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda scored: (-scored[1], scored[0]))

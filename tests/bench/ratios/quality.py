"""How well questions are answered: the project's own corpus, and the Cranfield collection where it is at hand.

These numbers depend on no machine. Their bounds are those of `memoree eval`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from memoree.evaluation import cranfield, metrics
from memoree.evaluation.bounds import Bound
from memoree.evaluation.corpus import bundled, read_corpus
from memoree.evaluation.running import run_corpus, temporary_endpoint

from ..figures import Figure, NotMeasured, Ratio
from ..site import Site

Measure = Callable[[Site], Awaitable[Figure]]


def own_corpus() -> dict[str, float]:
    """What the bundled corpus comes to, by the names of the bounds."""
    with temporary_endpoint() as endpoint:
        judgements = run_corpus(endpoint, read_corpus(bundled()))
    return {each.bound.name: each.value for each in metrics.held(metrics.by_class(judgements))}


async def _own_corpus(site: Site, bound: Bound) -> Figure:
    found = await site.once(own_corpus)
    return Figure(found[bound.name])


async def _cranfield(site: Site) -> Figure:
    if site.cranfield is None:
        raise NotMeasured("--cranfield says where the collection is")
    figures = await asyncio.to_thread(_cranfield_figures, site.cranfield)
    absolute = {"cranfield_recall_at_100": figures.recall_at_100, "cranfield_mrr": figures.mrr}
    return Figure(figures.ndcg_at_10, absolute=absolute)


def _cranfield_figures(directory: Path) -> cranfield.Figures:
    with temporary_endpoint() as endpoint:
        return cranfield.run_cranfield(endpoint, cranfield.read_collection(directory))


def _ratio(name: str, bound: Bound, measure: Measure) -> Ratio:
    return Ratio(
        name=name,
        measured_is=bound.name,
        floor_is="-",
        must=bound.must,
        aim=bound.aim,
        measure=measure,
        higher_is_better=bound.at_least,
    )


def _name(bound: Bound) -> str:
    return "own_corpus_" + re.sub(r"\W+", "_", bound.name)


OWN_CORPUS = tuple(_ratio(_name(bound), bound, partial(_own_corpus, bound=bound)) for _, bound, _ in metrics.BOUNDS)
CRANFIELD = _ratio("cranfield_ndcg10", cranfield.NDCG_BOUND, _cranfield)

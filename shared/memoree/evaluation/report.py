"""A run as a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from memoree.evaluation import cranfield
from memoree.evaluation.bounds import Held
from memoree.evaluation.cranfield import Figures
from memoree.evaluation.judging import Judgement
from memoree.evaluation.metrics import by_class, held

DIGITS = 4


def document(judgements: Sequence[Judgement], figures: Figures | None = None) -> dict[str, Any]:
    """`bounds_held` says whether all musts are reached; `bounds` has each of them, `classes` the metrics of each class
    and of all cases, `failed` the cases that do not hold, `cranfield` the figures of that collection if it was asked.
    """
    found = by_class(judgements)
    bounds = [*held(found), *(cranfield.held(figures) if figures is not None else ())]
    made: dict[str, Any] = {
        "bounds_held": all(each.verdict != "MISSED" for each in bounds),
        "bounds": [_bound(each) for each in bounds],
        "classes": {name: _rounded(asdict(metrics)) for name, metrics in found.items()},
        "failed": [_failed(each) for each in judgements if each.faults],
    }
    return made if figures is None else {**made, "cranfield": _rounded(asdict(figures))}


def _bound(each: Held) -> dict[str, Any]:
    bound = each.bound
    members = {
        "name": bound.name,
        "value": each.value,
        "at_least": bound.at_least,
        "must": bound.must,
        "aim": bound.aim,
    }
    return {**_rounded(members), "verdict": each.verdict}


def _rounded(members: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, DIGITS) if isinstance(value, float) else value for name, value in members.items()}


def _failed(judgement: Judgement) -> dict[str, Any]:
    """What was asked, what was expected and what came back, and why it ranks as it does."""
    case = judgement.case
    return {
        "id": case.id,
        "class": case.name,
        "query": case.query,
        "faults": judgement.faults,
        "expected": {"presence": case.presence, "claims": case.claims, "artifacts": case.artifacts},
        "returned": {"presence": judgement.presence, "claims": judgement.claims, "artifacts": judgement.artifacts},
        "standings": [_rounded(asdict(each)) for each in judgement.standings],
        "why": case.why,
    }

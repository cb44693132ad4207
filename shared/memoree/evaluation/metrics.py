"""What the judgements of many cases come to, and the bounds they are held against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from memoree.evaluation.bounds import Bound, Held
from memoree.evaluation.judging import Counted, Judgement

ALL = "all"
BYTES_SHARE_HIGH = 0.95

Value = Callable[["Metrics"], float | None]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Of some cases. Shares are of all that was demanded or returned in these cases together, and `None` where there
    was nothing of the kind."""

    cases: int
    failed: int
    claim_recall: float | None
    claim_precision: float | None
    artifact_recall: float | None
    artifact_precision: float | None
    false_answers: int
    false_abstentions: int
    other_presence: int
    """Claims where only a document answers, or the reverse."""
    forbidden_returns: int
    outranked: int
    conflicts_missed: int
    first_missed: int
    answer_missed: int
    inexact_citations: int
    citations: int
    budget_overruns: int
    bytes_median: int
    bytes_p95: int


def metrics_of(judgements: Sequence[Judgement]) -> Metrics:
    """Of one judgement or more."""
    claims = [each.claim_count for each in judgements]
    artifacts = [each.artifact_count for each in judgements if each.artifact_count is not None]
    sizes = [each.size_bytes for each in judgements]
    return Metrics(
        cases=len(judgements),
        failed=_count(judgements, lambda each: bool(each.faults)),
        claim_recall=recall_of(claims),
        claim_precision=precision_of(claims),
        artifact_recall=recall_of(artifacts),
        artifact_precision=precision_of(artifacts),
        false_answers=_count(judgements, lambda each: each.is_false_answer),
        false_abstentions=_count(judgements, lambda each: each.is_false_abstention),
        other_presence=_count(judgements, lambda each: each.is_other_presence),
        forbidden_returns=sum(len(each.forbidden) for each in judgements),
        outranked=sum(len(each.outranked) for each in judgements),
        conflicts_missed=sum(len(each.case.conflicts) - each.conflicts_found for each in judgements),
        first_missed=_count(judgements, lambda each: each.is_first is False),
        answer_missed=_count(judgements, lambda each: each.is_shown is False),
        inexact_citations=sum(len(each.inexact) for each in judgements),
        citations=sum(each.citations for each in judgements),
        budget_overruns=sum(len(each.overruns) for each in judgements),
        bytes_median=percentile(sizes, 0.5),
        bytes_p95=percentile(sizes, BYTES_SHARE_HIGH),
    )


def by_class(judgements: Iterable[Judgement]) -> dict[str, Metrics]:
    """By class in the order of their first case, then over all of them."""
    members: dict[str, list[Judgement]] = {}
    for each in judgements:
        members.setdefault(each.case.name, []).append(each)
    found = {name: metrics_of(each) for name, each in members.items()}
    return found | {ALL: metrics_of([each for some in members.values() for each in some])}


def recall_of(counts: Sequence[Counted]) -> float | None:
    return _share(sum(each.found for each in counts), sum(each.demanded for each in counts))


def precision_of(counts: Sequence[Counted]) -> float | None:
    return _share(sum(each.right for each in counts), sum(each.returned for each in counts))


def percentile(values: Sequence[int], share: float) -> int:
    """The smallest value that at least this share of them does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _count(judgements: Sequence[Judgement], holds: Callable[[Judgement], bool]) -> int:
    return sum(map(holds, judgements))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _none_of(name: str, value: Value) -> tuple[str, Bound, Value]:
    return ALL, Bound(name, must=0, aim=0, at_least=False), value


def _claim_recall(class_name: str, must: float, aim: float) -> tuple[str, Bound, Value]:
    bound = Bound(f"claim recall, {class_name}", must, aim, at_least=True)
    return class_name, bound, lambda found: found.claim_recall


BOUNDS = (
    _none_of("false answers", lambda found: found.false_answers),
    _none_of("forbidden returns", lambda found: found.forbidden_returns),
    _none_of("inexact citations", lambda found: found.inexact_citations),
    _none_of("budget overruns", lambda found: found.budget_overruns),
    _claim_recall("exact_identifier", must=1.0, aim=1.0),
    _claim_recall("lexical", must=1.0, aim=1.0),
    _claim_recall("typo_abbreviation", must=0.9, aim=1.0),
    _claim_recall("paraphrase", must=0.5, aim=0.8),
)
"""What the corpus is held to, by class; docs/evaluation.md has them as a table."""


def held(found: Mapping[str, Metrics]) -> list[Held]:
    """Every bound that these cases say anything about."""
    values = [(bound, value(found[name])) for name, bound, value in BOUNDS if name in found]
    return [Held(bound, value) for bound, value in values if value is not None]

"""Every way to ask a question, and which part of each answer says "this is it" and which "this came close"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from memoree import limits
from memoree.client.request import Answer
from memoree.evaluation.asking import Asker, result_of
from memoree.evaluation.corpus import Case
from memoree.operations.registry import operation

CONTEXT_BUDGETS = (512, 2048, 12288)
"""Bytes that a context is built for."""


@dataclass(frozen=True, slots=True)
class Surface:
    """An operation, and what it is asked beside the query and the case's own input."""

    name: str
    op: str
    extra: Mapping[str, Any] = field(default_factory=dict)


RECALL = Surface("recall", "memory.recall")
SEARCH = Surface("search", "search", {"limit": limits.SEARCH_ITEMS_MAX})
SURFACES = (
    RECALL,
    Surface(
        "candidates",
        "memory.recall",
        {
            "max_candidate_claims": limits.RECALL_CANDIDATE_CLAIMS_MAX,
            "max_candidate_artifact_refs": limits.RECALL_CANDIDATE_ARTIFACT_REFS_MAX,
        },
    ),
    SEARCH,
    Surface("probe", "memory.probe"),
    Surface("retrieve", "memory.retrieve"),
    *(Surface(f"context {size}", "context.build", {"max_bytes": size}) for size in CONTEXT_BUDGETS),
)

CANDIDATE_MEMBERS = frozenset({"candidate_claims", "candidate_artifact_refs", "leads", "recovery"})
"""Members of results that hold what did not qualify."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What one surface answered to one question."""

    surface: Surface
    result: Mapping[str, Any]
    size_bytes: int

    @property
    def answers(self) -> Any:
        """The part that claims to answer."""
        if self.surface.op == "search":
            return [hit for hit in self.result["hits"] if hit["ranking"]["qualified"]]
        return {name: value for name, value in self.result.items() if name not in CANDIDATE_MEMBERS}

    @property
    def says_something(self) -> bool:
        """Whether it answers at all; a probe never does."""
        if self.surface.op == "search":
            return bool(self.answers)
        if self.surface.op == "context.build":
            return bool(self.result["manifest"])
        return bool(self.result.get("presence", "none") != "none")

    @property
    def candidates(self) -> Any:
        """The part that only came close."""
        if self.surface.op == "search":
            return [hit for hit in self.result["hits"] if not hit["ranking"]["qualified"]]
        return {name: value for name, value in self.result.items() if name in CANDIDATE_MEMBERS}


def ask_everywhere(asker: Asker, case: Case) -> dict[str, Reply]:
    """The question of a case on every surface, by its name. Raises what a surface refuses it with."""
    return {surface.name: _reply(surface, _asked(asker, case, surface)) for surface in SURFACES}


def _asked(asker: Asker, case: Case, surface: Surface) -> Answer:
    """Of a case's own input, an operation gets the members that it has."""
    declared = operation(surface.op)
    assert declared is not None
    own = {name: value for name, value in case.input.items() if name in declared.input.model_fields}
    return asker.ask(surface.op, {"query": case.query, **own, **surface.extra}, case.context)


def _reply(surface: Surface, answer: Answer) -> Reply:
    return Reply(surface, result_of(answer), len(answer.body))


def strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, member names left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from strings(member)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)

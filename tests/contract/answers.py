"""What the five retrieval operations answer, in the few words that tests about relevance and visibility need."""

from __future__ import annotations

from typing import Final

from .door import Json
from .workbench import Workbench, entity_ids

RETRIEVAL: Final = ("search", "memory.recall", "memory.probe", "memory.retrieve", "context.build")
"""Every operation that finds stored text by a query."""

PLAIN: Final[Json] = {"recency": {"enabled": False}}
"""Relevance alone decides the order."""


def recall(bench: Workbench, query: str, *, how: Json | None = None, **fields: object) -> Json:
    return bench.door.ok("memory.recall", {"query": query} | fields, **(how or {}))


def presence(bench: Workbench, query: str, *, how: Json | None = None, **fields: object) -> str:
    """What memory says it holds about the query: `claims`, `artifacts_only` or `none`."""
    answer: str = recall(bench, query, how=how, **fields)["presence"]
    return answer


def statements(bench: Workbench, query: str, *, how: Json | None = None, **fields: object) -> list[str]:
    """The statements of the claims that answer the query, in order."""
    return [claim["statement"] for claim in recall(bench, query, how=how, **fields)["claims"]]


def only_ref(bench: Workbench, query: str, **fields: object) -> Json:
    """The artifact reference of a recall that must find exactly one."""
    refs: list[Json] = recall(bench, query, **fields)["artifact_refs"]
    assert len(refs) == 1, f"{query!r} finds {len(refs)}"
    return refs[0]


def qualified(bench: Workbench, query: str, *, how: Json | None = None, **fields: object) -> list[str]:
    """The ids of those hits of a search that count as answers, in order."""
    hits = bench.search(query, how=how, **({"limit": 100} | fields))["hits"]
    return entity_ids({"hits": [hit for hit in hits if hit["ranking"]["qualified"]]})


def available(bench: Workbench) -> list[str]:
    """The retrieval operations that the service says it has."""
    rows = bench.door.ok("capabilities")["operations"]
    return [row["operation"] for row in rows if row["available"] and row["operation"] in RETRIEVAL]

"""Requests that succeed as printed, on any store and as often as one likes: a test sends each of them to a server.

Operations on an entity have none, because ids are made by the store: the answer to a put, an assert or a search is
where they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONTEXT = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
ATTEMPT_ID = "att_01KJQ6N4Z8T5V2W9X3Y7B1C0DF"

_INPUTS: Mapping[str, Any] = {
    "context.resolve": {},
    "capabilities": {},
    "instructions": {"format": "json"},
    "schema": {},
    "artifact.put": {
        "kind": "log",
        "title": "Kiln firing 12",
        "content": {"type": "text", "data": "cone 6 reached at 21:40, soaked for 15 minutes"},
        "provenance": {"pyrometer": {"serial": 7}},
        "actor": "agent/kiln",
    },
    "claim.assert": {
        "claim_type": "observation",
        "statement": "Firing 12 reached cone 6.",
        "confidence": 0.8,
        "valid_from": "2026-03-02T20:40:00Z",
    },
    "source.register": {"name": "Studio wiki", "kind": "wiki_adapter", "locator": "https://wiki.example/studio"},
    "feedback.record": {"query": "celadon recipe", "outcome": "miss", "note": "nothing about iron oxide"},
    "feedback.list": {"limit": 5},
    "feedback.export": {"limit": 5},
    "conflict.list": {"include_stale": True, "limit": 5},
    "search": {"query": "cone 6 firing", "limit": 3},
    "memory.recall": {"query": "which cone did firing 12 reach", "max_candidate_claims": 2},
    "memory.probe": {"query": "peak temperature last bake", "original_query": "how hot did firing 12 get"},
    "memory.retrieve": {"query": "how hot did firing 12 get", "reformulation": "firing 12 cone reached"},
    "context.build": {"query": "cone 6 firing", "max_bytes": 2048},
    "doctor": {},
    "verify": {},
}


def call_examples(operations: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A request envelope for each of the operations that has an example, by operation name."""
    return {
        name: _envelope(name, _INPUTS[name], mutating=operation.mutating, needs_context=operation.needs_context)
        for name, operation in operations.items()
        if name in _INPUTS
    }


def _envelope(op: str, input: Any, *, mutating: bool, needs_context: bool) -> dict[str, Any]:
    envelope: dict[str, Any] = {"v": 1, "request_id": "req_1", "op": op}
    if mutating:
        envelope["idempotency_key"] = f"example/{op}"
    if needs_context:
        envelope["context"] = CONTEXT
    return {**envelope, "input": input}


QUERY_EXAMPLES: Mapping[str, Any] = {
    "workspace_id": CONTEXT["workspace_id"],
    "project_id": CONTEXT["project_id"],
    "created_from": "2026-01-01T00:00:00Z",
    "kind": "log",
    "type": "observation",
    "relation": "supports",
    "limit": 50,
}
"""Values of the lists' parameters; together they make a request."""

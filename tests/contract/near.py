"""Stored text that comes near a question without answering it, for the tests of leads and of recovery."""

from __future__ import annotations

from typing import Final

from .door import Json
from .workbench import Workbench

QUESTION: Final = "celadon windmill orchestra glacier harpoon"
"""Of its five words only the first is ever stored, so nothing answers it."""


def locator(artifact: Json, start: int | None = None, end: int | None = None) -> Json:
    """Evidence: a span of an artifact's acknowledged revision, or all of it."""
    span = {} if start is None else {"start_byte": start, "end_byte": end}
    return {"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]} | span


def place(artifact: Json, start: int | None = None, end: int | None = None) -> str:
    """The citation of what `locator` locates."""
    whole = f"memoree://artifact/{artifact['artifact_id']}@{artifact['revision_id']}"
    return whole if start is None else f"{whole}#{start}-{end}"


def quoted(bench: Workbench, statement: str, body: str, **fields: object) -> tuple[Json, Json]:
    """A claim and the artifact that it cites as a whole, byte by byte; `fields` go into the artifact."""
    artifact = bench.put(body, **fields)
    return bench.claim(statement, evidence=[locator(artifact, 0, len(body.encode()))]), artifact


def claims_nearby(bench: Workbench, count: int) -> list[Json]:
    """The sources of so many claims that come near. No source has a word of the question."""
    sources = []
    for number in range(count):
        statement, body = f"Number {number} of the celadon series.", f"Batch {number} left the shelf."
        sources.append(quoted(bench, statement, body, title=f"Batch {number}")[1])
    return sources


def artifacts_nearby(bench: Workbench, count: int) -> list[Json]:
    return [bench.put(f"Jar {number}, celadon.", title=f"Jar {number}") for number in range(count)]


def anchor(bench: Workbench, artifact: Json, claim: Json, text: str) -> Json:
    """A projection by which an adapter says that a claim is about these words."""
    span = [{"start_byte": 0, "end_byte": 4}]
    wanted = {"kind": "retrieval_anchor", "text": text, "metadata": {"claim_id": claim["claim_id"]}}
    return bench.project(artifact, evidence_spans=span, projection_key=text, **wanted)

"""What the tools answer that are not an operation's result as it stands; those of the bundle are the contract's (OKF
contract §3.2). A description of the wire: nothing is built from these models."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class SearchResult(BaseModel):
    id: str
    type: str
    title: str
    score: float
    snippet: str
    hygiene: str | None = None
    source: str | None = None


class Expanded(BaseModel):
    id: str
    type: str
    title: str
    kind: str
    hop: int
    expandedFrom: str
    snippet: str
    hygiene: str | None = None


class Searched(BaseModel):
    query: str
    mode: str
    warning: str | None = None
    count: int
    results: list[SearchResult]
    expanded: list[Expanded] | None = None


class Got(BaseModel):
    found: bool
    id: str
    type: str | None = None
    title: str | None = None
    visibility: str | None = None
    tags: list[str] | None = None
    content: str | None = None


class Item(BaseModel):
    id: str
    type: str
    title: str
    visibility: str


class Listed(BaseModel):
    count: int
    items: list[Item]


class Written(BaseModel):
    ok: bool
    agent: str
    file: str
    entry_id: str
    quarantined: bool
    matches: list[str]
    bytesWritten: int


class OpenQuestions(BaseModel):
    blocked: list[Any]
    sessionNext: list[Any]


class Sections(BaseModel):
    active: list[Any]
    decisions: list[Any]
    plans: list[Any]
    lastSession: dict[str, Any] | None = None
    openQuestions: OpenQuestions


class HandedOff(BaseModel):
    markdown: str
    project: str | None = None
    days: int
    sections: Sections
    warnings: list[str]


class HeatTiers(BaseModel):
    hot: int
    warm: int
    cold: int


class Health(BaseModel):
    root: str | None = None
    concepts: int
    searchMode: str
    embedUrl: str | None = None
    heatTiers: HeatTiers
    version: str


class Appended(BaseModel):
    ok: bool
    actor: str
    topic: str
    phase: str
    status: str
    quarantine: bool
    matches: list[str]
    deduped: bool | None = None


class LedgerStatus(BaseModel):
    topics: list[dict[str, Any]]
    openFailures: list[dict[str, Any]]


class FleetStatus(BaseModel):
    registry: Literal[False]
    message: str
    engines: list[dict[str, Any]]
    overdue: list[str]


class FleetAssigned(BaseModel):
    ok: bool
    engine: str
    topic: str
    goal: str
    verify: str
    stopPoints: list[str]
    quarantine: bool
    matches: list[str]
    deduped: bool | None = None


class RememberedClaim(BaseModel):
    claim_id: str
    statement: str
    status: str
    citation: str


class Remembered(BaseModel):
    """`created` is false where the very same memory was there already."""

    artifact_id: str
    revision_id: str
    citation: str
    title: str
    created: bool
    claims: list[RememberedClaim]


class BrowsedItem(BaseModel):
    artifact_id: str | None = None
    claim_id: str | None = None
    kind: str
    text: str
    status: str
    citation: str
    created_at: str


class Browsed(BaseModel):
    items: list[BrowsedItem]
    next_before: int | None = None


class Packed(BaseModel):
    """Described by the operation; open, because what a pack holds depends on what was found."""

"""What is to be forgotten, as MemoryProtocol names it (§8.1)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from memoree.envelope import WireModel
from memoree.episodes.clock import READING_MAX, U16_MAX, Hlc
from memoree.episodes.ids import EpisodeId

Kind = Literal["id", "scope", "before"]


class _ById(WireModel):
    Id: EpisodeId


class _BySource(WireModel):
    BySource: str


class _ByMetadata(WireModel):
    ByMetadata: Annotated[list[str], Field(min_length=2, max_length=2)]


class _ByEpisode(WireModel):
    ByEpisode: EpisodeId


class _InScope(WireModel):
    Scope: _BySource | _ByMetadata | _ByEpisode


class _Before(WireModel):
    Before: Hlc


Target = _ById | _InScope | _Before
"""Exactly one tag; `to_wire` of each is its canonical form: ids in upper case, the node of a position told."""


def to_wire(target: Target) -> dict[str, Any]:
    return target.model_dump()


def kind_of(target: Target) -> Kind:
    """The label under which it is counted (§10.3)."""
    if isinstance(target, _ById):
        return "id"
    return "scope" if isinstance(target, _InScope) else "before"


def episode_id(target: Target) -> str | None:
    """The one episode that is meant, if it is one."""
    if isinstance(target, _ById):
        return target.Id
    if isinstance(target, _InScope) and isinstance(target.Scope, _ByEpisode):
        return target.Scope.ByEpisode
    return None


def source_prefix(target: Target) -> str | None:
    if isinstance(target, _InScope) and isinstance(target.Scope, _BySource):
        return target.Scope.BySource
    return None


def metadata_member(target: Target) -> tuple[str, str] | None:
    """Its key, and the text that it is."""
    if isinstance(target, _InScope) and isinstance(target.Scope, _ByMetadata):
        key, value = target.Scope.ByMetadata
        return key, value
    return None


def made_before(target: Target) -> int | None:
    """The stored reading below which all are meant. Positions that no reading has stand between two that are."""
    if not isinstance(target, _Before):
        return None
    position = target.Before
    return min(position.reading + int(position.counter > U16_MAX or position.node_id > 0), READING_MAX)

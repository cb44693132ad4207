"""What a caller may ask of a list: filters, the scope they are seen from, and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, Field, model_validator

from memoree import limits
from memoree.database.relations import RelationType
from memoree.envelope import AmbientContext, ContextId, Horizon, parse
from memoree.operations.shapes import FIRST_PAGE, ClaimType, EntityId, HorizonInput, Kind, Timestamp

_ARTIFACT_STATUSES: Mapping[str, Sequence[str]] = {
    "active": ("active",),
    "forgotten": ("forgotten",),
    "any": ("active", "forgotten"),
}
_CLAIM_STATUSES: Mapping[str, Sequence[str]] = {
    "current": ("active", "conflicted"),
    "active": ("active",),
    "conflicted": ("conflicted",),
    "superseded": ("superseded",),
    "retracted": ("retracted",),
    "any": ("active", "conflicted", "superseded", "retracted"),
}


class Query(HorizonInput):
    """What every list understands. `cursor` continues a walk whose other filters are the same."""

    workspace_id: ContextId | None = None
    project_id: ContextId | None = None
    task_id: ContextId | None = None
    source: EntityId | None = None
    created_from: Timestamp | None = None
    created_until: Timestamp | None = None
    limit: Annotated[int, Field(ge=1, le=2**63 - 1)] = limits.BROWSE_ITEMS_DEFAULT
    cursor: Annotated[str, Field(min_length=1)] | None = None
    min_commit_seq: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> Query:
        if self.created_from and self.created_until and self.created_from >= self.created_until:
            raise ValueError("created_from must be earlier than created_until")
        return self

    @property
    def context(self) -> AmbientContext | None:
        """The context the query names, `None` if it names none. Raises `INVALID_REQUEST` for a part of one."""
        named = {"workspace_id": self.workspace_id, "project_id": self.project_id, "task_id": self.task_id}
        given = {name: value for name, value in named.items() if value is not None}
        return parse(AmbientContext, given) if given else None

    @property
    def items_max(self) -> int:
        """How many items a page has at most: what was asked for, or the most a page may have."""
        return min(self.limit, limits.BROWSE_ITEMS_MAX)

    def filters(self) -> dict[str, Any]:
        """What the rows of a walk depend on, beside the context: a cursor is good for these only."""
        return self.model_dump(exclude={"limit", "cursor", "reason", "min_commit_seq"})

    def bindings(self) -> dict[str, Any]:
        """The filters as the list's statement takes them."""
        return {"created_from": self.created_from, "created_until": self.created_until, "source": self.source}


class ArtifactQuery(Query):
    kind: Kind | None = None
    status: Literal["active", "forgotten", "any"] = "active"

    def bindings(self) -> dict[str, Any]:
        return {**super().bindings(), "kind": self.kind, "statuses": _json(_ARTIFACT_STATUSES[self.status])}


class ClaimQuery(Query):
    """`current` claims are the active and the conflicted ones."""

    type: ClaimType | None = None
    status: Literal["current", "active", "conflicted", "superseded", "retracted", "any"] = "current"

    def bindings(self) -> dict[str, Any]:
        return {**super().bindings(), "type": self.type, "statuses": _json(_CLAIM_STATUSES[self.status])}


class RelationQuery(Query):
    relation: RelationType | None = None

    def bindings(self) -> dict[str, Any]:
        return {**super().bindings(), "relation": self.relation}


class Position(BaseModel):
    """A page to read: the query, and the commit number that the rows' own must be below."""

    query: Query
    before: int = FIRST_PAGE

    @property
    def horizon(self) -> Horizon:
        return self.query.horizon

    @property
    def min_commit_seq(self) -> int | None:
        return self.query.min_commit_seq


def _json(values: Sequence[str]) -> str:
    return orjson.dumps(values).decode()

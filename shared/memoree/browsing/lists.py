"""The three lists: the rows a scope may see, filtered before the page is cut, newest first.

A row's place is the commit that made it. It never changes and no later row comes below it, so a walk shows every row
that stays exactly once, whatever is inserted, revised or removed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, SerializeAsAny

from memoree import limits
from memoree.browsing.queries import ArtifactQuery, ClaimQuery, Position, Query, RelationQuery
from memoree.database import artifacts, claims, relations
from memoree.envelope import Horizon
from memoree.operations.call import Call
from memoree.operations.claims import records as claim_records
from memoree.operations.paging import cut
from memoree.operations.registry import Read
from memoree.operations.relations import RelationRecord
from memoree.operations.shapes import ArtifactRecord, ClaimRecord
from memoree.operations.view import View
from memoree.retrieval.scope import VISIBLE, scope_bindings

_NARROWED: Mapping[Horizon, str] = {
    "ambient": "e.workspace_id = :workspace_id AND e.project_id = :project_id",
    "workspace": "TRUE",
    "personal": "TRUE",
}
"""What the visibility predicate implies, in words the planner finds an index for. The wider horizons follow the rows'
own order: what an index finds of a whole workspace would have to be sorted for every page."""

_PAGE = """
    SELECT e.row_id, e.{key} FROM {table} AS e
    WHERE e.row_id < :before AND {visible} AND {narrowed}
        AND (:created_from IS NULL OR e.created_at >= :created_from)
        AND (:created_until IS NULL OR e.created_at < :created_until)
        AND {filters}
        AND (:source IS NULL OR EXISTS (
            SELECT 1 FROM sources AS s JOIN source_items AS i ON i.source_row = s.row_id
            JOIN artifacts AS a ON a.row_id = i.artifact_row
            WHERE s.source_id = :source AND i.state = 'live' AND {delivered}))
    ORDER BY e.row_id DESC LIMIT :limit
"""


_OF_STATUS = "e.status IN (SELECT value FROM json_each(:statuses)) AND e.erasure_row IS NULL"


def _pages(table: str, key: str, *, filters: str, delivered: str) -> Mapping[Horizon, str]:
    """The statement of a list for each horizon. `delivered` says how a row comes from the artifact `a`."""
    return {
        horizon: _PAGE.format(
            table=table, key=key, visible=VISIBLE, narrowed=narrowed, filters=filters, delivered=delivered
        )
        for horizon, narrowed in _NARROWED.items()
    }


_ARTIFACTS = _pages(
    "artifacts",
    "artifact_id",
    filters=f"(:kind IS NULL OR e.kind = :kind) AND e.kind <> '{artifacts.INBOX_KIND}' AND {_OF_STATUS}",
    delivered="a.row_id = e.row_id",
)
_CLAIMS = _pages(
    "claims",
    "claim_id",
    filters=f"(:type IS NULL OR e.claim_type = :type) AND {_OF_STATUS}",
    delivered="""a.row_id IN (
                SELECT r.artifact_row FROM claim_evidence AS c
                JOIN artifact_revisions AS r ON r.row_id = c.artifact_revision_row
                WHERE c.claim_revision_row = e.head_row)""",
)
_RELATIONS = _pages(
    "relations",
    "row_id",
    filters="(:relation IS NULL OR e.relation = :relation)",
    delivered="""(e.source_type = 'artifact' AND a.artifact_id = e.source_id
                OR e.target_type = 'artifact' AND a.artifact_id = e.target_id)""",
)


class Page(BaseModel):
    """`next_before` is where the walk goes on; `None` when nothing follows."""

    items: list[SerializeAsAny[BaseModel]]
    next_before: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """One of the lists: its path segment, what may be asked, and what its items are."""

    name: str
    query: type[Query]
    record: type[BaseModel]
    pages: Mapping[Horizon, str]
    load: Callable[[View, Any], BaseModel]

    @property
    def operation(self) -> Read:
        """The read that makes a page."""
        return Read(
            f"browse.{self.name}",
            position=0,
            input=Position,
            result=Page,
            scope="recall",
            needs_context=True,
            horizon=True,
            run=self._page,
        )

    def _page(self, view: View, call: Call[Position]) -> Page:
        position = call.input
        view.require_commit_seq(position.min_commit_seq)
        query = position.query
        bindings = {
            **scope_bindings(view.db, call.ambient, query.horizon, now=view.now, historical=True),
            **query.bindings(),
            "before": position.before,
            "limit": query.items_max + 1,
        }
        rows = view.db.execute(self.pages[query.horizon], bindings).fetchall()
        records = (self.load(view, key) for _, key in rows)
        items, more = cut(records, limit=query.items_max, bytes_max=limits.BROWSE_PAGE_BYTES_MAX)
        return Page(items=items, next_before=rows[len(items) - 1][0] if more else None)


def _artifact(view: View, artifact_id: str) -> ArtifactRecord:
    artifact = artifacts.find(view.db, artifact_id)
    assert artifact is not None, "the page's query has just seen it"
    return ArtifactRecord.of(artifact, artifacts.head_revision(view.db, artifact))


def _claim(view: View, claim_id: str) -> ClaimRecord:
    claim = claims.find(view.db, claim_id)
    assert claim is not None, "the page's query has just seen it"
    return claim_records(view, claim, [claims.head_revision(view.db, claim)])[0]


def _relation(view: View, row_id: int) -> RelationRecord:
    return RelationRecord.of(relations.by_row(view.db, row_id))


LISTINGS = (
    Listing("artifacts", ArtifactQuery, ArtifactRecord, _ARTIFACTS, _artifact),
    Listing("claims", ClaimQuery, ClaimRecord, _CLAIMS, _claim),
    Listing("relations", RelationQuery, RelationRecord, _RELATIONS, _relation),
)

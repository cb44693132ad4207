"""Channels of derived text: projections lead to their artifact, anchors to a claim. Neither ever makes an answer, and
their text is never shown as one (retrieval contract §2.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import apsw
import orjson

from memoree.database.connection import scalar
from memoree.retrieval.candidates import Candidate, ProjectionMatch
from memoree.retrieval.expression import expression_of
from memoree.retrieval.query import Query
from memoree.retrieval.scope import CURRENT_CLAIM, SHOWN_ARTIFACT, VISIBLE

PROJECTION_POLICY: Final = "cited_projection_candidate_v1"
ANCHOR_POLICY: Final = "write_time_anchor_candidate_v1"
ANCHOR_KIND: Final = "retrieval_anchor"

RARE_ANCHORS_MIN = 2
ANCHORS_PER_RARE_ONE = 50
"""A unit leads to claims while at most this share of all anchors has it."""

_PROJECTED = f"""
    FROM projection_fts
    CROSS JOIN projections AS p ON p.row_id = projection_fts.rowid
    CROSS JOIN artifact_revisions AS r ON r.row_id = p.revision_row
    CROSS JOIN artifacts AS e ON e.row_id = r.artifact_row
    WHERE projection_fts MATCH :match AND p.status = 'active' AND e.head_row = r.row_id AND {SHOWN_ARTIFACT}
"""
_MATCHES = f"""
    SELECT p.row_id, projection_fts.rank, r.row_id, r.sys_from {_PROJECTED} AND p.kind <> '{ANCHOR_KIND}'
    ORDER BY projection_fts.rank, r.sys_from DESC
"""
_ANCHORS_EXIST = f"SELECT 1 FROM projections WHERE kind = '{ANCHOR_KIND}' AND status = 'active'"  # noqa: S608
_ANCHOR_COUNT = f"""
    SELECT count(*) FROM projections AS p
    CROSS JOIN artifact_revisions AS r ON r.row_id = p.revision_row
    CROSS JOIN artifacts AS e ON e.row_id = r.artifact_row
    WHERE p.kind = '{ANCHOR_KIND}' AND p.status = 'active' AND e.head_row = r.row_id AND {SHOWN_ARTIFACT}
"""  # noqa: S608 - constant predicates
_ANCHORS = f"""
    SELECT p.metadata ->> 'claim_id', r.row_id {_PROJECTED} AND p.kind = '{ANCHOR_KIND}' LIMIT :window
"""
_CLAIMS = f"""
    SELECT r.row_id, r.sys_from, e.status = 'conflicted'
    FROM json_each(:claim_ids) AS named
    CROSS JOIN claims AS e ON e.claim_id = named.value
    CROSS JOIN claim_revisions AS r ON r.row_id = e.head_row
    WHERE {VISIBLE} AND {CURRENT_CLAIM}
"""  # noqa: S608 - constant predicates


@dataclass(frozen=True, slots=True)
class ProjectionStatus:
    """What became of the channel in one run; `reason` only for `error`."""

    state: Literal["no_candidates", "ready", "not_applicable", "error"]
    candidate_count: int = 0
    reason: str | None = None


def with_projections(
    db: apsw.Connection, query: Query, pool: Sequence[Candidate], scope: Mapping[str, Any], window: int
) -> tuple[list[Candidate], ProjectionStatus]:
    """The pool with artifacts whose projections match. When the channel fails the pool stays as it was."""
    try:
        matches = _matches(db, query, scope, window)
    except apsw.InterruptError:
        raise
    except apsw.Error as error:
        return list(pool), ProjectionStatus("error", reason=str(error))
    if not matches:
        return list(pool), ProjectionStatus("no_candidates")
    for member in pool:
        if member.entity_type == "artifact" and member.revision_row in matches:
            member.projection = matches[member.revision_row][0]
    known = {member.revision_row for member in pool if member.entity_type == "artifact"}
    led_to = [
        Candidate("artifact", revision_row, commit_seq, 0.0, 0, projection=match)
        for revision_row, (match, commit_seq) in matches.items()
        if revision_row not in known
    ]
    return [*pool, *led_to], ProjectionStatus("ready", len(matches))


def add_anchored(db: apsw.Connection, query: Query, pool: list[Candidate], scope: Mapping[str, Any]) -> None:
    """Mark what rare anchors name: claims, which join the pool when they are not in it, and the revisions that the
    anchors are of. When the channel fails the pool stays as it was."""
    try:
        claim_ids, revision_rows = _named_by_anchors(db, query, scope)
    except apsw.InterruptError:
        raise
    except apsw.Error:
        return
    known = {(member.entity_type, member.revision_row): member for member in pool}
    for revision_row in revision_rows:
        if (member := known.get(("artifact", revision_row))) is not None:
            member.is_anchored = True
    claims: Iterable[tuple[Any, ...]] = db.execute(_CLAIMS, {**scope, "claim_ids": orjson.dumps(claim_ids).decode()})
    for revision_row, commit_seq, is_disputed in claims:
        if (member := known.get(("claim", revision_row))) is None:
            member = Candidate("claim", revision_row, commit_seq, 0.0, 0, is_disputed=bool(is_disputed))
            pool.append(member)
        member.is_anchored = True


def _named_by_anchors(db: apsw.Connection, query: Query, scope: Mapping[str, Any]) -> tuple[list[str], set[int]]:
    """The claim ids and the revision rows of rare anchors."""
    if scalar(db, _ANCHORS_EXIST) is None:
        return [], set()
    rare_max = max(RARE_ANCHORS_MIN, (scalar(db, _ANCHOR_COUNT, dict(scope)) or 0) // ANCHORS_PER_RARE_ONE)
    claim_ids: dict[str, None] = {}
    revision_rows: set[int] = set()
    for match in filter(None, expression_of(query, "projection").unit_matches):
        bindings = {**scope, "match": match, "window": rare_max + 1}
        found: list[tuple[Any, ...]] = db.execute(_ANCHORS, bindings).fetchall()
        if len(found) <= rare_max:
            claim_ids |= dict.fromkeys(claim_id for claim_id, _ in found if isinstance(claim_id, str))
            revision_rows |= {revision_row for _, revision_row in found}
    return list(claim_ids), revision_rows


def _matches(
    db: apsw.Connection, query: Query, scope: Mapping[str, Any], window: int
) -> dict[int, tuple[ProjectionMatch, int]]:
    """By revision row, the best projection and the commit of the revision; best first."""
    expression = expression_of(query, "projection")
    if not (match := " OR ".join(filter(None, expression.unit_matches))):
        return {}
    best: dict[int, tuple[ProjectionMatch, int]] = {}
    rows: Iterable[tuple[Any, ...]] = db.execute(_MATCHES, {**scope, "match": match})
    for projection_row, rank, revision_row, commit_seq in rows:
        best.setdefault(revision_row, (ProjectionMatch(projection_row, max(0.0, -rank)), commit_seq))
        if len(best) == window:
            break
    return best

"""What a search may see: the visibility predicate, currentness, and pins (machine protocol §2.5, §2.6, §4.30.3)."""

from __future__ import annotations

from typing import Any, NamedTuple

import apsw
import orjson

from memoree.citation import ARTIFACT_PREFIX
from memoree.envelope import AmbientContext, Horizon

VISIBLE = """(:horizon = 'personal' OR (e.workspace_id = :workspace_id AND (:horizon = 'workspace' OR
    (e.project_id = :project_id AND (:task_id IS NULL OR e.task_id IS NULL OR e.task_id = :task_id)))))"""
"""Of an entity `e`; a request without a task sees every task of its project."""

CURRENT_CLAIM = """(:historical OR (e.head_row = r.row_id AND e.status IN ('active', 'conflicted')
    AND (e.valid_from IS NULL OR e.valid_from <= :now) AND (e.valid_until IS NULL OR :now < e.valid_until)))"""

_PINNED_ARTIFACT = "r.row_id IN (SELECT value FROM json_each(:pinned))"

SHOWN_ARTIFACT = f"""(e.status = 'active'
    AND (({VISIBLE} AND (:historical OR e.head_row = r.row_id)) OR {_PINNED_ARTIFACT}))"""

TITLED_ARTIFACT = f"(:historical AND e.status <> 'active' AND ({VISIBLE} OR {_PINNED_ARTIFACT}))"
"""History lists what was forgotten, but finds it by its title only: no hit may confirm a word of a hidden body."""


class Reach(NamedTuple):
    """The artifacts that a search is among, as SQL: a predicate of a chunk `c`, its revision `r`, its artifact `e` and
    what is `joined` to them. Those of `titled` are found by their titles only."""

    shown: str
    joined: str = ""
    titled: str | None = None
    has_projections: bool = False


ARTIFACTS = Reach(SHOWN_ARTIFACT, titled=TITLED_ARTIFACT, has_projections=True)
"""What the caller's horizon has."""

_PINNED = """
    SELECT r.row_id FROM json_each(:pins) AS pin
    JOIN artifacts AS e ON e.artifact_id = pin.value ->> 0
    JOIN artifact_revisions AS r ON r.row_id = CASE WHEN pin.value ->> 1 IS NULL THEN e.head_row
        ELSE (SELECT row_id FROM artifact_revisions WHERE revision_id = pin.value ->> 1) END
    WHERE r.artifact_row = e.row_id AND (e.status = 'active' OR :historical)
"""


def scope_bindings(
    db: apsw.Connection, context: AmbientContext, horizon: Horizon, *, now: str, historical: bool
) -> dict[str, Any]:
    """The bindings of the predicates above; `:pinned` is a JSON array of artifact revision rows."""
    bindings: dict[str, Any] = {
        "horizon": horizon,
        "workspace_id": context.workspace_id,
        "project_id": context.project_id,
        "task_id": context.task_id,
        "now": now,
        "historical": historical,
        "pinned": "[]",
    }
    if context.pins:
        bindings["pinned"] = orjson.dumps(_pinned_rows(db, context.pins, historical)).decode()
    return bindings


def _pinned_rows(db: apsw.Connection, pins: list[str], historical: bool) -> list[int]:
    parsed = [pin for pin in map(parse_pin, pins) if pin is not None]
    rows = db.execute(_PINNED, {"pins": orjson.dumps(parsed).decode(), "historical": historical})
    return sorted({int(str(row)) for (row,) in rows})


def parse_pin(pin: str) -> tuple[str, str | None] | None:
    """`ID` or `ID@REVISION`, with or without the citation prefix. What is neither pins nothing."""
    artifact_id, at, revision_id = pin.removeprefix(ARTIFACT_PREFIX).partition("@")
    if not artifact_id or (at and not revision_id):
        return None
    return artifact_id, revision_id or None

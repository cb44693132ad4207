"""Review: which nodes want a decision, and the plan that a curator decides by (OKF contract §4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from memoree.errors import invalid, shown
from memoree.okf import hygiene
from memoree.okf.dates import DAY_MS, milliseconds
from memoree.okf.hygiene import Activity, State
from memoree.okf.ids import InvalidId, id_of, matching, path_of, safe_id
from memoree.okf.indexing import edges_of
from memoree.okf.likeness import contradictions, is_believed, states
from memoree.okf.node import TIMELESS, Node
from memoree.okf.relations import SUPERSEDED_BY

Json: TypeAlias = dict[str, Any]
Action = Literal["keep", "merge", "archive", "forget"]
Bucket = Literal["stale", "conflict", "superseded", "deprecated", "orphan"]

ACTIONS: tuple[str, ...] = get_args(Action)
SUGGESTED: Mapping[Bucket, Action] = {
    "stale": "forget",
    "conflict": "merge",
    "superseded": "archive",
    "deprecated": "archive",
    "orphan": "archive",
}
PRIORITY: tuple[Action, ...] = ("merge", "archive", "forget", "keep")
"""What is suggested of a node with several reasons."""
ARCHIVE = "archive"
STALE_DAYS_DEFAULT = 60
STALE_DAYS_MAX = 36_500
PLAN_CHARS_MAX = 256 * 1024
PLAN_LINES_MAX = 200
_FIELDS_MAX = 3


# --- the report -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that wants a decision. `conflicts_with` are ids, `target` the one of them to merge it into; `None` where
    it is itself the one to believe."""

    id: str
    type: str
    title: str
    reasons: list[Bucket]
    suggestion: Action
    conflicts_with: list[str] = field(default_factory=list)
    target: str | None = None

    def to_json(self) -> Json:
        told: Json = {
            "id": self.id,
            "type": self.type,
            "title": self.title,
            "reasons": self.reasons,
            "suggestion": self.suggestion,
        }
        if self.conflicts_with:
            told |= {"conflictsWith": self.conflicts_with, "target": self.target}
        return told

    def plan_line(self) -> str:
        """The suggestion as a plan has it; others are merged into the one to believe, which is kept."""
        if self.suggestion != "merge":
            return f"{self.id}\t{self.suggestion}"
        return f"{self.id}\tkeep" if self.target is None else f"{self.id}\tmerge\t{self.target}"


def candidates(
    nodes: Iterable[Node],
    *,
    modified_ms: Mapping[str, int],
    activity: Mapping[str, Activity],
    at_ms: int,
    stale_days: int = STALE_DAYS_DEFAULT,
    pointed_at: AbstractSet[str] | None = None,
) -> list[Candidate]:
    """One row for each node that has a reason, in the order of ids. `nodes` are those of canon; `modified_ms` says by
    id when a file was last written, `activity` by id what the ledger has of it, `pointed_at` which ids others name.
    Without that it is found out from the nodes, reserved ones among them, and their texts."""
    loaded = list(nodes)
    standing = states(loaded, at_ms=at_ms, activity=dict(activity))
    by_id = {node.id: node for node in loaded}
    rivals: dict[str, list[str]] = {}
    for pair in contradictions(loaded, at_ms=at_ms):
        rivals.setdefault(pair.one, []).append(pair.other)
        rivals.setdefault(pair.other, []).append(pair.one)
    named = named_by_others(loaded) if pointed_at is None else pointed_at
    found = []
    for node in sorted(loaded, key=lambda node: node.id):
        if node.is_reserved:
            continue
        state = standing[node.id]
        reasons = _reasons(node, state, modified_ms.get(node.id), stale_days)
        conflicts_with = sorted(rivals.get(node.id, []))
        if conflicts_with:
            reasons.append("conflict")
        if node.id not in named and not is_archived(node.id):
            reasons.append("orphan")
        if reasons:
            target = _believed(node, [by_id[each] for each in conflicts_with])
            suggestion = min((SUGGESTED[reason] for reason in reasons), key=PRIORITY.index)
            found.append(Candidate(node.id, node.type, node.title, reasons, suggestion, conflicts_with, target))
    return found


def is_archived(node_id: str) -> bool:
    return node_id.startswith(f"{ARCHIVE}/")


def is_superseded(state: State) -> bool:
    """Whether a node that exists takes its place."""
    return bool(state.superseders) or state.superseder_exists


def _reasons(node: Node, state: State, modified_ms: int | None, stale_days: int) -> list[Bucket]:
    reasons: list[Bucket] = []
    if is_archived(node.id):
        return reasons
    if is_superseded(state):
        reasons.append("superseded")
    if node.is_deprecated:
        reasons.append("deprecated")
    if not reasons and node.type not in TIMELESS:
        touched = [each for each in (milliseconds(node.text("timestamp")), modified_ms) if each is not None]
        cold = hygiene.heat(state.activity, state.at_ms) == 0
        aged = hygiene.decay(node.type, state.dates.timestamp, state.at_ms) < 1
        if touched and state.at_ms - max(touched) > stale_days * DAY_MS and (aged or cold):
            reasons.append("stale")
    return reasons


def named_by_others(nodes: Sequence[Node]) -> set[str]:
    """Ids that some other node names; that one says it is replaced by them is not counted."""
    return {
        edge.other_id
        for node in nodes
        for edge in edges_of(node)
        if edge.kind != SUPERSEDED_BY and edge.other_id != node.id
    }


def _believed(node: Node, rivals: Sequence[Node]) -> str | None:
    """The one of its rivals to merge a node into; `None` where it is itself the one to believe."""
    for rival in rivals:
        if is_believed(rival, node):
            return rival.id
    return None


# --- the plan ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One decision; ids as they are written."""

    id: str
    action: Action
    target: str | None = None


def parse_plan(text: str) -> list[Line]:
    """The decisions of a plan: `id action [target]`, by tabs or spaces, with `#` before a comment. Names with spaces in
    them want tabs. Raises `INVALID_REQUEST` for the first line that is none, before anything is done."""
    if len(text) > PLAN_CHARS_MAX:
        invalid(f"a plan has at most {PLAN_CHARS_MAX} characters, this one {len(text)}")
    written = (line.strip() for line in text.removeprefix("\ufeff").splitlines())
    lines = [_line(line) for line in written if line and not line.startswith("#")]
    if len(lines) > PLAN_LINES_MAX:
        invalid(f"a plan has at most {PLAN_LINES_MAX} lines, this one {len(lines)}; apply it in parts")
    return lines


def _line(written: str) -> Line:
    fields = [each.strip() for each in written.split("\t") if each.strip()]
    if len(fields) < 2 or fields[1] not in ACTIONS:
        fields = written.split()
    if len(fields) < 2 or len(fields) > _FIELDS_MAX:
        invalid(f"invalid plan line: {_cut(written)}")
    node_id, action, target = fields[0], fields[1], fields[2] if len(fields) == _FIELDS_MAX else None
    if action not in ACTIONS:
        invalid(f'unknown action "{_cut(action)}" for {_cut(node_id)}')
    if action == "merge" and target is None:
        invalid(f"merge requires a target for {_cut(node_id)}")
    if action != "merge" and target is not None:
        invalid(f"invalid plan line: {_cut(written)}")
    return Line(node_id, action, target)  # type: ignore[arg-type]  # it is among ACTIONS


def _cut(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:120]}…"


@dataclass(frozen=True, slots=True)
class Step:
    """A decision about one node of the bundle. `skipped` says why there is nothing to do."""

    line: Line
    node_id: str
    target_id: str | None = None
    skipped: str | None = None

    def to_json(self) -> Json:
        outcome = f"skip: {self.skipped}" if self.skipped else "kept" if self.line.action == "keep" else "applied"
        return {"id": self.node_id, "action": self.line.action, "target": self.target_id, "result": outcome}


def archived_id(node_id: str) -> str:
    return f"{ARCHIVE}/{node_id}"


def steps(lines: Sequence[Line], nodes: Mapping[str, Node]) -> list[Step]:
    """What is to be done, line by line, judged before anything is done. `nodes` are all of the bundle, by id; ids mean
    those outside the archive.

    Raises `INVALID_REQUEST` for a line whose id means no node or several, for two lines about one node, for a merge of
    a node into itself or into one that this plan takes away, and where the archive has the path already."""
    live = [node_id for node_id, node in nodes.items() if not is_archived(node_id) and not node.is_reserved]
    found = [_step(line, live, nodes) for line in lines]
    seen: set[str] = set()
    for step in found:
        if step.node_id in seen:
            invalid(f"the plan decides twice about {path_of(step.node_id)}")
        seen.add(step.node_id)
    leaving = {step.node_id: step.line.action for step in found if step.line.action in ("archive", "forget", "merge")}
    for step in found:
        if step.target_id in leaving:
            told = leaving[step.target_id]
            invalid(
                f"{_cut(step.line.id)}: cannot be merged into {path_of(step.target_id)}, which the plan says to {told}"
            )
    return found


def _step(line: Line, live: Sequence[str], nodes: Mapping[str, Node]) -> Step:
    wanted = _safe(line.id)
    candidates = matching(wanted, live)
    if not candidates and line.action == "archive":
        archived = matching(wanted, [each.removeprefix(f"{ARCHIVE}/") for each in nodes if is_archived(each)])
        if archived:
            return Step(line, _only(line.id, archived), skipped="already archived")
    node_id = _only(line.id, candidates)
    node = nodes[node_id]
    if line.action == "archive" and archived_id(node_id) in nodes:
        invalid(f"{path_of(archived_id(node_id))} exists already; {path_of(node_id)} cannot be archived")
    if line.action == "forget" and node.is_deprecated:
        return Step(line, node_id, skipped="already deprecated")
    if line.action != "merge":
        return Step(line, node_id)
    assert line.target is not None
    target_id = _only(line.target, matching(_safe(line.target), live))
    if target_id == node_id:
        invalid(f"{path_of(node_id)} cannot be merged into itself")
    if nodes[target_id].is_secret and not node.is_secret:
        invalid(f"{path_of(node_id)} cannot be merged into what must not be named")
    merged = target_id in {id_of(path) for path in node.superseded_by}
    return Step(line, node_id, target_id, skipped="already merged" if merged else None)


def _safe(given: str) -> str:
    try:
        return safe_id(given)
    except InvalidId as error:
        invalid(f"{shown(given)}: {error}")


def _only(given: str, candidates: Sequence[str]) -> str:
    if not candidates:
        invalid(f"{shown(given)}: there is no such node outside the archive")
    if len(candidates) > 1:
        invalid(f"{shown(given)} may be {', '.join(map(path_of, candidates[:10]))}; write more of its path")
    return candidates[0]

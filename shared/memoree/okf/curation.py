"""Curation of a bundle that is a directory: review, forget, consolidate, and its ledger (OKF contract §4, §3.2)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import orjson

from memoree.errors import Code, MemoreeError, invalid, not_found, shown
from memoree.okf import bundle, bundle_edits, consolidation, editing, ledger, review
from memoree.okf.bundle import EVERYTHING, LEDGER_PATH, File, Tiers
from memoree.okf.bundle_edits import FileChange
from memoree.okf.consolidation import REPORT_PATH, Map
from memoree.okf.dialect import Dialect
from memoree.okf.hygiene import Activity
from memoree.okf.ids import SUFFIX, InvalidId, matching, path_of, safe_id
from memoree.okf.ledger import LEDGER_BYTES_MAX, Event
from memoree.okf.node import Node, parse
from memoree.okf.review import Candidate, Step

Loaded: TypeAlias = dict[str, tuple[Node, File]]

LIVING = Tiers(secret=True)
"""What a review is about: the whole of canon, secrets too."""


def candidates(root: Path, *, at_ms: int, stale_days: int, secret: bool = True) -> list[Candidate]:
    """The nodes that want a decision (§4.5)."""
    loaded = _loaded(root, LIVING)
    nodes = [node for node, _ in loaded.values() if secret or not node.is_secret]
    return review.candidates(
        nodes,
        modified_ms={node_id: file.modified_ms for node_id, (_, file) in loaded.items()},
        activity=activities(root),
        at_ms=at_ms,
        stale_days=stale_days,
    )


def apply_plan(root: Path, plan: str, *, at_ms: int) -> list[Step]:
    """Do what a plan says, all of it or nothing. Raises `INVALID_REQUEST` for a line that cannot be done, and what
    `bundle_edits.apply` raises."""
    loaded = _loaded(root, LIVING)
    steps = review.steps(review.parse_plan(plan), {node_id: node for node_id, (node, _) in loaded.items()})
    changes = [
        _change(step, loaded[step.node_id][1], at_ms)
        for step in steps
        if step.skipped is None and step.line.action != "keep"
    ]
    bundle_edits.apply(root, changes)
    return steps


def forget(root: Path, given: str, *, at_ms: int, secret: bool = False) -> str:
    """Deprecate one node in place (§4.6); its path. A secret one is not there unless asked for. Raises `NOT_FOUND`,
    `INVALID_REQUEST` for an id that is none or may mean several nodes, and for a file without front matter."""
    try:
        wanted = safe_id(given)
    except InvalidId as error:
        invalid(f"{shown(given)}: {error}")
    loaded = _loaded(root, LIVING)
    ids = [node_id for node_id, (node, _) in loaded.items() if not node.is_reserved and (secret or not node.is_secret)]
    candidates_ = matching(wanted, ids)
    if len(candidates_) > 1:
        invalid(f"{shown(given)} may be {', '.join(map(path_of, candidates_[:10]))}; write more of its path")
    if not candidates_:
        not_found("node", given)
    file = loaded[candidates_[0]][1]
    bundle_edits.apply(root, [FileChange(file.path, file.data, editing.deprecated(file.data, at_ms))])
    return path_of(file.id)


def consolidated(root: Path, *, at_ms: int, write: bool = False) -> Map:
    """The map of raw notes (§4.3); only with `write` is anything written, and then a report that no walk finds."""
    found = consolidation.consolidated((node for node, _ in _loaded(root, EVERYTHING).values()), at_ms=at_ms)
    if write:
        bundle_edits.write_new(root, REPORT_PATH, consolidation.report(found, at_ms=at_ms).encode())
    return found


# --- the ledger -------------------------------------------------------------------------------------------------------


def activities(root: Path) -> dict[str, Activity]:
    return ledger.activities(read_ledger(root))


def read_ledger(root: Path) -> list[Event]:
    """Its events; none where there is no ledger, or one that is a link out of the bundle."""
    bundle.require_bundle(root)
    path = root / LEDGER_PATH
    if not path.is_file() or not path.resolve().is_relative_to(root.resolve()):
        return []
    with path.open("rb") as file:
        return ledger.read(file.read(LEDGER_BYTES_MAX + 1))[0]


def visible_ledger(root: Path) -> list[Event]:
    """Without what tells of secret nodes (SEC-7)."""
    secret = {node_id for node_id, (node, _) in _loaded(root, LIVING).items() if node.is_secret}
    return list(ledger.visible(read_ledger(root), secret))


def append(root: Path, event: Event) -> tuple[Event, bool]:
    """Append an event, unless one of its `ref` is there: the event that is in the ledger then, and whether it was there
    before. Writers take turns. Raises `INVALID_REQUEST` for a ledger outside the bundle, `CONTENT_TOO_LARGE` for a full
    one."""
    bundle.require_bundle(root)
    path = root / LEDGER_PATH
    if not path.parent.resolve().is_relative_to(root.resolve()) or path.is_symlink():
        invalid(f"{LEDGER_PATH} is a link or lies outside the bundle; it is left alone")
    path.parent.mkdir(exist_ok=True)
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        data = file.read(LEDGER_BYTES_MAX + 1)
        line = orjson.dumps(event.to_json()) + b"\n"
        if len(data) + len(line) > LEDGER_BYTES_MAX:
            raise MemoreeError(Code.CONTENT_TOO_LARGE, f"{LEDGER_PATH} is full at {LEDGER_BYTES_MAX} bytes")
        known = _of_ref(ledger.read(data)[0], event.ref)
        if known is not None:
            return known, True
        torn = b"\n" if data and not data.endswith(b"\n") else b""
        file.write(torn + line)
        file.flush()
        os.fsync(file.fileno())
    return event, False


def _of_ref(events: Sequence[Event], ref: str | None) -> Event | None:
    return None if ref is None else next((event for event in events if event.ref == ref), None)


def _loaded(root: Path, tiers: Tiers) -> Loaded:
    return {file.id: (parse(file.id, file.data, Dialect.SERVICE), file) for file in bundle.files(root, tiers)}


def _change(step: Step, file: File, at_ms: int) -> FileChange:
    if step.line.action == "archive":
        return FileChange(file.path, file.data, moved_to=f"{review.archived_id(step.node_id)}{SUFFIX}")
    if step.line.action == "forget":
        return FileChange(file.path, file.data, editing.deprecated(file.data, at_ms))
    assert step.target_id is not None, "a merge has a target"
    return FileChange(file.path, file.data, editing.superseded_by(file.data, step.target_id))

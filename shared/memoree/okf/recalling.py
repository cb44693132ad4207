"""Recall over bundles of files: one project's, and a person's beside it (OKF contract §2.1, §2.10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.okf import files, ledger, ranking, snippets
from memoree.okf.bundle import EVERYTHING, LEDGER_PATH
from memoree.okf.dialect import Dialect
from memoree.okf.hygiene import Activity
from memoree.okf.node import Node
from memoree.okf.ranking import Corpus, Neighbour, Query

Mode = Literal["bm25", "semantic", "hybrid", "auto"]
MODES: tuple[str, ...] = get_args(Mode)
BM25 = "bm25"
PROJECT, PERSONAL = "project", "global"
NO_INDEX = "there is no index of embeddings: ranked by words (bm25)"
TYPE_WIDTH, KIND_WIDTH = 10, 11
SCORE_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Result:
    """`source` tells which bundle it is from, where there are two."""

    id: str
    type: str
    title: str
    score: float
    label: str
    snippet: str
    source: str | None = None

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"id": self.id, "type": self.type, "title": self.title}
        told |= {"score": round(self.score, SCORE_DIGITS), "snippet": self.snippet, "hygiene": self.label or None}
        return told if self.source is None else {**told, "source": self.source}

    def render(self) -> str:
        where = f"{PERSONAL}:" if self.source == PERSONAL else ""
        label = f"  {self.label}" if self.label else ""
        return f"{self.score:.3f}  {self.type:<{TYPE_WIDTH}} {where}{self.id} — {self.title}{label}"


@dataclass(frozen=True, slots=True)
class Expanded:
    """One step from a result; `source` as there."""

    id: str
    type: str
    title: str
    kind: str
    expanded_from: str
    label: str
    hygiene: str
    snippet: str
    source: str | None = None

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"id": self.id, "type": self.type, "title": self.title, "kind": self.kind, "hop": 1}
        told |= {"expandedFrom": self.expanded_from, "snippet": self.snippet}
        told |= {"hygiene": self.hygiene} if self.hygiene else {}
        return told if self.source is None else {**told, "source": self.source}

    def render(self) -> str:
        where = f"{PERSONAL}:" if self.source == PERSONAL else ""
        label = " ".join(filter(None, (self.label, self.hygiene)))
        return f"  +hop  {self.type:<{TYPE_WIDTH}} {self.kind:<{KIND_WIDTH}} {where}{self.id} — {self.title}  {label}"


@dataclass(frozen=True, slots=True)
class Recalled:
    """`mode` is the one that was used, `warning` says why it is not the one asked for, `warnings` what else is to be
    known."""

    query: str
    k: int
    mode: str
    warning: str | None
    results: Sequence[Result]
    expanded: Sequence[Expanded] | None
    warnings: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """The payload of a search (§3.2)."""
        told: dict[str, Any] = {"query": self.query, "mode": self.mode, "warning": self.warning}
        told |= {"count": len(self.results), "results": [result.to_json() for result in self.results]}
        return told if self.expanded is None else {**told, "expanded": [each.to_json() for each in self.expanded]}

    def render(self) -> list[str]:
        lines = [f'# "{self.query}" → top-{self.k} [{self.mode}, score={self.mode}]']
        lines += [result.render() for result in self.results] or ["(nothing found)"]
        return lines + [each.render() for each in self.expanded or ()]


def recall(root: Path, dialect: Dialect, query: Query, mode: str, *, personal: Path | None = None) -> Recalled:
    """Raises `CONFIG_ERROR` for a root that is no directory and for a mode that needs embeddings, which files have none
    of, and `INVALID_REQUEST` for no mode at all."""
    if mode not in MODES:
        invalid(f"mode: one of {', '.join(MODES)}, not {shown(mode)}")
    if query.k < 1 or query.k > ranking.K_MAX:
        invalid(f"k: 1 to {ranking.K_MAX}")
    if mode == "semantic":
        raise MemoreeError(Code.CONFIG_ERROR, "there is no index of embeddings, which this mode needs")
    warning = None if mode == BM25 else NO_INDEX
    ours = _Side(root, dialect, query)
    if personal is None:
        results, expanded = ours.results(None, 1.0), ours.expanded(None)
        return Recalled(query.text, query.k, BM25, warning, results, expanded, ours.warnings)
    theirs = _Side(personal, dialect, query)
    hidden = theirs.leave_out(ours.ids)
    warnings = [
        *ours.warnings,
        *theirs.warnings,
        *(f"{PERSONAL}:{each} stands behind {each} of the project" for each in hidden),
    ]
    if not theirs.answer.hits:
        return Recalled(query.text, query.k, BM25, warning, ours.results(None, 1.0), ours.expanded(None), warnings)
    merged = [*ours.results(PROJECT, ours.best), *theirs.results(PERSONAL, theirs.best)]
    merged = sorted(merged, key=lambda result: -result.score)[: query.k]
    kept = {(result.source, result.id) for result in merged}
    expanded = None
    if query.expand_budget is not None:
        around = [*(ours.expanded(PROJECT) or ()), *(theirs.expanded(PERSONAL) or ())]
        expanded = [each for each in around if (each.source, each.expanded_from) in kept][: query.expand_budget]
    return Recalled(query.text, query.k, BM25, warning, merged, expanded, warnings)


class _Side:
    """One bundle and what it answers."""

    def __init__(self, root: Path, dialect: Dialect, query: Query) -> None:
        # The reference program lets hidden nodes replace others; here, what is hidden is not even loaded.
        self._query, self.warnings = query, list[str]()
        self._db, self._nodes = files.load(root, dialect, EVERYTHING if dialect is Dialect.COMPAT else query.tiers)
        activity = self._read_ledger(root)
        self.answer = Corpus(self._db, files.BUNDLE, activity.get, query).search()

    def _read_ledger(self, root: Path) -> dict[str, Activity]:
        try:
            return ledger.activities(ledger.read(_ledger(root))[0])
        except MemoreeError as error:
            self.warnings.append(f"the ledger is not counted: {error.message}")
            return {}

    @property
    def ids(self) -> set[str]:
        """Of nodes that the query may see."""
        hidden = self._query.tiers.hidden_folders
        return {
            node.id
            for node in self._nodes.values()
            if not node.is_reserved
            and (self._query.tiers.secret or not node.is_secret)
            and ("/" not in node.id or node.id.partition("/")[0] not in hidden)
        }

    @property
    def best(self) -> float:
        """The highest score, 1.0 where there is none."""
        return max((hit.score for hit in self.answer.hits), default=1.0)

    def leave_out(self, ids: set[str]) -> list[str]:
        """Drop hits and neighbours with these ids; returns the hits that were dropped."""
        dropped = [hit.row.node_id for hit in self.answer.hits if hit.row.node_id in ids]
        hits = [hit for hit in self.answer.hits if hit.row.node_id not in ids]
        expanded = self.answer.expanded
        if expanded is not None:
            expanded = [each for each in expanded if each.row.node_id not in ids and each.expanded_from not in ids]
        self.answer = replace(self.answer, hits=hits, expanded=expanded)
        return dropped

    def results(self, source: str | None, unit: float) -> list[Result]:
        """With scores as parts of `unit`."""
        return [
            Result(
                hit.row.node_id,
                hit.row.type,
                hit.row.title,
                hit.score / unit,
                hit.label,
                self._snippet(self._nodes[hit.row.row_id]),
                source,
            )
            for hit in self.answer.hits
        ]

    def expanded(self, source: str | None) -> list[Expanded] | None:
        neighbours = self.answer.expanded
        return None if neighbours is None else [self._expanded(each, source) for each in neighbours]

    def _expanded(self, each: Neighbour, source: str | None) -> Expanded:
        row = each.row
        snippet = self._snippet(self._nodes[row.row_id])
        return Expanded(
            row.node_id, row.type, row.title, each.kind, each.expanded_from, each.label, each.hygiene, snippet, source
        )

    def _snippet(self, node: Node) -> str:
        return snippets.snippet(node.body, self.answer.tokens)


def _ledger(root: Path) -> bytes:
    """Empty where there is none, or one outside the bundle."""
    path = root / LEDGER_PATH
    try:
        if not path.resolve().is_relative_to(root.resolve()):
            return b""
        with path.open("rb") as file:
            return file.read(ledger.LEDGER_BYTES_MAX + 1)
    except (OSError, RuntimeError):
        return b""

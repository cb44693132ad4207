"""What is wrong with a bundle: the rules V1 to V19 (OKF contract §2.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Literal

from memoree.okf import bundle, dates
from memoree.okf.bundle import CANON, Findings, Tiers
from memoree.okf.dialect import Dialect
from memoree.okf.discipline import STATUSES
from memoree.okf.ids import id_of
from memoree.okf.node import SECRET, VISIBILITIES, Node, parse
from memoree.okf.relations import SUPERSEDES, kind_of, resolved, targets

Severity = Literal["error", "warning", "info"]
Exists = Callable[[str], bool]
"""Whether a bundle has a file of this path."""

TASK, IDEA = "task", "idea"
_NEEDS_REASON = {
    TASK: ("blocked", "blocked_reason", "V8", "Task"),
    IDEA: ("rejected", "rejected_reason", "V11", "Idea"),
}


class Section(StrEnum):
    """What findings are listed under, in the order of the list."""

    CONFORMANCE = "Conformance"
    RELATIONS = "Broken relations"
    KINDS = "Unknown relation kinds"
    DISCIPLINE = "Work discipline"
    KNOWLEDGE = "Knowledge cycle"
    CHAINS = "Supersede chains"
    SUPERSESSION = "Supersede issues"
    VISIBILITY = "Visibility"
    DATES = "Dates"
    SPELLING = "Supersede spelling"
    FRONT_MATTER = "Front matter"
    LINKS = "Symbolic links"


SHOWN_BESIDE_ERRORS = (Section.RELATIONS, Section.KINDS, Section.SUPERSESSION)
"""All that the reference program shows of a bundle that does not conform."""


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    severity: Severity
    section: Section
    text: str

    def to_json(self) -> dict[str, str]:
        return {"rule": self.rule, "severity": self.severity, "section": self.section.value, "text": self.text}


@dataclass(frozen=True, slots=True)
class Report:
    """`concepts` are the nodes that were looked at; `findings` stand in the order of the rules."""

    dialect: Dialect
    concepts: int
    findings: Sequence[Finding] = field(default_factory=tuple)

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def is_conformant(self) -> bool:
        return not self.errors

    def of(self, section: Section) -> list[Finding]:
        return [finding for finding in self.findings if finding.section is section]

    def render(self) -> list[str]:
        """The lines for people. The reference program keeps most warnings to itself while there are errors."""
        if self.is_conformant:
            shown = f"✅ OKF v0.1 conformant: {self.concepts} concepts, all have a non-empty type."
            return [shown, *self._sections(Section)]
        sections: Iterable[Section] = SHOWN_BESIDE_ERRORS if self.dialect is Dialect.COMPAT else Section
        errors = [f"  {finding.text}" for finding in self.errors]
        return ["❌ NOT conformant:", *errors, *self._sections(sections)]

    def _sections(self, shown: Iterable[Section]) -> Iterator[str]:
        for section in shown:
            found = self.of(section)
            if not found or section is Section.CONFORMANCE:
                continue
            if section is Section.CHAINS:
                yield from ("", f"# {section} ({len(found)}):")
            else:
                yield f"⚠️ {section} ({len(found)}):"
            yield from (f"  {finding.text}" for finding in found)

    def to_json(self) -> dict[str, Any]:
        return {
            "conformant": self.is_conformant,
            "concepts": self.concepts,
            "errors": len(self.errors),
            "warnings": sum(finding.severity == "warning" for finding in self.findings),
            "findings": [finding.to_json() for finding in self.findings],
        }


def validate(root: Path, dialect: Dialect, tiers: Tiers = CANON, findings: Findings | None = None) -> Report:
    """Of a directory; `findings` get what the walk passed over. Raises `CONFIG_ERROR` for what is no directory."""
    met = findings if findings is not None else Findings()
    loaded = [parse(file.id, file.data, dialect) for file in bundle.files(root, tiers, met)]
    escaping = met.escaping if dialect is Dialect.SERVICE else ()
    return check(loaded, dialect, exists_in(root, dialect), tiers=tiers, escaping=escaping)


def exists_in(root: Path, dialect: Dialect) -> Exists:
    """Whether a path of a bundle is there. Folders count for the reference program only, and links that lead out of the
    bundle for nobody."""
    real = root.resolve()

    @cache
    def exists(path: str) -> bool:
        try:
            found = (real / path).resolve()
            return found.is_relative_to(real) and (found.exists() if dialect is Dialect.COMPAT else found.is_file())
        except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL, a name that is too long
            return False

    return exists


def check(
    nodes: Iterable[Node],
    dialect: Dialect,
    exists: Exists | None = None,
    *,
    tiers: Tiers = CANON,
    escaping: Sequence[str] = (),
) -> Report:
    """Of the nodes of these tiers, wherever they are kept; findings stand by section, then as the nodes stand. Without
    `exists`, what is not among all the nodes does not exist. `escaping` are paths of links that leave the bundle.

    A node that hides because it cannot be read is told of, and judged by nothing but V1, V2, V15 and V18."""
    every = list(nodes)
    if exists is None:
        exists = {f"{node.id}.md" for node in every}.__contains__
    hidden = tiers.hidden_folders
    named = [node for node in every if not node.is_reserved and _top_folder(node) not in hidden]
    shown = [node for node in named if tiers.secret or not node.is_secret]
    misread = [node for node in named if node.is_secret and not tiers.secret and _is_misread(node)]
    findings = [finding for node in shown for finding in _of_node(node, exists)]
    findings += [finding for node in (*shown, *misread) for finding in _readable(node)]
    findings += _supersession(shown, exists)
    if dialect is Dialect.SERVICE:
        findings += [finding for node in (*shown, *misread) for finding in _beyond_the_reference(node)]
    findings += [_escaping(path) for path in escaping]
    order = list(Section)
    findings.sort(key=lambda finding: order.index(finding.section))
    return Report(dialect, len(shown), findings)


def _top_folder(node: Node) -> str:
    return node.id.partition("/")[0] if "/" in node.id else ""


def _escaping(path: str) -> Finding:
    told = path.encode(errors="backslashreplace").decode()
    return Finding("V19", "warning", Section.LINKS, f"{told}: the link leaves the bundle and is not read")


def _is_misread(node: Node) -> bool:
    """Whether it is hidden for what it fails to say, and not in a folder of secrets."""
    folders = [folder.lower() for folder in node.id.split("/")[:-1]]
    return SECRET not in folders and (node.problem is not None or not _visibility_is_known(node))


def _visibility_is_known(node: Node) -> bool:
    return all(stated in VISIBILITIES for stated in node.stated_visibilities)


def _readable(node: Node) -> Iterator[Finding]:
    if not node.has_front_matter:
        yield Finding("V1", "error", Section.CONFORMANCE, f"{node.id}: no frontmatter")
    elif not node.native_type:
        yield Finding("V2", "error", Section.CONFORMANCE, f"{node.id}: empty/missing required 'type'")


def _of_node(node: Node, exists: Exists) -> Iterator[Finding]:
    for key, target in node.relations:
        path = resolved(target)
        told = f"{node.id} [{key}] → {target}"
        if path is None:
            yield Finding("V3", "warning", Section.RELATIONS, f"{told} (outside bundle)")
        elif not exists(path):
            yield Finding("V4", "warning", Section.RELATIONS, f"{told} (path does not exist)")
    written = node.fields.get("relations")
    for key in written if isinstance(written, dict) else ():
        if kind_of(key).key_class == "unknown":
            yield Finding("V5", "warning", Section.KINDS, f"{node.id} [{key}] — unknown relation kind")
    yield from _status(node)


def _status(node: Node) -> Iterator[Finding]:
    """Of the three types that have one; a status of any other is nobody's business."""
    node_type = node.native_type.lower()
    dictionary = STATUSES.get(node_type)
    if dictionary is None:
        return
    section = Section.KNOWLEDGE if node_type == IDEA else Section.DISCIPLINE
    missing, outside = ("V9", "V10") if node_type == IDEA else ("V6", "V7")
    told, status = f"{node.id}: {node.native_type}", node.text("status").strip()
    if not status:
        yield Finding(missing, "warning", section, f"{told} missing 'status'")
    elif status.lower() not in dictionary:
        text = f"{told} 'status' outside dictionary ({'|'.join(dictionary)}): \"{status}\""
        yield Finding(outside, "warning", section, text)
    if node_type in _NEEDS_REASON:
        reasoned, reason, rule, name = _NEEDS_REASON[node_type]
        if status.lower() == reasoned and not node.text(reason).strip():
            yield Finding(rule, "warning", section, f"{node.id}: {name} '{reasoned}' missing '{reason}'")


def _supersession(nodes: Sequence[Node], exists: Exists) -> Iterator[Finding]:
    replaced: dict[str, list[str]] = {}
    for node in nodes:
        for target in node.supersedes:
            path = resolved(target)
            old = id_of(target if path is None else path)
            told = f"{node.id} supersedes {old}"
            if path is not None and exists(path if path.endswith(".md") else f"{path}.md"):
                replaced.setdefault(node.id, []).append(old)
                yield Finding("V12", "info", Section.CHAINS, told)
            else:
                yield Finding("V12", "info", Section.CHAINS, f"{told} (target not found)")
                yield Finding("V13", "warning", Section.SUPERSESSION, f"{told} — target not found")
    for cycle in cycles(replaced):
        text = f"supersedes cycle: {' → '.join((*cycle, cycle[0]))}"
        yield Finding("V14", "warning", Section.SUPERSESSION, text)


def cycles(edges: dict[str, list[str]]) -> Iterator[list[str]]:
    """Rings in a graph, each set of nodes once: all that a walk in depth closes, in linear time."""
    told: set[frozenset[str]] = set()
    done: set[str] = set()
    for start in edges:
        path: list[str] = []
        at: dict[str, int] = {}
        waiting = [(start, iter(edges.get(start, ())))] if start not in done else []
        if waiting:
            at[start] = 0
            path.append(start)
        while waiting:
            node, following = waiting[-1]
            step = next(following, None)
            if step is None:
                waiting.pop()
                done.add(node)
                del at[node]
                path.pop()
            elif step in at:
                ring = path[at[step] :]
                if (members := frozenset(ring)) not in told:
                    told.add(members)
                    yield ring
            elif step not in done:
                at[step] = len(path)
                path.append(step)
                waiting.append((step, iter(edges.get(step, ()))))


def _beyond_the_reference(node: Node) -> Iterator[Finding]:
    if not _visibility_is_known(node):
        written = node.fields.get("visibility")
        text = (
            f"{node.id}: 'visibility' outside dictionary ({'|'.join(VISIBILITIES)}): \"{written}\"; it is kept secret"
        )
        yield Finding("V15", "warning", Section.VISIBILITY, text)
    for name in dates.DATE_FIELDS:
        written = node.fields.get(name, "")
        if written and (not isinstance(written, str) or dates.milliseconds(written) is None):
            yield Finding("V16", "warning", Section.DATES, f"{node.id}: '{name}' is no ISO 8601 date: \"{written}\"")
    relations = node.fields.get("relations")
    inner = targets(relations.get(SUPERSEDES)) if isinstance(relations, dict) else []
    if inner and not targets(node.fields.get(SUPERSEDES)):
        text = f"{node.id}: 'supersedes' stands under relations only; older programs read it at the top level"
        yield Finding("V17", "warning", Section.SPELLING, text)
    if node.problem is not None:
        yield Finding("V18", "warning", Section.FRONT_MATTER, f"{node.id}: {node.problem}; it is kept secret")

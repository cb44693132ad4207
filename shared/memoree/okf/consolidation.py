"""Raw notes beside canon: what canon covers already, what several engines agree on, what one alone says (OKF contract
§4.3). It reads, and leaves every node as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from memoree.okf import dates
from memoree.okf.ids import path_of
from memoree.okf.likeness import Pair, contradictions
from memoree.okf.node import INBOX, MIRROR, SECRET, Node

Standing = Literal["covered", "strong", "single"]
INDEX = "index"
REPORT_PATH = f"{INBOX}/_consolidation-report.md"
"""Its name begins with an underscore: no walk takes it for a node."""
STRONG_ENGINES_MIN = 2


@dataclass(frozen=True, slots=True)
class Group:
    """Raw nodes of one name. `canon` is the id of the node that has the name in canon."""

    name: str
    standing: Standing
    raw: list[str]
    engines: list[str]
    canon: str | None


@dataclass(frozen=True, slots=True)
class Map:
    groups: list[Group]
    conflicts: list[Pair]

    def of(self, standing: Standing) -> list[Group]:
        return [group for group in self.groups if group.standing == standing]


def consolidated(nodes: Iterable[Node], *, at_ms: int) -> Map:
    """The map of a bundle of which every tier is loaded. Secret nodes are left out."""
    loaded = [node for node in nodes if not node.is_secret and _folder(node) != SECRET]
    raw = [node for node in loaded if is_raw(node) and _name(node) != INDEX]
    canon = canonical(loaded)
    by_name: dict[str, str] = {}
    for node in canon:
        by_name.setdefault(_name(node), node.id)
    groups: dict[str, list[Node]] = {}
    for node in raw:
        groups.setdefault(_name(node), []).append(node)
    found = [_group(name, of_name, by_name.get(name)) for name, of_name in sorted(groups.items())]
    return Map(found, contradictions(canon, at_ms=at_ms))


def is_raw(node: Node) -> bool:
    return _folder(node) in (INBOX, MIRROR)


def canonical(loaded: Sequence[Node]) -> list[Node]:
    """Nodes that stand in a folder; of a bundle without folders those with front matter."""
    settled = [node for node in loaded if not is_raw(node) and not node.is_reserved]
    in_folders = [node for node in settled if _folder(node)]
    return in_folders or [node for node in settled if node.has_front_matter]


def engine(node: Node) -> str:
    """Which engine a raw node comes from: its field, its folder, or the name of an inbox."""
    return node.text("engine").strip() or node.id.split("/")[1]


def report(found: Map, *, at_ms: int) -> str:
    """As Markdown, every line of it with the paths that it is about."""
    lines = ["# Consolidation", "", f"As of {dates.iso(at_ms)}."]
    headings: tuple[tuple[Standing, str], ...] = (
        ("strong", "Strong gaps: several engines, nothing in canon"),
        ("single", "Single gaps: one engine, nothing in canon"),
        ("covered", "Covered by canon"),
    )
    for standing, heading in headings:
        groups = found.of(standing)
        lines += ["", f"## {heading} ({len(groups)})", ""]
        lines += [_line(group) for group in groups] or ["- none"]
    lines += ["", f"## Conflicts in canon ({len(found.conflicts)})", ""]
    lines += [
        f"- `{path_of(each.one)}` and `{path_of(each.other)}`: {each.likeness:.2f}" for each in found.conflicts
    ] or ["- none"]
    return "\n".join((*lines, ""))


def _group(name: str, nodes: Sequence[Node], canon: str | None) -> Group:
    engines = sorted({engine(node) for node in nodes})
    standing: Standing = (
        "covered" if canon is not None else "strong" if len(engines) >= STRONG_ENGINES_MIN else "single"
    )
    return Group(name, standing, [node.id for node in nodes], engines, canon)


def _line(group: Group) -> str:
    raw = ", ".join(f"`{path_of(each)}`" for each in group.raw)
    covered = f" → `{path_of(group.canon)}`" if group.canon is not None else ""
    return f"- {group.name} ({', '.join(group.engines)}): {raw}{covered}"


def _folder(node: Node) -> str:
    return node.id.partition("/")[0] if "/" in node.id else ""


def _name(node: Node) -> str:
    return node.id.rpartition("/")[2].lower()

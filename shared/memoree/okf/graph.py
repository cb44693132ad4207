"""What a bundle's files point at: links, relations and supersession (OKF contract §2.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoree.okf import bundle
from memoree.okf.bundle import CANON, Tiers
from memoree.okf.dialect import Dialect
from memoree.okf.ids import id_of
from memoree.okf.node import Node
from memoree.okf.relations import SUPERSEDES, links, resolved
from memoree.okf.validate import Exists, exists_in


@dataclass(frozen=True, slots=True)
class Edge:
    """`rel` is the key as written; `None` for a link of the body."""

    source: str
    target: str
    rel: str | None = None

    def to_json(self) -> dict[str, str]:
        ends = {"from": self.source, "to": self.target}
        return {**ends, "kind": "link"} if self.rel is None else {**ends, "kind": "relation", "rel": self.rel}


@dataclass(frozen=True, slots=True)
class Graph:
    """`link_count`, `relation_count` and `supersede_count` are of all that was written, whether it leads anywhere or
    not; `edges` lead to files, `broken` tells of the others."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]
    broken: Sequence[str]
    link_count: int
    relation_count: int
    supersede_count: int

    @property
    def orphans(self) -> list[str]:
        """Ids of nodes that nothing points at."""
        reached = {edge.target for edge in self.edges}
        return [node.id for node in self.nodes if node.id not in reached]

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": [{"id": node.id, "title": node.title, "type": node.type} for node in self.nodes],
            "edges": [edge.to_json() for edge in self.edges],
            "orphans": self.orphans,
            "broken": list(self.broken),
            "mdEdges": self.link_count,
            "relCount": self.relation_count,
            "supersedeCount": self.supersede_count,
            "totalEdges": self.link_count + self.relation_count + self.supersede_count,
        }

    def render(self) -> list[str]:
        """The lines for people."""
        data = self.to_json()
        counts = f"{self.link_count} links, {self.relation_count} relations, {self.supersede_count} supersessions"
        lines = [f"# {len(self.nodes)} concepts, {data['totalEdges']} edges ({counts})"]
        lines.append(f"# Orphans ({len(self.orphans)}):")
        lines += [f"  {node_id}" for node_id in self.orphans]
        lines.append(f"# Broken ({len(self.broken)}):")
        lines += [f"  {told}" for told in self.broken]
        return lines


def of_bundle(root: Path, dialect: Dialect, tiers: Tiers = CANON) -> Graph:
    """Of a directory. Raises `CONFIG_ERROR` for what is none."""
    return of_nodes(bundle.nodes(root, dialect, tiers), exists_in(root, dialect))


def of_nodes(nodes: Iterable[Node], exists: Exists | None = None) -> Graph:
    """Of nodes, wherever they are kept, reserved ones among them. Without `exists`, what is not among them does not
    exist."""
    every = list(nodes)
    if exists is None:
        exists = {f"{node.id}.md" for node in every}.__contains__
    edges: list[Edge] = []
    broken: list[str] = []
    counts = []
    for attempts in (_links, _relations, _supersessions):
        found = [attempt for node in every for attempt in attempts(node)]
        counts.append(len(found))
        for told, edge, path in found:
            if path is not None and exists(path):
                edges.append(edge)
            else:
                broken.append(f"{told} ({'outside bundle' if path is None else 'broken'})")
    return Graph([node for node in every if not node.is_reserved], edges, broken, *counts)


_Attempt = tuple[str, Edge, str | None]
"""How it is told of where it leads nowhere, the edge it would be, and the path it names, if in the bundle."""


def _links(node: Node) -> Iterator[_Attempt]:
    folder = node.id.rpartition("/")[0]
    for target in links(node.body):
        path = resolved(target, folder=folder)
        yield f"{node.id} → {target}", Edge(node.id, id_of(path or "")), path


def _relations(node: Node) -> Iterator[_Attempt]:
    for key, target in node.relations:
        if node.is_reserved or (key == SUPERSEDES and node.dialect is Dialect.SERVICE):
            continue  # the service counts it with what stands at the top level
        path = resolved(target)
        yield f"{node.id} [{key}] → {target}", Edge(node.id, id_of(path or ""), key), path


def _supersessions(node: Node) -> Iterator[_Attempt]:
    for target in () if node.is_reserved else node.supersedes:
        path = resolved(target)
        told = f"{node.id} [{SUPERSEDES}] → {target}"
        yield told, Edge(node.id, id_of(path or ""), SUPERSEDES), path

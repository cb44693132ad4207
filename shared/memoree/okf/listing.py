"""Which nodes a bundle has, one of them, and what is related to it (OKF contract §2.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memoree.errors import Code, MemoreeError, not_found, shown
from memoree.okf import dates
from memoree.okf.bundle import Tiers
from memoree.okf.dialect import Dialect
from memoree.okf.ids import id_of, matching, path_of
from memoree.okf.node import Node
from memoree.okf.relations import SUPERSEDED_BY, SUPERSEDES, resolved

NO_TYPE = "∅"
TYPE_WIDTH, VISIBILITY_WIDTH = 10, 9
MATCHES_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Related:
    """`outbound` are targets as written, `inbound` ids in their order."""

    key: str
    node_id: str
    outbound: Sequence[str]
    inbound: Sequence[str]

    def render(self, *, with_inbound: bool) -> list[str]:
        lines = [f"# {self.key} from {self.node_id} ({len(self.outbound)})", *_or_none(self.outbound)]
        if with_inbound:
            lines += ["", f"# Inbound {self.key} → {self.node_id} ({len(self.inbound)})", *_or_none(self.inbound)]
        return lines

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "id": self.node_id, "outbound": list(self.outbound), "inbound": list(self.inbound)}


def concepts(nodes: Iterable[Node]) -> list[Node]:
    """Without reserved files, in the order of ids."""
    return sorted((node for node in nodes if not node.is_reserved), key=lambda node: node.id)


def of_type(nodes: Iterable[Node], node_type: str) -> list[Node]:
    """Whatever its case."""
    wanted = node_type.strip().lower()
    return [node for node in concepts(nodes) if node.native_type.lower() == wanted]


def of_tag(nodes: Iterable[Node], tag: str) -> list[Node]:
    """Whatever its case."""
    wanted = tag.strip().lower()
    return [node for node in concepts(nodes) if wanted in (each.lower() for each in node.tags)]


def table(nodes: Sequence[Node], tiers: Tiers) -> list[str]:
    """A line about all of them, then one of each."""
    included = "".join(
        f" (incl. {name})" for name, is_shown in (("secret", tiers.secret), ("inbox", tiers.inbox)) if is_shown
    )
    rows = (
        f"{node.native_type or NO_TYPE:<{TYPE_WIDTH}} {node.visibility:<{VISIBILITY_WIDTH}} {node.id}  — {title(node)}"
        for node in nodes
    )
    return [f"# {len(nodes)} concepts{included}", *rows]


def lines(nodes: Sequence[Node], otherwise: str) -> list[str]:
    return [f"{node.id} — {title(node)}" for node in nodes] or [otherwise]


def title(node: Node) -> str:
    """The reference program lists a node without a title under none."""
    return node.native_title if node.dialect is Dialect.COMPAT else node.title


def to_json(node: Node) -> dict[str, Any]:
    return {"id": node.id, "type": node.native_type, "title": title(node), "visibility": node.visibility}


def find(given: str, nodes: Sequence[Node]) -> Node | None:
    """The node that a guarded id or the end of one means. Raises `INVALID_REQUEST` where it means several."""
    by_id = {node.id: node for node in nodes}
    found = matching(given, by_id)
    if len(found) > 1:
        told = ", ".join(found[:MATCHES_SHOWN_MAX])
        more = f" and {len(found) - MATCHES_SHOWN_MAX} more" if len(found) > MATCHES_SHOWN_MAX else ""
        raise MemoreeError(Code.INVALID_REQUEST, f"{shown(given)} is ambiguous: {told}{more}", details={"ids": found})
    return by_id[found[0]] if found else None


def banner(node: Node, nodes: Iterable[Node], *, at_ms: int) -> list[str]:
    """Why a node may no longer hold, a line per reason. The reference program tells two of them only."""
    superseders = sorted(
        other.id for other in nodes if not other.is_reserved and node.id in map(id_of, other.supersedes)
    )
    told = []
    if superseders:
        told.append(f"⚠ superseded by {', '.join(map(path_of, superseders))}")
    if node.is_deprecated:
        told.append(f"⚠ deprecated {_day(node.text('deprecated_on'))}".rstrip())
    if node.dialect is Dialect.COMPAT:
        return told
    if node.superseded_by:
        told.append(f"⚠ says it is superseded by {', '.join(node.superseded_by)}")
    ended, begins = dates.milliseconds(node.text("invalid_at")), dates.milliseconds(node.text("valid_from"))
    if ended is not None and ended <= at_ms:
        told.append(f"⚠ no longer valid (invalid_at {dates.date(ended)})")
    if begins is not None and begins > at_ms:
        told.append(f"⚠ not yet valid (valid_from {dates.date(begins)})")
    return told


def related(key: str, given: str, nodes: Sequence[Node]) -> Related:
    """By a key as it is written, no other that means the same. Raises `NOT_FOUND`, and `INVALID_REQUEST` for an id that
    means several nodes."""
    node = find(given, nodes)
    if node is None:
        not_found("the node", given)
    inbound = {
        other.id
        for other in nodes
        if other.id != node.id and not other.is_reserved
        for target in _targets(other, key)
        if (path := resolved(target)) is not None and id_of(path) == node.id
    }
    return Related(key, node.id, _targets(node, key), sorted(inbound))


def _targets(node: Node, key: str) -> list[str]:
    found = [target for written, target in node.relations if written == key]
    if key == SUPERSEDES:
        found += node.supersedes
    elif key == SUPERSEDED_BY:
        found += node.superseded_by
    return list(dict.fromkeys(found))


def _or_none(rows: Sequence[str]) -> Sequence[str]:
    return rows or ["— none"]


def _day(written: str) -> str:
    instant = dates.milliseconds(written)
    return written if instant is None else dates.date(instant)

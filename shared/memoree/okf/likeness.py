"""How nodes of a bundle stand to each other when all of them are at hand: what replaces what, and which ones are about
the same (OKF contract §2.7, §2.8). The ranker asks the same of rows, for a few hits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from memoree.okf import dates, hygiene, terms
from memoree.okf.hygiene import Activity, Dates, State
from memoree.okf.ids import id_of
from memoree.okf.node import Node
from memoree.okf.ranking import SAME_TOPIC_MIN

COMMON_WORD_NODES_MAX = 500
"""A word that more nodes of one type have in common than this tells nothing apart: it makes no pair by itself."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two nodes of a type that seem to say different things of one matter, in the order of their ids. `likeness` is
    from 0 to 1."""

    one: str
    other: str
    type: str
    likeness: float


def states(nodes: Sequence[Node], *, at_ms: int, activity: dict[str, Activity] | None = None) -> dict[str, State]:
    """What each node still counts among these."""
    ids = {node.id for node in nodes}
    superseders: dict[str, list[str]] = {}
    for node in nodes:
        for target in node.supersedes:
            superseders.setdefault(id_of(target), []).append(node.id)
    return {node.id: _state(node, ids, superseders, at_ms, (activity or {}).get(node.id)) for node in nodes}


def contradictions(nodes: Iterable[Node], *, at_ms: int) -> list[Pair]:
    """Pairs of nodes that are in force, the most alike first. Of two that replace each other one is not."""
    loaded = list(nodes)
    state = states(loaded, at_ms=at_ms)
    in_force = [
        node
        for node in loaded
        if node.type and not node.is_reserved and not node.is_deprecated and not state[node.id].is_stale
    ]
    by_id = {node.id: node for node in in_force}
    topics = {node.id: terms.topic(node) for node in in_force}
    found = []
    for (one, other), shared in _sharing(in_force, topics).items():
        likeness = shared / len(topics[one] | topics[other])
        if likeness >= SAME_TOPIC_MIN:
            found.append(Pair(one, other, by_id[one].type, likeness))
    return sorted(found, key=lambda pair: (-pair.likeness, pair.one, pair.other))


def is_believed(one: Node, other: Node) -> bool:
    """Whether the first of a pair is the one to believe: by authority, then by date, then by its id."""
    ours, theirs = hygiene.authority(one.text("authority")), hygiene.authority(other.text("authority"))
    if ours is not None and theirs is not None and ours != theirs:
        return ours > theirs
    since, their_since = _since(one), _since(other)
    if since is not None and their_since is not None and since != their_since:
        return since > their_since
    return one.id <= other.id


def _state(
    node: Node, ids: set[str], superseders: dict[str, list[str]], at_ms: int, activity: Activity | None
) -> State:
    return State(
        type=node.type,
        importance=hygiene.importance(node.text("importance")),
        dates=Dates(*(dates.milliseconds(node.text(name)) for name in ("timestamp", "valid_from", "invalid_at"))),
        deprecated_on=node.text("deprecated_on") if node.is_deprecated else None,
        superseders=superseders.get(node.id, []),
        superseded_by=node.superseded_by,
        superseder_exists=any(id_of(target) in ids for target in node.superseded_by),
        activity=activity,
        at_ms=at_ms,
    )


def _sharing(nodes: Sequence[Node], topics: dict[str, frozenset[str]]) -> Counter[tuple[str, str]]:
    """How many words two nodes of a type have in common, for those that share one that is not too common."""
    holders: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        for word in topics[node.id]:
            holders.setdefault((node.type, word), []).append(node.id)
    candidates = {
        (min(pair), max(pair))
        for ids in holders.values()
        if len(ids) <= COMMON_WORD_NODES_MAX
        for pair in combinations(ids, 2)
    }
    return Counter({(one, other): len(topics[one] & topics[other]) for one, other in candidates})


def _since(node: Node) -> int | None:
    valid_from = dates.milliseconds(node.text("valid_from"))
    return dates.milliseconds(node.text("timestamp")) if valid_from is None else valid_from

"""The one ranker of bundles: BM25 over the nodes that a query may see, then what each still counts (OKF contract
§2.6 to §2.8, §2.11). It searches the rows of `memoree.database.okf`, of a store or of files that were read into memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import nlargest
from itertools import combinations
from math import inf, log

import apsw

from memoree.database import okf as rows
from memoree.database.okf import NodeRow
from memoree.okf import terms
from memoree.okf.bundle import Tiers
from memoree.okf.hygiene import Activity, Dates, State
from memoree.okf.ids import id_of
from memoree.okf.indexing import node_of
from memoree.okf.relations import CITES, SUPERSEDES, WALK_ORDER

K1, B = 1.2, 0.75
SAME_TOPIC_MIN = 0.34
"""Jaccard similarity of titles and tags from which two nodes of a type are held to contradict each other."""
K_DEFAULT = EXPAND_BUDGET_DEFAULT = 5
K_MAX = 100
QUERY_TOKENS_MAX = 256
JUDGED_BEYOND_K = 8
"""Nodes that are judged to find a score that `k` have: some of the first count less than others."""
LOOKUP_OVER_SCAN = 4
"""How many postings are read in the time that one is looked up."""
ROUNDING = 1e-9
"""Of a sum of weights, by far: no node is left out for the order in which they were added."""

ActivityOf = Callable[[str], Activity | None]
"""What the ledger has of a topic."""


@dataclass(frozen=True, slots=True)
class Query:
    """`at_ms` is the instant at which validity, age and activity are judged."""

    text: str
    at_ms: int
    k: int = K_DEFAULT
    tiers: Tiers = field(default_factory=Tiers)
    include_superseded: bool = False
    exclude_source: str | None = None
    expand_budget: int | None = None
    """`None`: hits only."""


@dataclass(frozen=True, slots=True)
class Topic:
    """What a node is about, in words, and the ids of those that it replaces or is replaced by."""

    node_id: str
    words: frozenset[str]
    named: frozenset[str]

    @classmethod
    def of(cls, row: NodeRow) -> Topic:
        node = node_of(row)
        return cls(row.node_id, terms.topic(node), frozenset(_named(node.supersedes, node.superseded_by)))


@dataclass(frozen=True, slots=True)
class Hit:
    row: NodeRow
    score: float
    raw: float
    label: str


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A node one step from a hit, over an edge of that kind."""

    row: NodeRow
    kind: str
    expanded_from: str
    label: str
    hygiene: str


@dataclass(frozen=True, slots=True)
class Answer:
    hits: list[Hit]
    expanded: list[Neighbour] | None
    tokens: list[str]


class Corpus:
    """The nodes of one bundle, as one query may see them."""

    def __init__(self, db: apsw.Connection, bundle: int, activity: ActivityOf, query: Query) -> None:
        self._db, self._bundle, self._activity, self._query = db, bundle, activity, query
        self._judgements: dict[int, tuple[NodeRow, State]] = {}
        self._topics: dict[int, Topic] = {}

    def search(self) -> Answer:
        """The best `k` nodes, and their neighbours where these are asked for."""
        tokens = terms.tokens(self._query.text)[:QUERY_TOKENS_MAX]
        hits = self._with_conflicts(self._best(tokens))
        budget = self._query.expand_budget
        expanded = None if budget is None else list(self._neighbours(hits, budget))
        return Answer(hits, expanded, tokens)

    def state(self, row: NodeRow) -> State:
        """What a node still counts."""
        superseders, replaced = self._superseders.get(row.node_id, []), row.row_id in self._replaced
        return State(
            type=row.type,
            importance=row.importance,
            dates=Dates(row.timestamp, row.valid_from, row.invalid_at),
            deprecated_on=row.deprecated_on,
            superseders=list(dict.fromkeys(superseders)),
            superseded_by=node_of(row).superseded_by,
            superseder_exists=replaced,
            activity=self._activity(row.node_id),
            at_ms=self._query.at_ms,
        )

    # --- the pool -----------------------------------------------------------------------------------------------

    @cached_property
    def _shown_tiers(self) -> set[str]:
        """Tiers whose nodes may be answered."""
        hidden = self._query.tiers.hidden_folders
        return {rows.CANON, *(tier for tier in rows.FOLDER_TIERS if tier not in hidden)}

    @cached_property
    def _supersessions(self) -> list[rows.Supersession]:
        """As loaded nodes say; a node of a hidden folder replaces nobody, one that is secret by its own word does."""
        hidden = self._query.tiers.hidden_folders
        found = rows.supersessions(self._db, self._bundle)
        return [each for each in found if "/" not in each.node_id or each.node_id.partition("/")[0] not in hidden]

    @cached_property
    def _superseders(self) -> dict[str, list[str]]:
        """Ids of the nodes that say they replace it, by the id of a node."""
        found: dict[str, list[str]] = {}
        for each in self._supersessions:
            if each.kind == SUPERSEDES:
                found.setdefault(each.target_id, []).append(each.node_id)
        return found

    @cached_property
    def _replaced(self) -> set[int]:
        """Rows of nodes that name another one that replaces them, and that is there."""
        return {each.row_id for each in self._supersessions if each.kind != SUPERSEDES and each.target_row is not None}

    @cached_property
    def _left_out(self) -> dict[int, int]:
        """Nodes with postings that are not in the pool, with their lengths."""
        query = self._query
        hidden = set(rows.FOLDER_TIERS) - self._shown_tiers
        found = rows.of_tiers(self._db, self._bundle, hidden)
        if query.exclude_source is not None:
            found |= rows.from_source(self._db, self._bundle, query.exclude_source)
        if query.include_superseded:
            return found
        for row_id, length, valid_from, invalid_at in rows.bounded(self._db, self._bundle):
            if (invalid_at is not None and invalid_at <= query.at_ms) or (valid_from or -inf) > query.at_ms:
                found[row_id] = length
        for each in self._supersessions:
            if each.target_row is None or each.target_length is None:
                continue
            if each.kind == SUPERSEDES:
                found[each.target_row] = each.target_length
            else:
                found[each.row_id] = each.length
        return found

    # --- scores -------------------------------------------------------------------------------------------------

    def _best(self, tokens: Sequence[str]) -> list[Hit]:
        """The first `k` by score; of equal ones the first ids. No node counts more than its raw score, so that they are
        judged in that order only until no further one can be among the best."""
        best: list[Hit] = []
        threshold = -inf
        for row_id, raw in sorted(self._raw(tokens).items(), key=_by_raw):
            if raw < threshold:
                break
            row, state = self._judged(row_id)
            best.append(Hit(row, raw * state.multiplier, raw, state.label))
            if len(best) >= self._query.k:
                threshold = nlargest(self._query.k, (hit.score for hit in best))[-1]
        best.sort(key=lambda hit: (-hit.score, hit.row.node_id))
        return best[: self._query.k]

    def _judged(self, row_id: int) -> tuple[NodeRow, State]:
        """A node that has postings, and what it counts."""
        if (known := self._judgements.get(row_id)) is not None:
            return known
        row = rows.by_row(self._db, row_id)
        assert row is not None, "postings are of nodes"
        found = self._judgements[row_id] = (row, self.state(row))
        return found

    def _raw(self, tokens: Sequence[str]) -> dict[int, float]:
        """BM25 by row, of every node in the pool that may be among the best; a repeated token counts again.

        Rare tokens come first. Once what the remaining ones can add lifts no other node among the best, these are
        looked up for the nodes that are left."""
        size, average = self._pool
        if size <= 0:
            return {}
        base, slope = K1 * (1 - B), K1 * B / average if average else 0.0
        weighed = sorted(self._weighed(tokens, size), key=lambda each: -each[0])
        remaining = sum(weight for weight, _, _ in weighed)
        scores: dict[int, float] = {}
        for at, (weight, token, _) in enumerate(weighed):
            threshold = self._reached(scores, at_least=remaining) if at else -inf
            if threshold > remaining:
                scores = self._completed(scores, weighed[at:], threshold, base, slope)
                break
            remaining = max(remaining - weight, 0.0)
            _gain(scores, rows.saturations(self._db, self._bundle, token, base, slope), weight)
            for row_id in self._left_out:
                scores.pop(row_id, None)
        threshold = self._reached(scores, at_least=0.0)
        return {row_id: raw for row_id, raw in scores.items() if raw > 0 and raw >= threshold}

    def _weighed(self, tokens: Sequence[str], size: int) -> Iterator[tuple[float, str, int]]:
        """(most that it can add, token, nodes that have it) of every token that a node of the pool has."""
        for token, repeats in Counter(tokens).items():
            count = rows.posting_count(self._db, self._bundle, token)
            count -= rows.posting_count_among(self._db, self._bundle, token, self._left_out) if count else 0
            if count:
                yield repeats * log((size - count + 0.5) / (count + 0.5) + 1) * (K1 + 1), token, count

    def _reached(self, scores: Mapping[int, float], *, at_least: float) -> float:
        """A score that `k` nodes have already, whatever they still gain; `-inf` where it is not more than that."""
        k = self._query.k
        if len(scores) < k or max(scores.values()) <= at_least:
            return -inf
        first = nlargest(k + JUDGED_BEYOND_K, scores, key=scores.__getitem__)
        if scores[first[k - 1]] <= at_least:
            return -inf
        return nlargest(k, (scores[row_id] * self._judged(row_id)[1].multiplier for row_id in first))[-1]

    def _completed(
        self,
        scores: dict[int, float],
        weighed: Sequence[tuple[float, str, int]],
        threshold: float,
        base: float,
        slope: float,
    ) -> dict[int, float]:
        """The nodes that may still reach the threshold, with what the remaining tokens give them."""
        remaining = sum(weight for weight, _, _ in weighed)
        for weight, token, count in weighed:
            scores = {row_id: raw for row_id, raw in scores.items() if raw + remaining + ROUNDING >= threshold}
            if len(scores) * LOOKUP_OVER_SCAN < count:
                found = rows.saturations_among(self._db, self._bundle, token, base, slope, scores)
            else:
                every = rows.saturations(self._db, self._bundle, token, base, slope)
                found = [each for each in every if each[0] in scores]
            _gain(scores, found, weight)
            remaining -= weight
        return scores

    @cached_property
    def _pool(self) -> tuple[int, float]:
        """How many nodes it has, and how many tokens these have on average."""
        all_totals = [total for tier, total in rows.totals(self._db, self._bundle).items() if tier != rows.RESERVED]
        size = sum(count for count, _ in all_totals) - len(self._left_out)
        length = sum(length for _, length in all_totals) - sum(self._left_out.values())
        return size, length / size if size > 0 else 0.0

    # --- conflicts ----------------------------------------------------------------------------------------------

    def _with_conflicts(self, hits: list[Hit]) -> list[Hit]:
        """Hits that contradict each other, the one to believe first and the other labelled (§2.8)."""
        order = [hit.row.node_id for hit in hits]
        by_id = {hit.row.node_id: hit for hit in hits}
        winners: dict[str, set[str]] = {}
        eligible = [hit for hit in hits if not self.state(hit.row).is_stale and hit.row.deprecated_on is None]
        pairs = [
            (likeness, one, other)
            for one, other in combinations(eligible, 2)
            if (likeness := self.alike(one.row, other.row)) >= SAME_TOPIC_MIN
        ]
        for _, one, other in sorted(pairs, key=lambda pair: -pair[0]):
            first, second = sorted((one, other), key=lambda hit: order.index(hit.row.node_id))
            winner, loser = (first, second) if _is_believed(first, second) else (second, first)
            at, beside = order.index(winner.row.node_id), order.index(loser.row.node_id)
            if beside < at:
                order[at], order[beside] = order[beside], order[at]
            winners.setdefault(loser.row.node_id, set()).add(winner.row.node_id)
        return [_labelled(by_id[node_id], winners.get(node_id, set())) for node_id in order]

    def alike(self, one: NodeRow, other: NodeRow) -> float:
        """0 to 1: how far two nodes are about the same; 0 where their types differ or one replaces the other."""
        return _likeness(self._topic(one), self._topic(other)) if one.type == other.type else 0.0

    def _topic(self, row: NodeRow) -> Topic:
        if (known := self._topics.get(row.row_id)) is None:
            known = self._topics[row.row_id] = Topic.of(row)
        return known

    # --- neighbours ---------------------------------------------------------------------------------------------

    def _neighbours(self, hits: Sequence[Hit], budget: int) -> Iterator[Neighbour]:
        """One step from the hits, kind by kind, up to a budget that all hits share (§2.11)."""
        seen = {hit.row.node_id for hit in hits}
        around = [(hit, self._around(hit.row)) for hit in hits]
        found = 0
        for kind in WALK_ORDER:
            for hit, edges in around:
                for other_id in edges.get(kind, ()):
                    if found == budget:
                        return
                    if other_id in seen or (neighbour := self._neighbour(hit, other_id, kind, hits)) is None:
                        continue
                    seen.add(other_id)
                    found += 1
                    yield neighbour

    def _around(self, row: NodeRow) -> dict[str, list[str]]:
        """Ids next to a node, by kind: those it names, then those that name it. Its own links lead nowhere."""
        edges: dict[str, list[str]] = {}
        for edge in rows.outbound(self._db, row.row_id):
            if edge.kind != CITES:
                edges.setdefault(edge.kind, []).append(edge.other_id)
        for edge in rows.inbound(self._db, self._bundle, row.node_id):
            edges.setdefault(edge.kind, []).append(edge.other_id)
        return edges

    def _neighbour(self, hit: Hit, node_id: str, kind: str, hits: Sequence[Hit]) -> Neighbour | None:
        row = rows.by_id(self._db, self._bundle, node_id)
        if row is None or row.tier not in self._shown_tiers or row.deprecated_on is not None:
            return None
        state = self.state(row)
        if state.is_stale and not self._query.include_superseded:
            return None
        hygiene = state.label if self._query.include_superseded else ""
        if not state.is_stale:
            rivals = [
                each.row.node_id
                for each in hits
                if each.row.deprecated_on is None
                and not self.state(each.row).is_stale
                and self.alike(row, each.row) >= SAME_TOPIC_MIN
            ]
            hygiene = " ".join((*filter(None, (hygiene,)), *(f"⚔ conflicts with {each}" for each in sorted(rivals))))
        return Neighbour(row, kind, hit.row.node_id, f"(+1 hop from {hit.row.node_id})", hygiene)


def _by_raw(scored: tuple[int, float]) -> tuple[float, int]:
    return (-scored[1], scored[0])


def _gain(scores: dict[int, float], found: Iterable[tuple[int, float]], weight: float) -> None:
    """Add what a token gives its nodes."""
    if not scores:
        scores.update((row_id, weight * saturation) for row_id, saturation in found)
        return
    known = scores.get
    for row_id, saturation in found:
        scores[row_id] = known(row_id, 0.0) + weight * saturation


def _likeness(one: Topic, other: Topic) -> float:
    if other.node_id in one.named or one.node_id in other.named:
        return 0.0
    union = len(one.words | other.words)
    return len(one.words & other.words) / union if union else 0.0


def _named(*targets: Sequence[str]) -> set[str]:
    return {id_of(target) for named in targets for target in named}


def _is_believed(first: Hit, second: Hit) -> bool:
    """Whether the one that stands first wins: by authority, then by date, then by score, then as it stands."""
    if None not in (ours := first.row.authority, theirs := second.row.authority) and ours != theirs:
        assert ours is not None and theirs is not None
        return ours > theirs
    since, their_since = _since(first.row), _since(second.row)
    if since is not None and their_since is not None and since != their_since:
        return since > their_since
    return first.score >= second.score


def _since(row: NodeRow) -> int | None:
    return row.timestamp if row.valid_from is None else row.valid_from


def _labelled(hit: Hit, winners: set[str]) -> Hit:
    if not winners:
        return hit
    conflict = f"⚔ conflicts with {', '.join(sorted(winners))}"
    return replace(hit, label=f"{hit.label} {conflict}".strip())

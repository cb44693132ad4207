"""The one ranker of bundles: BM25 over the nodes that a query may see, then what each still counts (OKF contract
§2.6 to §2.8, §2.11). It searches the rows of `memoree.database.okf`, of a store or of files that were read into memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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

    def search(self) -> Answer:
        """The best `k` nodes, and their neighbours where these are asked for."""
        tokens = terms.tokens(self._query.text)[:QUERY_TOKENS_MAX]
        hits = self._with_conflicts(self._best(tokens))
        budget = self._query.expand_budget
        expanded = None if budget is None else list(self._neighbours(hits, budget))
        return Answer(hits, expanded, tokens)

    def state(self, row: NodeRow) -> State:
        """What a node still counts."""
        replaced_by = [each for each in self._supersessions if each.row_id == row.row_id and each.kind != SUPERSEDES]
        superseders = [
            each.node_id for each in self._supersessions if each.kind == SUPERSEDES and each.target_id == row.node_id
        ]
        return State(
            type=row.type,
            importance=row.importance,
            dates=Dates(row.timestamp, row.valid_from, row.invalid_at),
            deprecated_on=row.deprecated_on,
            superseders=list(dict.fromkeys(superseders)),
            superseded_by=node_of(row).superseded_by,
            superseder_exists=any(each.target_row is not None for each in replaced_by),
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
        return [each for each in found if each.node_id.partition("/")[0] not in hidden]

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
        for raw, row_id in sorted(((raw, -row_id) for row_id, raw in self._raw(tokens).items()), reverse=True):
            if raw < threshold:
                break
            row = rows.by_row(self._db, -row_id)
            assert row is not None, "postings are of nodes"
            state = self.state(row)
            best.append(Hit(row, raw * state.multiplier, raw, state.label))
            if len(best) >= self._query.k:
                threshold = nlargest(self._query.k, (hit.score for hit in best))[-1]
        best.sort(key=lambda hit: (-hit.score, hit.row.node_id))
        return best[: self._query.k]

    def _raw(self, tokens: Sequence[str]) -> dict[int, float]:
        """BM25 by row, of nodes in the pool that have a token; a repeated token counts again."""
        left_out = self._left_out
        all_totals = [total for tier, total in rows.totals(self._db, self._bundle).items() if tier != rows.RESERVED]
        size = sum(count for count, _ in all_totals) - len(left_out)
        if size <= 0:
            return {}
        average = (sum(length for _, length in all_totals) - sum(left_out.values())) / size
        scores: dict[int, float] = {}
        for token, repeats in Counter(tokens).items():
            found = rows.postings(self._db, self._bundle, token)
            if left_out:
                found = [posting for posting in found if posting[0] not in left_out]
            weight = repeats * log((size - len(found) + 0.5) / (len(found) + 0.5) + 1) * (K1 + 1)
            base, slope = K1 * (1 - B), K1 * B / average if average else 0.0
            for row_id, frequency, length in found:
                gained = weight * frequency / (frequency + base + slope * length)
                scores[row_id] = scores.get(row_id, 0.0) + gained
        return {row_id: raw for row_id, raw in scores.items() if raw > 0}

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
            if (likeness := alike(one.row, other.row)) >= SAME_TOPIC_MIN
        ]
        for _, one, other in sorted(pairs, key=lambda pair: -pair[0]):
            first, second = sorted((one, other), key=lambda hit: order.index(hit.row.node_id))
            winner, loser = (first, second) if _is_believed(first, second) else (second, first)
            at, beside = order.index(winner.row.node_id), order.index(loser.row.node_id)
            if beside < at:
                order[at], order[beside] = order[beside], order[at]
            winners.setdefault(loser.row.node_id, set()).add(winner.row.node_id)
        return [_labelled(by_id[node_id], winners.get(node_id, set())) for node_id in order]

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
                and alike(row, each.row) >= SAME_TOPIC_MIN
            ]
            hygiene = " ".join((*filter(None, (hygiene,)), *(f"⚔ conflicts with {each}" for each in sorted(rivals))))
        return Neighbour(row, kind, hit.row.node_id, f"(+1 hop from {hit.row.node_id})", hygiene)


def alike(one: NodeRow, other: NodeRow) -> float:
    """0 to 1: how far two nodes are about the same; 0 where their types differ or one replaces the other."""
    if one.type != other.type:
        return 0.0
    first, second = node_of(one), node_of(other)
    if other.node_id in _named(first.supersedes, first.superseded_by):
        return 0.0
    if one.node_id in _named(second.supersedes, second.superseded_by):
        return 0.0
    topics = terms.topic(first), terms.topic(second)
    union = topics[0] | topics[1]
    return len(topics[0] & topics[1]) / len(union) if union else 0.0


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

"""What an agent needs to answer one question from memory, in one piece and within a budget (OKF contract §7.2, §7.5).

    found = search(question)                          the best hits, and their neighbours
    pack = assembled(question, found, read, ...)      nodes in full, the paths to cite, and what is not covered

The pack is data: the answer is for the agent to write. Whatever stands in a node is untrusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from memoree.okf import dates, detectors, frontmatter, tokens
from memoree.okf.answer_rules import HIT_READS_MIN, HITS_MAX, READS_MAX
from memoree.okf.answer_text import CLOSING_HEADING
from memoree.okf.answer_words import content_words
from memoree.okf.ids import path_of
from memoree.okf.node import Node, parse

TOKEN_BUDGET_DEFAULT = 6_000
TOKEN_BUDGET_MIN, TOKEN_BUDGET_MAX = 500, 200_000
HOPS_BEFORE_HITS_MAX = 2
"""Neighbours that are read before the hits below the third."""
NEIGHBOURS_MAX = 20
OLD_DAYS = 60
"""From that age of the newest node on, the pack says that all of them are old."""
TITLE_CHARS_MAX, LABEL_CHARS_MAX = 200, 400
CONTENT_CHARS_MIN = 160
"""Less of a node is not worth showing."""
UNMATCHED_WORDS_MAX, WORD_CHARS_MAX = 16, 40
SUBJECT_TYPES = frozenset(("entity", "user", "project", "plan", "decision", "idea", "identity"))
"""Types, in lower case, of nodes that a question can be about: their neighbours are read too (§7.3)."""
CONFLICT_MARK = "⚔"
"""In labels of hits that contradict another one."""
DATED_BY = ("timestamp", "agreed_on", "date", "valid_from")
"""What tells how old a node is, the first that does."""

Json = dict[str, Any]
Read = Callable[[str], bytes | None]
"""The file of a node, or `None` where it is not there or not for this reader."""


@dataclass(frozen=True, slots=True)
class PackHit:
    """`hygiene` is its label, empty for none."""

    id: str
    type: str
    title: str
    score: float
    snippet: str
    hygiene: str


@dataclass(frozen=True, slots=True)
class PackNeighbour:
    id: str
    type: str
    title: str
    kind: str
    expanded_from: str
    hygiene: str


@dataclass(frozen=True, slots=True)
class Found:
    """At most `HITS_MAX` hits, best first, and at most `NEIGHBOURS_MAX` neighbours of theirs."""

    mode: str
    hits: Sequence[PackHit]
    neighbours: Sequence[PackNeighbour]


@dataclass(frozen=True, slots=True)
class _Reading:
    """A node that the pack may hold, with all its text; `size` is that of the text as JSON, in characters, `labels` say
    what in it reads like instructions."""

    found: PackHit | PackNeighbour
    text: str
    node: Node
    size: int
    labels: list[str]

    @property
    def path(self) -> str:
        return path_of(self.found.id)

    @property
    def date(self) -> int | None:
        known = (dates.milliseconds(self.node.text(name)) for name in DATED_BY)
        return next((instant for instant in known if instant is not None), None)


def assembled(question: str, found: Found, read: Read, *, at_ms: int, token_budget: int = TOKEN_BUDGET_DEFAULT) -> Json:
    """The pack: `hits`, `nodes` with their text, `cite`, `gaps`. All of it but the question, as JSON, costs at most
    `token_budget`: long nodes are cut, then the last ones are set aside, and both is told among the gaps."""
    readings, hidden = _read(plan(question, found), read)
    found = replace(found, hits=[hit for hit in found.hits[:HITS_MAX] if hit.id not in hidden])
    chars_max = token_budget * tokens.CHARS_PER_TOKEN
    for draft in _drafts(question, found, readings, at_ms, token_budget):
        room = chars_max - _encoded(draft.to_json([""] * len(draft.readings)))
        sizes = [reading.size for reading in draft.readings]
        if room < sum(min(size, CONTENT_CHARS_MIN) for size in sizes):
            continue
        shown = [_cut(each.text, share) for each, share in zip(draft.readings, _shares(sizes, room), strict=True)]
        pack = draft.to_json(shown)
        pack["tokens"] = tokens.tokens_of(_encoded(pack))
        return {"question": question, **pack}
    raise AssertionError("the least budget holds a pack without hits")


def plan(question: str, found: Found) -> list[PackHit | PackNeighbour]:
    """What to read, in order: the first hits, neighbours of those that the question is about, the other hits."""
    asked = content_words(question)
    first = found.hits[:HIT_READS_MIN]
    subjects = {hit.id for hit in first if hit.type.lower() in SUBJECT_TYPES and content_words(hit.title) & asked}
    hops = [neighbour for neighbour in found.neighbours if neighbour.expanded_from in subjects]
    early, late = hops[:HOPS_BEFORE_HITS_MAX], hops[HOPS_BEFORE_HITS_MAX:]
    return [*first, *early, *found.hits[HIT_READS_MIN:HITS_MAX], *late]


def _read(planned: Sequence[PackHit | PackNeighbour], read: Read) -> tuple[list[_Reading], set[str]]:
    """As many nodes as may be read, and ids of secrets, which should not have been found and are not told of."""
    readings: list[_Reading] = []
    hidden: set[str] = set()
    for each in planned:
        if len(readings) == READS_MAX:
            break
        if (data := read(each.id)) is None:
            continue
        node, text = parse(each.id, data), frontmatter.normalised(data)
        if node.is_secret:
            hidden.add(each.id)
        else:
            readings.append(_Reading(each, text, node, _encoded(text), detectors.labels(text)))
    return readings, hidden


# --- one pack ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Draft:
    """A pack of these hits and nodes, whatever is shown of their text."""

    question: str
    mode: str
    hits: Sequence[PackHit]
    hit_count: int
    """Hits before some of them were left out."""
    readings: Sequence[_Reading]
    has_snippets: bool
    at_ms: int
    token_budget: int

    def to_json(self, shown: Sequence[str]) -> Json:
        nodes = [self._node(reading, text) for reading, text in zip(self.readings, shown, strict=True)]
        return {
            "as_of": dates.iso(self.at_ms),
            "mode": self.mode,
            "k": HITS_MAX,
            "token_budget": self.token_budget,
            "tokens": self.token_budget,
            "content_is_untrusted": True,
            "hits": [self._hit(hit) for hit in self.hits],
            "nodes": nodes,
            "cite": [node["path"] for node in nodes],
            "gaps": [
                *self._gaps_of_search(),
                *self._gaps_of_text(shown),
                *self._gaps_of_time(),
                *self._gaps_of_trust(),
            ],
            "closing_heading": CLOSING_HEADING,
        }

    def _hit(self, hit: PackHit) -> Json:
        is_read = any(reading.found is hit for reading in self.readings)
        return {
            "id": hit.id,
            "path": path_of(hit.id),
            "type": hit.type,
            "title": hit.title[:TITLE_CHARS_MAX],
            "score": round(hit.score, 4),
            "snippet": hit.snippet if self.has_snippets and not is_read else None,
            "hygiene": hit.hygiene[:LABEL_CHARS_MAX] or None,
            "is_read": is_read,
        }

    def _node(self, reading: _Reading, shown: str) -> Json:
        found = reading.found
        hop = {"kind": found.kind, "expandedFrom": found.expanded_from} if isinstance(found, PackNeighbour) else {}
        return {
            "id": found.id,
            "path": reading.path,
            "type": found.type,
            "title": found.title[:TITLE_CHARS_MAX],
            "reached": "hop" if hop else "hit",
            **hop,
            "hygiene": found.hygiene[:LABEL_CHARS_MAX] or None,
            "date": None if reading.date is None else dates.date(reading.date),
            "truncated": len(shown) < len(reading.text),
            "content": shown,
        }

    def _gaps_of_search(self) -> Iterator[Json]:
        if self.hit_count == 0:
            yield {"gap": "no_hits"}
        read = {reading.found.id for reading in self.readings}
        for hit in self.hits:
            if hit.id not in read:
                yield {"gap": "set_aside", "path": path_of(hit.id), "title": hit.title[:TITLE_CHARS_MAX]}
        if len(self.hits) < self.hit_count:
            yield {"gap": "hits_left_out", "count": self.hit_count - len(self.hits)}

    def _gaps_of_text(self, shown: Sequence[str]) -> Iterator[Json]:
        covered = content_words(" ".join(shown))
        unmatched = sorted(content_words(self.question) - covered)
        if unmatched:
            yield {
                "gap": "unmatched_words",
                "words": [each[:WORD_CHARS_MAX] for each in unmatched[:UNMATCHED_WORDS_MAX]],
            }
        for reading, text in zip(self.readings, shown, strict=True):
            if len(text) < len(reading.text):
                left_out = tokens.tokens_of(len(reading.text) - len(text))
                yield {"gap": "cut", "path": reading.path, "tokens_left_out": left_out}

    def _gaps_of_time(self) -> Iterator[Json]:
        known = [(reading, reading.date) for reading in self.readings]
        dated = [instant for _, instant in known if instant is not None]
        for reading, instant in known:
            if instant is None:
                yield {"gap": "undated", "path": reading.path}
            else:
                yield {"gap": "age", "path": reading.path, "date": dates.date(instant), "age_days": self._days(instant)}
        if len(dated) > 1 and len({dates.date(instant) for instant in dated}) == 1:
            yield {"gap": "same_day", "date": dates.date(dated[0])}
        if dated and self._days(max(dated)) >= OLD_DAYS:
            yield {"gap": "all_old", "newest": dates.date(max(dated)), "age_days": self._days(max(dated))}

    def _gaps_of_trust(self) -> Iterator[Json]:
        for reading in self.readings:
            label = reading.found.hygiene[:LABEL_CHARS_MAX]
            if label:
                gap = "conflict" if CONFLICT_MARK in label else "hygiene"
                yield {"gap": gap, "path": reading.path, "label": label}
            if reading.labels:
                yield {"gap": "instruction_like", "path": reading.path, "labels": reading.labels}

    def _days(self, instant_ms: int) -> int:
        """Below zero for what is to come."""
        return (self.at_ms - instant_ms) // dates.DAY_MS


def _drafts(
    question: str, found: Found, readings: Sequence[_Reading], at_ms: int, token_budget: int
) -> Iterator[_Draft]:
    """The fullest pack first, then ever smaller ones."""
    hits = found.hits
    sizes = [
        (len(hits), count, has_snippets) for count in range(len(readings), -1, -1) for has_snippets in (True, False)
    ]
    sizes += [(count, 0, False) for count in range(len(hits) - 1, -1, -1)]
    for hit_count, node_count, has_snippets in sizes:
        chosen = readings[:node_count]
        yield _Draft(question, found.mode, hits[:hit_count], len(hits), chosen, has_snippets, at_ms, token_budget)


def _encoded(value: object) -> int:
    """Characters of a value as JSON."""
    return len(orjson.dumps(value).decode())


def _shares(sizes: Sequence[int], room: int) -> list[int]:
    """How much of the room each may take: the small ones what they need, the others the same."""
    shares = [0] * len(sizes)
    waiting = sorted(range(len(sizes)), key=lambda at: (sizes[at], at))
    for done, at in enumerate(waiting):
        shares[at] = min(sizes[at], room // (len(waiting) - done))
        room -= shares[at]
    return shares


def _cut(text: str, chars_max: int) -> str:
    """As much of the beginning as encodes to so many characters, up to the end of a line where that costs little."""
    size = _encoded(text)
    if size <= chars_max:
        return text
    kept = text[:chars_max]
    while kept and (size := _encoded(kept)) > chars_max:
        kept = kept[: min(len(kept) - 1, len(kept) * chars_max // size)]
    line_end = kept.rfind("\n") + 1
    return kept[:line_end] if 2 * line_end > len(kept) else kept

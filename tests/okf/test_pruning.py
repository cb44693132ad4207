"""The ranker leaves out most of a bundle early; it answers what it would if it scored every node."""

from __future__ import annotations

import math
import time
from collections import Counter

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from memoree.database import okf as rows
from memoree.okf import files, terms
from memoree.okf.dialect import Dialect
from memoree.okf.frontmatter import Fields
from memoree.okf.hygiene import Activity
from memoree.okf.indexing import index
from memoree.okf.node import Node, parse
from memoree.okf.ranking import K1, B, Corpus, Query

AT_MS = 1_780_000_000_000
WORDS = ("rye", "oven", "salt", "flour", "van", "lake", "the", "of")


def no_activity(_: str) -> Activity | None:
    return None


def scored(nodes: list[Node], corpus: Corpus, query: str) -> dict[str, float]:
    """BM25 of every node by the formula of the contract, times what it counts."""
    counted = {node.id: Counter(terms.tokens(terms.document(node))) for node in nodes}
    average = sum(each.total() for each in counted.values()) / len(counted)
    found: dict[str, float] = {}
    for node_id, frequencies in counted.items():
        raw = 0.0
        for token in terms.tokens(query):
            having = sum(token in each for each in counted.values())
            idf = math.log((len(counted) - having + 0.5) / (having + 0.5) + 1)
            f = frequencies[token]
            raw += idf * f * (K1 + 1) / (f + K1 * (1 - B + B * frequencies.total() / average))
        if raw > 0:
            row = rows.by_id(corpus._db, files.BUNDLE, node_id)
            assert row is not None
            found[node_id] = raw * corpus.state(row).multiplier
    return found


bodies = some.lists(some.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
fronts = some.sampled_from(
    ["importance: 1", "importance: 5", "deprecated: true", "timestamp: 2020-01-01", "superseded_by: /ghost.md", "x: y"]
)


@pytest.mark.proves("okf-59")
@settings(max_examples=150, deadline=None)
@given(
    some.lists(some.tuples(fronts, bodies), min_size=1, max_size=40),
    some.lists(some.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join),
    some.integers(1, 8),
)
def test_leaving_nodes_out_early_changes_no_answer(written: list[tuple[str, str]], query: str, k: int) -> None:
    nodes = [
        parse(f"n{at:02}", f"---\ntype: T{at}\n{front}\n---\n{body}\n".encode(), Dialect.SERVICE)
        for at, (front, body) in enumerate(written)
    ]
    db = rows.empty()
    for row_id, node in enumerate(nodes, start=1):
        index(db, node, row_id=row_id, bundle=files.BUNDLE, revision_row=row_id)
    corpus = Corpus(db, files.BUNDLE, no_activity, Query(query, AT_MS, k))
    hits = corpus.search().hits
    wanted = sorted(scored(nodes, corpus, query).items(), key=lambda each: (-round(each[1], 9), each[0]))[:k]
    assert [(hit.row.node_id, round(hit.score, 9)) for hit in hits] == [(each[0], round(each[1], 9)) for each in wanted]


NODES = 10_000
RATIO_MAX = 3.0
TRIES = 5


def bundle_of(types: int) -> apsw.Connection:
    db = rows.empty()
    with db:
        for at in range(NODES):
            fields: Fields = {
                "type": f"T{at % types}",
                "title": f"bread of kind {at % 37}",
                "tags": ["rye", f"n{at % 11}"],
            }
            node = Node(f"n{at}", fields, f"rye w{at % 97} {at}")
            index(db, node, row_id=at + 1, bundle=files.BUNDLE, revision_row=at + 1)
    return db


@pytest.mark.proves("okf-113")
def test_a_search_costs_the_same_however_many_nodes_are_of_one_type() -> None:
    def seconds(db: apsw.Connection) -> float:
        best = math.inf
        for _ in range(TRIES):
            began = time.process_time()
            for query in ("rye w7", "bread kind", "rye w7 w8 n3"):
                assert Corpus(db, files.BUNDLE, no_activity, Query(query, AT_MS, expand_budget=5)).search().hits
            best = min(best, time.process_time() - began)
        return best

    one, many = seconds(bundle_of(1)), seconds(bundle_of(100))
    assert one <= RATIO_MAX * many, f"{one:.3f} s of one type, {many:.3f} s of a hundred"

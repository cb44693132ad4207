"""What the reference program answers over the golden bundle, this ranker answers too."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from memoree.database import okf as rows
from memoree.okf import (
    bundle,
    dates,
    exporting,
    files,
    frontmatter,
    fusion,
    graph,
    hygiene,
    ids,
    ranking,
    relations,
    snippets,
    terms,
)
from memoree.okf.bundle import Tiers
from memoree.okf.dialect import Dialect
from memoree.okf.hygiene import Activity

from .golden import BUNDLE, as_of_ms, corpus, expected, loaded, needs_golden, search, vectors

pytestmark = needs_golden

SCORE_TOLERANCE = 1.5e-6
"""The vectors have six decimals, rounded as JavaScript rounds."""


def tiers_of(vector: dict[str, Any]) -> Tiers:
    return Tiers(
        secret=vector.get("includeSecret", False),
        mirror=vector.get("includeMirror", False),
        inbox=vector.get("includeInbox", False),
    )


def query_of(vector: dict[str, Any], *, budget: int | None = None) -> ranking.Query:
    return ranking.Query(
        vector["query"],
        as_of_ms(),
        vector["k"],
        tiers=tiers_of(vector),
        include_superseded=vector.get("includeSuperseded", False),
        exclude_source=vector.get("excludeSource"),
        expand_budget=budget,
    )


WALKS = {
    "default": (Tiers(), 28),
    "secret": (Tiers(secret=True), 30),
    "mirror": (Tiers(mirror=True), 29),
    "inbox": (Tiers(inbox=True), 29),
}


@pytest.mark.proves("okf-1")
@pytest.mark.parametrize("name", WALKS)
@pytest.mark.parametrize("dialect", Dialect)
def test_a_walk_finds_exactly_the_nodes_of_its_tiers(name: str, dialect: Dialect) -> None:
    tiers, count = WALKS[name]
    found = [node.id for node in bundle.nodes(BUNDLE, dialect, tiers) if not node.is_reserved]
    assert sorted(found) == sorted(expected()["walk"][name])
    assert len(found) == count


@pytest.mark.proves("okf-37")
@pytest.mark.parametrize("vector", vectors("recall"), ids=lambda vector: vector["query"])
@pytest.mark.parametrize("dialect", Dialect)
def test_recall_has_the_same_hits_in_the_same_order_with_the_same_scores_and_labels(
    vector: dict[str, Any], dialect: Dialect
) -> None:
    hits = search(query_of(vector), dialect).hits
    assert [(hit.row.node_id, hit.row.type, hit.row.title, hit.label) for hit in hits] == [
        (hit["id"], hit["type"], hit["title"], hit["label"]) for hit in vector["hits"]
    ]
    assert [hit.score for hit in hits] == pytest.approx([hit["score"] for hit in vector["hits"]], abs=SCORE_TOLERANCE)
    assert [hit.raw for hit in hits] == pytest.approx([hit["raw"] for hit in vector["hits"]], abs=SCORE_TOLERANCE)


def test_all_twenty_queries_are_there() -> None:
    assert len(vectors("recall")) == 20


@pytest.mark.proves("okf-37")
def test_the_statistics_of_the_pool_are_those_of_the_reference() -> None:
    wanted = expected()["corpus"]
    db, nodes = loaded(Dialect.COMPAT)
    stale = {vector["id"] for vector in vectors("hygiene") if vector["stale"]}
    pool = [node_id for node_id in expected()["walk"]["default"] if node_id not in stale]
    lengths = {node_id: len(terms.tokens(terms.document(nodes[node_id]))) for node_id in pool}
    assert len(pool) == wanted["pool"]
    assert sum(lengths.values()) / len(pool) == pytest.approx(wanted["avgdl"], abs=SCORE_TOLERANCE)
    assert lengths["concepts/echo"] == wanted["len_echo"]
    assert lengths["concepts/flour-supplier"] == wanted["len_flour_supplier"]
    rows_of_pool = {row.row_id for row in rows.every(db, files.BUNDLE) if row.node_id in lengths}
    assert rows.posting_count_among(db, files.BUNDLE, "rye", rows_of_pool) == wanted["df_rye"]


@pytest.mark.proves("okf-37", "okf-40", "okf-41")
@pytest.mark.parametrize("vector", vectors("docText"), ids=lambda vector: vector["id"])
def test_the_text_of_a_node_that_is_searched(vector: dict[str, Any]) -> None:
    assert terms.document(loaded(Dialect.COMPAT)[1][vector["id"]]) == vector["text"]


@pytest.mark.proves("okf-42", "okf-43", "okf-47", "okf-48")
@pytest.mark.parametrize("vector", vectors("hygiene"), ids=lambda vector: vector["id"])
def test_a_node_counts_and_is_labelled_as_it_stands(vector: dict[str, Any]) -> None:
    view = corpus(ranking.Query("rye", as_of_ms()))
    row = rows.by_id(loaded(Dialect.COMPAT)[0], files.BUNDLE, vector["id"])
    assert row is not None
    state = view.state(row)
    assert state.multiplier == pytest.approx(vector["mult"], abs=SCORE_TOLERANCE)
    assert (state.is_stale, state.label) == (vector["stale"], vector["label"])
    assert state.importance == pytest.approx(vector["importance"], abs=SCORE_TOLERANCE)
    assert hygiene.decay(state.type, state.dates.timestamp, as_of_ms()) == pytest.approx(
        vector["decay"], abs=SCORE_TOLERANCE
    )
    heat = hygiene.heat(state.activity, as_of_ms())
    assert heat == pytest.approx(vector["heat"], abs=SCORE_TOLERANCE)
    assert hygiene.tier(heat) == vector["tier"]


def test_exactly_the_pairs_of_the_reference_contradict_each_other() -> None:
    db, nodes = loaded(Dialect.COMPAT)
    view = corpus(ranking.Query("rye", as_of_ms()))
    alive = [
        row
        for row in rows.every(db, files.BUNDLE)
        if row.node_id in expected()["walk"]["default"]
        and not view.state(row).is_stale
        and row.deprecated_on is None
        and nodes[row.node_id]
    ]
    found = [
        {"a": one.node_id, "b": other.node_id, "type": one.type, "score": view.alike(one, other)}
        for one, other in combinations(alive, 2)
        if view.alike(one, other) >= ranking.SAME_TOPIC_MIN
    ]
    assert found == vectors("contradictions")


@pytest.mark.proves("okf-60")
@pytest.mark.parametrize("vector", vectors("expand"), ids=lambda vector: f"{vector['query']}/{vector['budget']}")
@pytest.mark.parametrize("dialect", Dialect)
def test_hits_expand_to_the_same_neighbours_in_the_same_order(vector: dict[str, Any], dialect: Dialect) -> None:
    answer = search(query_of(vector, budget=vector["budget"]), dialect)
    assert answer.expanded is not None
    assert [
        (each.row.node_id, each.kind, each.expanded_from, " ".join(filter(None, (each.label, each.hygiene))))
        for each in answer.expanded
    ] == [(each["id"], each["kind"], each["expandedFrom"], each["label"]) for each in vector["expanded"]]
    assert len(answer.expanded) <= vector["budget"]


@pytest.mark.proves("okf-65")
@pytest.mark.parametrize("vector", vectors("snippet"), ids=lambda vector: vector["query"])
def test_a_snippet_is_the_best_line_with_its_neighbours(vector: dict[str, Any]) -> None:
    body = loaded(Dialect.COMPAT)[1][vector["id"]].body
    assert snippets.snippet(body, terms.tokens(vector["query"]), chars_max=None) == vector["snippet"]


@pytest.mark.proves("okf-33")
@pytest.mark.parametrize("dialect", Dialect)
def test_the_graph_has_the_same_edges_orphans_and_broken_ones(dialect: Dialect) -> None:
    wanted = expected()["links"]
    found = graph.of_bundle(BUNDLE, dialect).to_json()
    assert found["edges"] == wanted["edges"]
    assert found["orphans"] == wanted["orphans"]
    assert found["broken"] == wanted["broken"]
    assert len(found["nodes"]) == wanted["nodes"]
    counts = ("mdEdges", "relCount", "supersedeCount", "totalEdges")
    assert {name: found[name] for name in counts} == {name: wanted[name] for name in counts}


@pytest.mark.proves("okf-38")
@pytest.mark.parametrize("vector", vectors("tokenize"), ids=lambda vector: vector["in"])
def test_text_becomes_the_same_tokens(vector: dict[str, Any]) -> None:
    assert terms.tokens(vector["in"]) == vector["out"]


@pytest.mark.proves("okf-38")
@pytest.mark.parametrize("vector", vectors("stemRu"), ids=lambda vector: vector["in"])
def test_russian_words_lose_the_same_endings(vector: dict[str, Any]) -> None:
    assert terms.stem(vector["in"]) == vector["out"]


@pytest.mark.proves("okf-48")
@pytest.mark.parametrize("vector", vectors("importance"), ids=lambda vector: repr(vector["in"]))
def test_importance_is_the_same_factor(vector: dict[str, Any]) -> None:
    assert hygiene.importance(vector["in"]) == pytest.approx(vector["out"], abs=SCORE_TOLERANCE)


@pytest.mark.proves("okf-48")
@pytest.mark.parametrize("vector", vectors("decay"), ids=lambda vector: str(vector["age_days"]))
def test_age_takes_the_same_factor_and_timeless_types_keep_one(vector: dict[str, Any]) -> None:
    age_ms = vector["age_days"] * dates.DAY_MS
    assert hygiene.decay("Concept", 0, age_ms) == pytest.approx(vector["concept"], abs=SCORE_TOLERANCE)
    for timeless in ("Identity", "User", "EngineRule"):
        assert hygiene.decay(timeless, 0, age_ms) == vector["identity"] == 1


@pytest.mark.proves("okf-48")
@pytest.mark.parametrize("vector", vectors("heat"), ids=lambda vector: f"{vector['age_days']}d {vector['count']}")
def test_recent_work_heats_a_topic_as_much(vector: dict[str, Any]) -> None:
    heat = hygiene.heat(Activity(vector["count"], 0), vector["age_days"] * dates.DAY_MS)
    assert heat == pytest.approx(vector["score"], abs=SCORE_TOLERANCE)
    assert 1 + hygiene.HEAT_BOOST * heat == pytest.approx(vector["mult"], abs=SCORE_TOLERANCE)
    assert hygiene.tier(heat) == vector["tier"]


@pytest.mark.parametrize("vector", vectors("authority"), ids=lambda vector: repr(vector["in"]))
def test_authority_is_the_same_number(vector: dict[str, Any]) -> None:
    assert hygiene.authority(vector["in"]) == vector["out"]


@pytest.mark.proves("okf-56")
def test_rankings_are_fused_by_reciprocal_ranks() -> None:
    fused = fusion.by_reciprocal_ranks(["x", "y", "z"], ["y", "z", "x"], ["w"])
    assert [node_id for node_id, _ in fused] == [vector["id"] for vector in vectors("rrf")]
    assert [score for _, score in fused] == pytest.approx([vector["score"] for vector in vectors("rrf")], abs=1e-8)


@pytest.mark.parametrize("vector", vectors("relationKinds"), ids=lambda vector: repr(vector["in"]))
def test_keys_of_relations_stand_for_the_same_kinds(vector: dict[str, Any]) -> None:
    kind = relations.kind_of(vector["in"])
    assert (kind.key_class, kind.kind, kind.is_reversed) == (vector["class"], vector["kind"], vector["reverse"])
    assert (kind.key_class == "edge") == vector["expandable"]


@pytest.mark.proves("okf-60")
def test_kinds_are_walked_in_the_same_order() -> None:
    assert list(relations.WALK_ORDER) == vectors("walkOrder")


@pytest.mark.proves("okf-18")
@pytest.mark.parametrize("vector", vectors("agentName"), ids=lambda vector: repr(vector["in"]))
def test_agents_go_by_the_same_names(vector: dict[str, Any]) -> None:
    assert ids.agent_name(vector["in"]) == vector["out"]


@pytest.mark.proves("okf-16")
@pytest.mark.parametrize("vector", vectors("safeId"), ids=lambda vector: repr(vector["in"]))
def test_the_guard_lets_the_same_ids_through(vector: dict[str, Any]) -> None:
    if "ok" in vector:
        assert ids.safe_id(vector["in"], Dialect.COMPAT) == vector["ok"]
    else:
        assert vector["error"] == "INVALID_ID"
        for dialect in Dialect:
            with pytest.raises(ids.InvalidId):
                ids.safe_id(vector["in"], dialect)


@pytest.mark.proves("okf-101")
@pytest.mark.parametrize("vector", vectors("visibility"), ids=lambda vector: repr(vector["in"]))
def test_visibilities_have_the_same_ranks(vector: dict[str, Any]) -> None:
    assert exporting.visibility_rank(vector["in"]) == vector["rank"]


@pytest.mark.proves("okf-103")
@pytest.mark.parametrize("vector", vectors("okfVersion"), ids=lambda vector: repr(vector["in"]))
def test_an_index_gets_the_same_version_in_the_same_place(vector: dict[str, Any]) -> None:
    assert exporting.with_okf_version(vector["in"]) == vector["out"]
    assert exporting.with_okf_version(vector["out"]) == vector["out"], "and no second one"


@pytest.mark.proves("okf-5")
@pytest.mark.parametrize("vector", vectors("frontmatter"), ids=lambda vector: repr(vector["in"]))
def test_front_matter_parses_to_the_same_map(vector: dict[str, Any]) -> None:
    assert frontmatter.parse_lines(vector["in"]) == vector["out"]
    assert frontmatter.read(f"---\n{vector['in']}\n---\nbody", Dialect.COMPAT) == frontmatter.FrontMatter(
        vector["out"], "body"
    )

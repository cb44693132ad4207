"""How nodes are ranked, left out, labelled and expanded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.okf import dates, hygiene, snippets, terms
from memoree.okf.dialect import Dialect
from memoree.okf.hygiene import Activity, Dates, State
from memoree.okf.ranking import Query

from .bundle_support import AT, hits, milliseconds, node, search, write
from .golden import BUNDLE, as_of_ms, needs_golden
from .golden import search as golden

Files = dict[str, "str | bytes"]


@pytest.mark.proves("okf-38")
@needs_golden
def test_a_word_with_a_hyphen_is_one_word() -> None:
    assert [hit.row.node_id for hit in golden(Query("stone-ground", as_of_ms())).hits] == ["concepts/flour-supplier"]
    assert golden(Query("stone", as_of_ms())).hits == []


@pytest.mark.proves("okf-39")
@needs_golden
def test_a_word_said_twice_counts_exactly_twice() -> None:
    once = {hit.row.node_id: hit.score for hit in golden(Query("rye", as_of_ms(), 20)).hits}
    twice = {hit.row.node_id: hit.score for hit in golden(Query("rye rye", as_of_ms(), 20)).hits}
    assert len(once) > 5
    assert twice == pytest.approx({node_id: 2 * score for node_id, score in once.items()}, abs=1e-12)


@pytest.mark.proves("okf-40", "okf-41")
@pytest.mark.parametrize("dialect", Dialect)
def test_fences_and_targets_of_links_are_not_searched_inline_code_and_texts_of_links_are(
    tmp_path: Path, dialect: Dialect
) -> None:
    body = "Word.\n\n```sh\nfenced here\n```\n\nSome `inlined` code, a [shown](/concepts/pointed.md) link.\n"
    root = write(tmp_path, {"a.md": node(body), "concepts/pointed.md": node("Other.")})
    assert hits(root, "fenced", dialect=dialect) == []
    assert hits(root, "pointed", dialect=dialect) == []
    assert hits(root, "inlined", dialect=dialect) == ["a"]
    assert hits(root, "shown", dialect=dialect) == ["a"]


STALE: Files = {
    "alive.md": node("Quokka."),
    "replaced.md": node("Quokka."),
    "new.md": node("Wombat.", supersedes="/replaced.md"),
    "ended.md": node("Quokka.", invalid_at="2026-05-15"),
    "coming.md": node("Quokka.", valid_from="2027-01-01"),
    "points.md": node("Quokka.", superseded_by="/new.md"),
    "self.md": node("Quokka.", supersedes="/self.md"),
}


@pytest.mark.proves("okf-42", "okf-43")
@pytest.mark.parametrize("dialect", Dialect)
def test_what_is_stale_is_absent_or_asked_for_lower_and_labelled(tmp_path: Path, dialect: Dialect) -> None:
    root = write(tmp_path, STALE)
    assert hits(root, "quokka", dialect=dialect) == ["alive"]
    answer = search(root, "quokka", dialect=dialect, include_superseded=True, k=10)
    assert {hit.row.node_id: hit.label for hit in answer.hits} == {
        "alive": "",
        "replaced": "[superseded by /new.md]",
        "ended": "⤳ superseded (invalid_at 2026-05-15)",
        "coming": "⤳ not yet valid (valid_from 2027-01-01)",
        "points": "⤳ superseded by /new.md",
        "self": "[superseded by /self.md]",
    }
    for hit in answer.hits[1:]:
        assert hit.score == pytest.approx(0.35 * hit.raw)
    assert answer.hits[0].score == answer.hits[0].raw


@pytest.mark.proves("okf-42")
def test_a_node_that_is_stale_itself_still_replaces_another(tmp_path: Path) -> None:
    files: Files = {
        "one.md": node("Quokka."),
        "two.md": node("Quokka.", supersedes="/one.md"),
        "three.md": node("Quokka.", supersedes="/two.md"),
    }
    assert hits(write(tmp_path, files), "quokka") == ["three"]


@pytest.mark.proves("okf-44")
@needs_golden
def test_a_pointer_to_a_missing_replacement_lowers_and_does_not_drop(tmp_path: Path) -> None:
    root = shutil.copytree(BUNDLE, tmp_path / "bundle", copy_function=shutil.copyfile)
    for folder in (root, *(each for each in root.rglob("*") if each.is_dir())):
        folder.chmod(0o700)
    menu = root / "concepts" / "spring-menu.md"
    menu.write_text(menu.read_text().replace("/concepts/menu-now.md", "/concepts/gone.md"))
    for dialect in Dialect:
        found = search(root, "menu", dialect=dialect).hits
        assert [(hit.row.node_id, round(hit.score, 3), hit.label) for hit in found] == [
            ("concepts/menu-now", 2.328, ""),
            ("concepts/spring-menu", 1.410, "⤳ superseded by /concepts/gone.md"),
        ]


@pytest.mark.proves("okf-45")
@pytest.mark.parametrize("dialect", Dialect)
def test_what_is_deprecated_stays_lower_and_labelled_with_the_day(tmp_path: Path, dialect: Dialect) -> None:
    files: Files = {
        "a.md": node("Quokka.", deprecated="true", deprecated_on="2026-05-20T08:00:00.000Z"),
        "b.md": node("Quokka."),
        "c.md": node("Quokka.", deprecated="true"),
        "d.md": node("Quokka.", deprecated="false"),
    }
    found = search(write(tmp_path, files), "quokka", dialect=dialect).hits
    assert [(hit.row.node_id, hit.label) for hit in found] == [
        ("b", ""),
        ("d", ""),
        ("a", "[deprecated 2026-05-20]"),
        ("c", "[deprecated]"),
    ]
    assert [hit.score / hit.raw for hit in found] == pytest.approx([1, 1, 0.35, 0.35])


@pytest.mark.proves("okf-46")
@needs_golden
@pytest.mark.parametrize(
    ("at", "present", "absent"),
    [
        ("2026-05-14T23:59:59Z", "concepts/summer-menu", "concepts/winter-menu"),
        ("2026-05-15", "concepts/menu-now", "concepts/summer-menu"),
        ("2026-12-31T23:59:59Z", "concepts/menu-now", "concepts/winter-menu"),
        ("2027-01-01", "concepts/winter-menu", "concepts/summer-menu"),
    ],
)
def test_a_node_holds_from_its_first_instant_up_to_its_last(at: str, present: str, absent: str) -> None:
    found = [hit.row.node_id for hit in golden(Query("menu", milliseconds(at))).hits]
    assert present in found
    assert absent not in found


@pytest.mark.proves("okf-46")
def test_zones_and_dates_without_one_mean_the_same_instant(tmp_path: Path) -> None:
    files: Files = {
        "a.md": node("Quokka.", invalid_at="2026-05-15T02:00:00+02:00"),
        "b.md": node("Quokka.", invalid_at="2026-05-15"),
        "c.md": node("Quokka.", invalid_at="2026-05-15T00:00"),
        "d.md": node("Quokka.", invalid_at="some day"),
    }
    root = write(tmp_path, files)
    assert hits(root, "quokka", at="2026-05-14T23:59:59.999Z") == ["a", "b", "c", "d"]
    assert hits(root, "quokka", at="2026-05-15T00:00:00Z") == ["d"], "what is no instant bounds nothing"


def state(**changes: object) -> State:
    clean: dict[str, object] = {
        "type": "Concept",
        "importance": 1.0,
        "dates": Dates(None, None, None),
        "deprecated_on": None,
        "superseders": [],
        "superseded_by": [],
        "superseder_exists": False,
        "activity": None,
        "at_ms": milliseconds(AT),
    }
    return State(**(clean | changes))  # type: ignore[arg-type]  # what a test names is of the right type


@pytest.mark.proves("okf-47")
def test_a_clean_node_counts_once_and_importance_lifts_none_above_that() -> None:
    assert state().multiplier == 1.0
    assert state(importance=hygiene.importance("5")).multiplier == 1.0
    assert state(importance=hygiene.importance("1")).multiplier == 0.75
    year_old = Dates(milliseconds(AT) - 450 * dates.DAY_MS, None, None)
    assert state(dates=year_old).multiplier == pytest.approx(0.8)
    assert state(dates=year_old, importance=hygiene.importance("5")).multiplier == 1.0, "it cancels the age"


@pytest.mark.proves("okf-49")
@given(
    importance=st.floats(0, 10).map(str),
    age_days=st.integers(-400, 4000),
    count=st.integers(0, 1000),
    heat_days=st.integers(-40, 40),
    node_type=st.sampled_from(["Concept", "Identity", "User", "EngineRule", "Plan"]),
    deprecated=st.booleans(),
)
def test_no_node_counts_more_than_once_nor_less_than_the_floor(
    importance: str, age_days: int, count: int, heat_days: int, node_type: str, deprecated: bool
) -> None:
    at = milliseconds(AT)
    judged = state(
        type=node_type,
        importance=hygiene.importance(importance),
        dates=Dates(at - age_days * dates.DAY_MS, None, None),
        deprecated_on="2026-01-01" if deprecated else None,
        activity=Activity(count, at - heat_days * dates.DAY_MS),
    )
    low, high = (0.35 * 0.75, 0.35) if deprecated else (0.75, 1.0)
    assert low <= judged.multiplier <= high


@pytest.mark.proves("okf-49")
def test_a_hot_topic_lifts_an_old_node_and_no_fresh_one(tmp_path: Path) -> None:
    files: Files = {"fresh.md": node("Quokka."), "old.md": node("Quokka.", timestamp="2020-01-01")}
    root = write(tmp_path, files)
    busy = {"fresh": Activity(9, milliseconds(AT)), "old": Activity(9, milliseconds(AT))}
    cold = {hit.row.node_id: hit.score / hit.raw for hit in search(root, "quokka").hits}
    hot = {hit.row.node_id: hit.score / hit.raw for hit in search(root, "quokka", activity=busy).hits}
    assert cold == pytest.approx({"fresh": 1.0, "old": 0.75})
    assert hot == pytest.approx({"fresh": 1.0, "old": 0.9})


@pytest.mark.proves("okf-50")
@pytest.mark.parametrize("dialect", Dialect)
def test_a_source_is_left_out_also_where_it_is_one_of_several(tmp_path: Path, dialect: Dialect) -> None:
    files: Files = {
        "a.md": node("Quokka.", source="claude-code"),
        "b.md": node("Quokka.", source="[meeting, claude-code]"),
        "c.md": node("Quokka.", source="claude-code-2"),
        "d.md": node("Quokka."),
    }
    root = write(tmp_path, files)
    assert hits(root, "quokka", dialect=dialect, exclude_source="claude-code") == ["c", "d"]
    assert hits(root, "quokka", dialect=dialect) == ["a", "b", "c", "d"]


@pytest.mark.proves("okf-51")
@needs_golden
def test_who_has_authority_stands_before_who_has_the_words() -> None:
    first, second = golden(Query("van north lighthouse", as_of_ms(), 5)).hits
    assert (first.row.node_id, second.row.node_id) == ("concepts/route-south", "concepts/route-north")
    assert first.score < second.score
    assert (first.label, second.label) == ("", "⚔ conflicts with concepts/route-south")
    alone = golden(Query("van north lighthouse", as_of_ms(), 1)).hits
    assert [(hit.row.node_id, hit.label) for hit in alone] == [("concepts/route-north", "")]


def rivals(tmp_path: Path, one: dict[str, str], other: dict[str, str]) -> list[tuple[str, str]]:
    """Two nodes of one subject; the first has the word more often."""
    files: Files = {
        "one.md": node("Quokka quokka quokka.", title="Delivery route", **one),
        "other.md": node("Quokka and many other words.", title="Delivery route", **other),
    }
    found = search(write(tmp_path, files), "quokka").hits
    assert len(found) == 2
    return [(hit.row.node_id, hit.label) for hit in found]


@pytest.mark.proves("okf-52")
@pytest.mark.parametrize(
    ("one", "other", "winner"),
    [
        ({}, {}, "one"),
        ({"authority": "canon"}, {"authority": "3"}, "one"),
        ({"authority": "canon"}, {"authority": "canon", "timestamp": "2026-05-01"}, "one"),
        ({"authority": "2", "timestamp": "2026-04-01"}, {"authority": "derived", "timestamp": "2026-05-01"}, "other"),
        ({"authority": "observed"}, {"authority": "canon"}, "other"),
        ({"authority": "canon"}, {"timestamp": "2026-05-01"}, "one"),
        ({"timestamp": "2026-04-01"}, {"timestamp": "2026-01-01", "valid_from": "2026-05-01"}, "other"),
        ({"timestamp": "2026-05-01"}, {"timestamp": "2026-04-01"}, "one"),
    ],
)
def test_of_equal_authority_the_later_then_the_higher_is_believed(
    tmp_path: Path, one: dict[str, str], other: dict[str, str], winner: str
) -> None:
    loser = "other" if winner == "one" else "one"
    assert rivals(tmp_path, one, other) == [(winner, ""), (loser, f"⚔ conflicts with {winner}")]


@pytest.mark.proves("okf-53")
@pytest.mark.parametrize(
    "standing",
    [
        {"deprecated": "true"},
        {"invalid_at": "2026-01-01"},
        {"valid_from": "2027-01-01"},
        {"supersedes": "/other.md"},
        {"superseded_by": "/other.md"},
    ],
)
def test_who_no_longer_holds_contradicts_nobody(tmp_path: Path, standing: dict[str, str]) -> None:
    files: Files = {
        "one.md": node("Quokka.", title="Delivery route", **standing),
        "other.md": node("Quokka.", title="Delivery route"),
    }
    found = search(write(tmp_path, files), "quokka", include_superseded=True).hits
    assert len(found) == 2
    assert not [hit for hit in found if "⚔" in hit.label]


def test_nodes_of_other_types_or_subjects_do_not_contradict_each_other(tmp_path: Path) -> None:
    files: Files = {
        "a.md": node("Quokka.", title="Delivery route"),
        "b.md": node("Quokka.", node_type="Plan", title="Delivery route"),
        "c.md": node("Quokka.", title="Oven timetable of the shop"),
    }
    assert [hit.label for hit in search(write(tmp_path, files), "quokka").hits] == ["", "", ""]


@pytest.mark.proves("okf-54")
def test_supersession_under_relations_drops_the_old_node_in_the_service_only(tmp_path: Path) -> None:
    files: Files = {
        "new.md": "---\ntype: Plan\nrelations:\n  supersedes: /old.md\n---\nQuokka.\n",
        "old.md": node("Quokka.", node_type="Plan"),
        "top.md": node("Wombat.", supersedes="/bottom.md"),
        "bottom.md": node("Quokka."),
    }
    root = write(tmp_path, files)
    assert hits(root, "quokka") == ["new"]
    assert hits(root, "quokka", dialect=Dialect.COMPAT) == ["new", "old"]
    labels = {hit.row.node_id: hit.label for hit in search(root, "quokka", include_superseded=True).hits}
    assert labels["old"] == "[superseded by /new.md]"


@pytest.mark.proves("okf-59")
@given(st.permutations(["a", "b", "c/a", "c/b", "d-e", "d/e", "é", "я"]))
def test_nodes_with_equal_scores_stand_in_the_order_of_their_ids(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str]
) -> None:
    files: Files = {f"{node_id}.md": node("Quokka.") for node_id in ids}
    root = write(tmp_path_factory.mktemp("ties"), files)
    assert hits(root, "quokka", k=8) == sorted(ids)
    assert hits(root, "quokka", k=3) == sorted(ids)[:3]


@pytest.mark.proves("okf-60")
def test_kinds_come_in_their_order_whatever_the_order_of_the_file(tmp_path: Path) -> None:
    written = "".join(f"  {key}: /{key[0]}.md\n" for key in ("related", "uses", "informs", "about"))
    hit = f"---\ntype: Concept\nrelations:\n{written}---\nQuokka.\n"
    files: Files = {"hit.md": hit, **{f"{name}.md": node("Wombat.") for name in "riua"}}
    files["m.md"] = "---\ntype: Entity\nrelations:\n  works_at: /hit.md\n---\n"
    files["l.md"] = node("See [it](hit.md).", node_type="Session")
    answer = search(write(tmp_path, files), "quokka", expand_budget=10)
    assert [(each.row.node_id, each.kind) for each in answer.expanded or ()] == [
        ("a", "about"),
        ("m", "member_of"),
        ("i", "informs"),
        ("u", "uses"),
        ("l", "cites"),
        ("r", "related"),
    ]
    for budget in range(7):
        assert search(tmp_path, "quokka", expand_budget=budget).expanded == (answer.expanded or [])[:budget]


@pytest.mark.proves("okf-61")
def test_spawned_by_informs_and_keys_that_are_no_edges_lead_nowhere(tmp_path: Path) -> None:
    hit = (
        "---\ntype: Research\nsupersedes: /s.md\nsuperseded_by: /gone.md\nrelations:\n  spawned_by: /a.md\n"
        "  next: /n.md\n  frobnicates: /f.md\n  cites: /c.md\n  supersedes: /t.md\n---\nQuokka.\n"
    )
    files: Files = {
        "hit.md": hit,
        **{f"{name}.md": node("Wombat.") for name in "snfct"},
        "a.md": node("W.", "Analysis"),
    }
    answer = search(write(tmp_path, files), "quokka", expand_budget=10, include_superseded=True)
    assert [(each.row.node_id, each.kind) for each in answer.expanded or ()] == [("a", "informs")]


@pytest.mark.proves("okf-62")
def test_links_are_followed_back_and_not_forth(tmp_path: Path) -> None:
    files: Files = {
        "hit.md": node("Quokka, see [there](/there.md)."),
        "there.md": node("Wombat."),
        "citing.md": node("As [it](/hit.md) says; `[not](/hit.md)`."),
        "quoting.md": node("```\n[it](/hit.md)\n```\n"),
    }
    answer = search(write(tmp_path, files), "quokka", expand_budget=10)
    assert [(each.row.node_id, each.kind) for each in answer.expanded or ()] == [("citing", "cites")]


@pytest.mark.proves("okf-60")
def test_neighbours_that_are_deprecated_or_stale_are_not_expanded(tmp_path: Path) -> None:
    hit = "---\ntype: Concept\nrelations:\n  uses: [/d.md, /e.md, /gone.md, /../x.md, /hit.md, /f.md]\n---\nQuokka.\n"
    files: Files = {
        "hit.md": hit,
        "d.md": node("W.", deprecated="true"),
        "e.md": node("W.", invalid_at="2026-01-01"),
        "f.md": node("W."),
    }
    root = write(tmp_path, files)
    ordinary = search(root, "quokka", expand_budget=5).expanded
    audit = search(root, "quokka", expand_budget=5, include_superseded=True).expanded
    assert [each.row.node_id for each in ordinary or ()] == ["f"]
    assert [(each.row.node_id, each.hygiene) for each in audit or ()] == [
        ("e", "⤳ superseded (invalid_at 2026-01-01)"),
        ("f", ""),
    ]


@pytest.mark.proves("okf-64")
@needs_golden
@pytest.mark.parametrize("text", ["rye", "bread app", "van north lighthouse", "menu"])
def test_expansion_changes_nothing_about_the_hits(text: str) -> None:
    plain, expanded = golden(Query(text, as_of_ms())), golden(Query(text, as_of_ms(), expand_budget=5))
    assert plain.expanded is None
    assert plain.hits == expanded.hits


@pytest.mark.proves("okf-65")
@given(st.text(max_size=400), st.lists(st.text(min_size=2, max_size=6), max_size=4))
def test_a_snippet_is_a_bounded_part_of_the_body(body: str, query: list[str]) -> None:
    found = snippets.snippet(body, query)
    assert found in body
    assert found.count("\n") <= 2
    assert len(found) <= snippets.SNIPPET_CHARS_MAX


@pytest.mark.proves("okf-65")
def test_the_first_of_equal_lines_and_the_first_lines_without_a_query_are_shown() -> None:
    body = "one\ntwo quokka\nthree\nfour quokka\nfive"
    assert snippets.snippet(body, ["quokka"]) == "one\ntwo quokka\nthree"
    assert snippets.snippet(body, []) == "one\ntwo quokka\nthree"
    assert snippets.snippet(body, ["wombat"]) == "one\ntwo quokka"
    assert snippets.snippet(body, terms.tokens("quokka five")) == "one\ntwo quokka\nthree"
    assert len(snippets.snippet("x" * 5000, ["x" * 10])) == snippets.SNIPPET_CHARS_MAX


@pytest.mark.proves("okf-58")
@pytest.mark.parametrize("text", ["", "   ", "a", "a b c", "…", "!?"])
def test_a_query_without_words_finds_nothing(tmp_path: Path, text: str) -> None:
    assert hits(write(tmp_path, {"a.md": node("a b c")}), text) == []


@pytest.mark.fault_class(30)
@pytest.mark.parametrize(
    "text", ["current.md", "C++ AND x", "NEAR(", "*", "O'Reilly", "a:b", '"', "-band", "NOT x", "%"]
)
def test_a_query_is_words_and_no_syntax(tmp_path: Path, text: str) -> None:
    root = write(tmp_path, {"a.md": node(f"Says {text} here.", title="T"), "b.md": node("Else.")})
    assert hits(root, text) in ([], ["a"])
    assert (hits(root, text) == ["a"]) == bool(terms.tokens(text))

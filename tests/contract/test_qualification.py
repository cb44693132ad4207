"""What counts as an answer (retrieval §2.3, §2.6; assertions 23 to 32, of which 24 and 26 are amended)."""

from __future__ import annotations

import math

import pytest

from .answers import available, only_ref, presence, qualified, recall, statements
from .door import Door, Json
from .workbench import Workbench, projection_input, span_of


def ranking(bench: Workbench, query: str) -> Json:
    """The ranking of the only hit of a search."""
    hits = bench.search(query)["hits"]
    assert len(hits) == 1, f"{query!r} finds {len(hits)}"
    found: Json = hits[0]["ranking"]
    return found


@pytest.mark.proves("retrieval-23")
def test_one_shared_word_of_six_is_no_answer(bench: Workbench) -> None:
    query = "What harbour stores captain salary figures in the ledger?"
    bench.put("The harbour tide schedule is revised.", title="Tide table")
    assert presence(bench, query) == "none"
    found = ranking(bench, query)
    assert (found["qualified"], found["lexical_qualified"], found["trigram_qualified"]) == (False, False, False)
    assert found["matched_terms"] == ["harbour"]
    assert math.isclose(found["lexical_coverage"], 1 / 6, abs_tol=1e-9)
    assert (found["query_unit_count"], found["matched_unit_count"], found["required_matches"]) == (6, 1, 3)


@pytest.mark.proves("retrieval-24")
def test_two_common_words_never_answer_for_the_words_that_are_absent(bench: Workbench) -> None:
    statement = "Retries are capped at five for the webhook worker."
    bench.claim(statement)
    assert statements(bench, "webhook retry") == [statement]
    weak = recall(bench, "webhook timeout")
    assert (weak["presence"], weak["claims"], weak["unqualified_claim_candidates"]) == ("none", [], 1)
    assert presence(bench, "webhook timeout retry limit backoff") == "none"
    assert presence(bench, "webhook retry a b c d e f") == "none"


REDIS, POSTGRES = "The billing service uses Redis.", "The billing service uses Postgres."


@pytest.mark.proves("retrieval-24")
def test_a_claim_about_another_thing_is_no_answer(bench: Workbench) -> None:
    query = "billing service uses Postgres"
    bench.claim(REDIS)
    assert presence(bench, query) == "none"
    bench.claim("Postgres is installed on the archive host.")
    bench.claim("Every service uses a queue.")
    assert presence(bench, query) == "none"
    bench.claim(POSTGRES)
    assert statements(bench, query) == [POSTGRES]


@pytest.mark.proves("retrieval-24")
@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("does the billing service use Postgres?", REDIS),
        ("winch voltage", "The winch was greased."),
        ("kiln 12 voltage", "Kiln 12 was unloaded."),
        ("deploy window for Jakarta", "The deploy window for Lisbon is Friday."),
    ],
)
@pytest.mark.parametrize("crowded", [False, True], ids=["alone", "among many of its kind"])
def test_a_text_without_the_distinguishing_word_is_no_answer(
    bench: Workbench, query: str, text: str, crowded: bool
) -> None:
    bench.claim(text)
    bench.put(text, title="untitled")
    if crowded:
        for number in range(12):
            bench.claim(text.rstrip(".") + f" too, said number {number}.")
    assert presence(bench, query) == "none"


@pytest.mark.proves("retrieval-25")
def test_a_hyphenated_identifier_is_mandatory_and_adjacent(bench: Workbench) -> None:
    rule = bench.put("Notice DOCK-GATE-77 applies here.", title="Rule")
    bench.put("The dock opens early. A gate is further on. Berth 77 is elsewhere.", title="Loose")
    assert [ref["artifact_id"] for ref in recall(bench, "DOCK-GATE-77")["artifact_refs"]] == [rule["artifact_id"]]


@pytest.mark.proves("retrieval-26")
def test_the_parts_of_an_identifier_scattered_are_no_answer_even_alone(bench: Workbench) -> None:
    bench.put("The dock opens early. A gate is further on. Berth 77 is elsewhere.", title="Loose")
    bench.claim("The dock opens early. A gate is further on. Berth 77 is elsewhere.")
    for query in ("DOCK-GATE-77", '"dock gate 77"', "DOCK_GATE_77", "what about DOCK-GATE-77?"):
        assert presence(bench, query) == "none", query


@pytest.mark.proves("retrieval-26")
def test_a_misspelt_identifier_is_found_where_its_parts_are_adjacent(bench: Workbench) -> None:
    wanted = bench.put("Notice HARBOUR-ENTRANCE applies here.", title="Rule")
    bench.put("The harbour is closed. Its entrance is elsewhere.", title="Loose")
    refs = recall(bench, "HARBOR-ENTRANCE")["artifact_refs"]
    assert [ref["artifact_id"] for ref in refs] == [wanted["artifact_id"]]


@pytest.mark.proves("retrieval-27")
def test_a_hyphenated_word_of_a_question_is_mandatory(bench: Workbench) -> None:
    bench.claim("Paint samples require a clean dry surface inside the hangar.")
    assert presence(bench, "paint samples dry-dock hangar") == "none"
    assert presence(bench, "paint samples dry dock hangar") == "claims"
    assert presence(bench, "paint samples clean-dry hangar") == "claims"


# --- misspelt words --------------------------------------------------------------------------------------------------

WINCH = "The forward winch must be greased before every departure and locked afterwards."


@pytest.mark.proves("retrieval-28")
def test_misspelt_words_find_the_exact_span(bench: Workbench) -> None:
    bench.put(WINCH, title="Winch manual")
    ref = only_ref(bench, "forwrd winsh greasd")
    assert span_of(ref) == (0, 79)
    assert ref["excerpt"] == WINCH
    found = ranking(bench, "forwrd winsh greasd")
    assert (found["trigram_qualified"], found["lexical_qualified"], found["qualified"]) == (True, False, True)
    assert found["exact_tier"] is False


def test_misspelt_words_are_found_deep_inside_a_long_body(bench: Workbench) -> None:
    body = "Routine remarks of the harbour office.\n\n" * 400 + WINCH + "\n\n" + "Appendix of fillers.\n\n" * 400
    bench.put(body, title="untitled")
    ref = only_ref(bench, "forwrd winsh greasd")
    start, end = span_of(ref) or (0, 0)
    at = body.index(WINCH)
    assert start <= at and at + len(WINCH) <= end <= start + 4096


def test_a_word_may_match_by_its_inflection_beside_one_that_is_misspelt(bench: Workbench) -> None:
    bench.put(WINCH, title="untitled")
    assert presence(bench, "greasing winsh") == "artifacts_only"
    assert presence(bench, "painting winsh") == "none"


def test_short_words_are_never_taken_for_misspelt_ones(bench: Workbench) -> None:
    bench.claim("We go to it at 10.")
    for query in ("gu", "ot", "11", "ab"):
        assert presence(bench, query) == "none", query


@pytest.mark.proves("retrieval-29")
def test_typo_tolerance_runs_only_where_nothing_matches_exactly(bench: Workbench) -> None:
    rules = bench.put("The pilot obeys the provisional channel rules.", title="Pilot rules")["artifact_id"]
    menu = bench.put("The pilot setting controls cabin lights.", title="Pilot menu")["artifact_id"]
    both = recall(bench, "pilot setting provisonal")["artifact_refs"]
    assert {ref["artifact_id"] for ref in both} == {rules, menu}
    (ref,) = recall(bench, "pilot setting")["artifact_refs"]
    assert ref["artifact_id"] == menu
    assert not any("trigram" in channel for channel in ref["matched_by"])


@pytest.mark.proves("retrieval-30")
def test_one_misspelt_word_needs_four_fifths_of_its_letters(bench: Workbench) -> None:
    bench.claim("The scheduler retries hourly.")
    assert presence(bench, "schedular") == "claims"
    assert presence(bench, "scheduelr") == "none"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("38.101", "The limit is 38.102 since March."),
        ("v1.2.3", "We shipped v1.2.4 on Friday."),
        ("SKU-88-4711-B", "Order SKU-88-4712-B again."),
        ("192.168.10.24", "The host is 192.168.10.25 now."),
        ("2026-03-02", "It happened on 2026-03-12."),
        ("550e8400-e29b", "The run 550e8401-e29b failed."),
        ("build 48213", "The build 48214 is green."),
        ("RFC-2119", "See RFC-2118."),
    ],
)
def test_an_identifier_with_another_digit_is_another_identifier(bench: Workbench, query: str, text: str) -> None:
    bench.claim(text)
    bench.put(text, title="untitled")
    assert presence(bench, query) == "none"


# --- who else may not decide -----------------------------------------------------------------------------------------


@pytest.mark.proves("retrieval-31")
def test_search_lists_what_does_not_qualify_and_says_so(bench: Workbench) -> None:
    weak, strong = bench.claim("kiwi one"), bench.claim("kiwi mango papaya guava")
    answer = bench.search("kiwi mango papaya guava lychee durian")
    assert [(hit["entity_id"], hit["ranking"]["qualified"]) for hit in answer["hits"]] == [
        (strong["claim_id"], True),
        (weak["claim_id"], False),
    ]
    assert answer["unqualified_candidate_count"] == 1
    assert math.isclose(answer["best_unqualified_coverage"], 1 / 6, abs_tol=1e-9)


@pytest.mark.proves("retrieval-32")
def test_a_projection_alone_answers_nothing(bench: Workbench) -> None:
    artifact = bench.put("cone 6 reached at 21:40", title="untitled")
    bench.project(artifact, text="marlinspike summary of the firing")
    (hit,) = bench.search("marlinspike")["hits"]
    assert hit["ranking"]["qualified"] is False
    check_nothing_answers(bench, "marlinspike")


@pytest.mark.proves("retrieval-32")
def test_an_anchor_alone_answers_nothing(bench: Workbench) -> None:
    artifact, claim = bench.put("cone 6 reached at 21:40", title="untitled"), bench.claim("It was hot.")
    anchor = projection_input(artifact) | {"kind": "retrieval_anchor", "text": "marlinspike"}
    bench.door.ok("projection.put", anchor | {"metadata": {"claim_id": claim["claim_id"]}})
    (hit,) = [hit for hit in bench.search("marlinspike")["hits"] if hit["entity_type"] == "claim"]
    assert (hit["entity_id"], hit["ranking"]["qualified"]) == (claim["claim_id"], False)
    check_nothing_answers(bench, "marlinspike")


def check_nothing_answers(bench: Workbench, query: str) -> None:
    answer = recall(bench, query)
    assert (answer["presence"], answer["claims"], answer["artifact_refs"]) == ("none", [], [])
    bundle = bench.door.ok("context.build", {"query": query})
    assert bundle["manifest"] == []
    assert query not in bundle["rendered_markdown"]


def test_only_lexical_and_typo_matches_qualify_a_hit(bench: Workbench) -> None:
    for number, words in enumerate(("celadon glaze kiln", "celadon glaze", "celadon", "glaze shelf", "celadn glaz")):
        bench.claim(f"{words} number {number}")
        bench.project(bench.put(f"{words} {number}", title="untitled"), text="celadon glaze kiln")
    for query in ("celadon glaze kiln", "celadon glaze kiln shelf", "seladon glaze", '"celadon glaze" kiln'):
        for hit in bench.search(query, limit=100)["hits"]:
            found = hit["ranking"]
            assert found["semantic_qualified"] is False
            assert found["qualified"] is (found["lexical_qualified"] or found["trigram_qualified"])
            assert found["exact_tier"] is (found["lexical_qualified"] and found["lexical_coverage"] == 1)
            if found["lexical_qualified"]:
                assert found["matched_unit_count"] >= max(1, found["required_matches"])
                assert found["matched_phrase_group_count"] == found["phrase_group_count"]


QUERIES = [
    "forward winch greased", "forwrd winsh greasd", "billing service uses Postgres", "DOCK-GATE-77", "webhook retry",
    "webhook timeout retry limit backoff", "schedular", "winch departure billing", "departure locked", "service",
]  # fmt: skip
FOREIGN = "forwrd winsh greasd schedular billing service uses webhook timeout retry limit backoff departure locked"


@pytest.mark.fault_class(24)
def test_rows_that_have_nothing_to_do_with_a_question_never_change_what_answers_it(
    door: Door, bench: Workbench
) -> None:
    bench.put(WINCH, title="Winch manual")
    bench.put("Notice DOCK-GATE-77 applies here.", title="Rule")
    for statement in (REDIS, "Retries are capped at five for the webhook worker.", "The scheduler retries hourly."):
        bench.claim(statement)
    before = {query: sorted(qualified(bench, query)) for query in QUERIES}
    assert before["forwrd winsh greasd"] and before["webhook retry"] and before["schedular"]
    for number in range(40):
        bench.claim(f"Celadon tile {number} was photographed.")
        bench.put(f"{FOREIGN} {number}", title=FOREIGN, how={"context": door.here(project_id="prj_foreign")})
        bench.claim(f"{FOREIGN} {number}", how={"context": door.here(workspace_id=f"{door.context['workspace_id']}2")})
    assert {query: sorted(qualified(bench, query)) for query in QUERIES} == before
    for query in QUERIES:
        assert (presence(bench, query) == "none") is (before[query] == []), query


def test_every_operation_agrees_on_what_answers(bench: Workbench) -> None:
    """Recall looks at claims and artifacts apart; retrieve and the bundle repeat what it says."""
    bench.put(WINCH, title="Winch manual")
    bench.claim(REDIS)
    assert {"memory.recall", "memory.retrieve", "context.build"} <= set(available(bench))
    for query in (*QUERIES, "winch billing", "Redis"):
        recalled = recall(bench, query)
        retrieved = bench.door.ok("memory.retrieve", {"query": query})
        assert retrieved["presence"] == recalled["presence"], query
        bundle = bench.door.ok("context.build", {"query": query})
        assert {item["entity_type"] for item in bundle["manifest"]} <= {"artifact", "claim"}
        assert bool(bundle["manifest"]) is bool(qualified(bench, query)), query

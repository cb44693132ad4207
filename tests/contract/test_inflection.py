"""Inflected forms of a word, exact identifiers and folded spellings (retrieval §1.3, §1.4; assertions 15 to 20).

The assertions 16 and 17 are amended: inflections fold both ways."""

from __future__ import annotations

import itertools

import pytest

from .answers import presence
from .workbench import Workbench


@pytest.mark.proves("retrieval-15")
def test_a_free_word_finds_its_inflections_and_a_quoted_one_does_not(bench: Workbench) -> None:
    bench.claim("The crane logs every lift.")
    assert presence(bench, "log") == "claims"
    assert presence(bench, "logging") == "claims"
    assert presence(bench, "logged") == "claims"
    assert presence(bench, '"log"') == "none"
    assert presence(bench, '"logs"') == "claims"


FAMILIES = [
    ("cache", "caches", "cached", "caching"),
    ("charge", "charges", "charged", "charging"),
    ("retry", "retries", "retried", "retrying"),
    ("store", "stores", "stored", "storing"),
    ("stop", "stops", "stopped", "stopping"),
    ("class", "classes"),
    ("box", "boxes"),
    ("policy", "policies"),
    ("deploy", "deploys", "deployed", "deploying"),
    ("batch", "batches", "batched", "batching"),
]


@pytest.mark.proves("retrieval-16", "retrieval-17")
@pytest.mark.parametrize("forms", FAMILIES, ids=lambda forms: forms[0])
def test_every_form_of_a_word_finds_every_other(bench: Workbench, forms: tuple[str, ...]) -> None:
    for number, stored in enumerate(forms):
        where = {"context": bench.door.here(project_id=f"prj_{number}")}
        bench.claim(f"They spoke about {stored} twice.", how=where)
        bench.put(f"They wrote about {stored} twice.", title="untitled", how=where)
    for number, asked in itertools.product(range(len(forms)), forms):
        where = {"context": bench.door.here(project_id=f"prj_{number}")}
        hits = bench.search(asked, how=where)["hits"]
        assert [hit["ranking"]["lexical_qualified"] for hit in hits] == [True, True], (forms[number], asked)


@pytest.mark.proves("retrieval-16")
def test_caching_and_cache_find_each_other(bench: Workbench) -> None:
    bench.claim("The cache is warmed nightly.")
    assert presence(bench, "caching") == "claims"
    elsewhere = {"context": bench.door.here(project_id="prj_other")}
    bench.claim("We keep many caches.", how=elsewhere)
    assert presence(bench, "cache", how=elsewhere) == "claims"
    third = {"context": bench.door.here(project_id="prj_third")}
    bench.claim("Caching is switched off.", how=third)
    assert presence(bench, "cache", how=third) == "claims"


STRANGERS = [
    ("log", "The logic of the login page is odd."),
    ("logic", "The crane logs every lift."),
    ("id", "The ids are listed twice."),
    ("id", "They said: I'd rather idle."),
    ("bus", "It is a but, and a bush."),
    ("webhook_events", "The webhook event was dropped."),
    ("webhook_events", "An event of the webhook."),
    ('"charged batteries"', "We are charging battery packs."),
    ("cdm-boxes", "It is the cdm box."),
    ("status", "A statue stood there."),
    ("v2s", "It is v2 now."),
    ("ses", "It is a se node."),
]


@pytest.mark.proves("retrieval-17")
@pytest.mark.parametrize(("query", "text"), STRANGERS)
def test_words_that_only_look_related_and_identifiers_are_not_folded(bench: Workbench, query: str, text: str) -> None:
    bench.claim(text)
    bench.put(text, title="untitled")
    assert not any(hit["ranking"]["lexical_qualified"] for hit in bench.search(query)["hits"])


@pytest.mark.proves("retrieval-17")
def test_an_identifier_in_snake_case_is_its_parts_adjacent_and_in_order(bench: Workbench) -> None:
    same = [bench.claim(f"The table {name} grows.") for name in ("webhook events", "webhook-events", "webhook_events")]
    bench.claim("The table events webhook grows.")
    bench.claim("The table webhook and events grows.")
    hits = bench.search("webhook_events")["hits"]
    assert {h["entity_id"] for h in hits if h["ranking"]["lexical_qualified"]} == {c["claim_id"] for c in same}


def test_many_forms_of_one_word_are_one_match(bench: Workbench) -> None:
    bench.claim("We cache caches, cached by a caching cache.")
    (hit,) = bench.search("cache nightly")["hits"]
    assert (hit["ranking"]["matched_unit_count"], hit["ranking"]["query_unit_count"]) == (1, 2)
    assert hit["ranking"]["matched_terms"] == ["cache"]


@pytest.mark.proves("retrieval-18")
def test_camel_case_matches_whole_in_any_case(bench: Workbench) -> None:
    bench.claim("The handler calls getUserId before login.")
    assert presence(bench, "GETUSERID") == "claims"
    assert presence(bench, "getUserId") == "claims"
    assert presence(bench, "get user id") == "none"


@pytest.mark.proves("retrieval-19")
def test_separators_of_an_identifier_are_interchangeable_but_not_optional(bench: Workbench) -> None:
    bench.put("Notice DOCK-GATE-77 applies here.", title="Rule")
    assert presence(bench, "DOCK_GATE_77") == "artifacts_only"
    assert presence(bench, "dock-gate-77") == "artifacts_only"
    assert presence(bench, "dockgate77") == "none"


@pytest.mark.proves("retrieval-20")
@pytest.mark.parametrize("query", ["cafe", "CAFÉ ferme", "cafe\u0301", "CAFE\u0301 FERME\u0301", "café"])
@pytest.mark.parametrize("text", ["Le café est fermé.", "Le cafe\u0301 est ferme\u0301.", "Le CAFE est FERME."])
def test_accents_and_case_are_folded_on_both_sides(bench: Workbench, text: str, query: str) -> None:
    bench.claim(text)
    assert presence(bench, query) == "claims"
    (hit,) = bench.search(query)["hits"]
    assert hit["ranking"]["exact_tier"] is True, "and not by a guess"

from __future__ import annotations

import pytest

from .store import ELSEWHERE, Store


@pytest.mark.proves("retrieval-28", "machine-166")
def test_misspelled_words_find_a_text_with_an_exact_span(store: Store) -> None:
    body = "The forward winch must be greased before every departure and locked afterwards."
    store.artifact("Winch manual", body)
    hits = store.hits("forwrd winsh greasd")
    assert [hit["excerpt"] for hit in hits] == [body]
    hit = hits[0]
    assert (hit["ranking"]["trigram_qualified"], hit["ranking"]["lexical_qualified"]) == (True, False)
    assert hit["citation"].endswith("#0-79")
    assert hit["ranking"]["trigram_matched_terms"] == ["forwrd", "winsh", "greasd"]
    assert "trigram_typo_v1" in hit["matched_by"]


@pytest.mark.proves("retrieval-29")
def test_an_exact_hit_leaves_spelling_alone(store: Store) -> None:
    store.artifact("Pilot rules", "The pilot obeys the provisional channel rules.")
    store.artifact("Pilot menu", "The pilot setting controls cabin lights.")
    assert len(store.qualified("pilot setting provisonal")) == 2
    result = store.hits("pilot setting")
    assert [hit["title"] for hit in result if hit["ranking"]["qualified"]] == ["Pilot menu"]
    assert not [name for hit in result for name in hit["matched_by"] if name.startswith("trigram")]


@pytest.mark.proves("retrieval-30")
def test_one_word_needs_four_fifths_of_similarity(store: Store) -> None:
    store.claim("The scheduler retries hourly.")
    assert store.qualified("schedular") == ["The scheduler retries hourly."]
    assert store.qualified("scheduelr") == []


def test_a_misspelled_identifier_must_still_stand_together(store: Store) -> None:
    store.claim("The gate is open and the harbour is near.")
    assert store.qualified("harbuor-gaet") == []
    store.claim("The harbour gate is open.")
    assert store.qualified('"harbor gate"') == ["The harbour gate is open."]


def test_an_identifier_with_another_digit_is_not_a_misspelling(store: Store) -> None:
    store.claim("The ticket round4of1 is closed.")
    assert store.hits("round1of1") == []


def test_a_guess_is_judged_together_with_the_words_that_are_right(store: Store) -> None:
    store.claims(["The harbour crane is greased.", "The harbour office is closed."])
    found = store.hits("harbour cranne greased")
    assert found[0]["excerpt"] == "The harbour crane is greased."
    assert found[0]["ranking"]["trigram_similarity"] == pytest.approx((1 + 5 / 6 + 1) / 3)


def test_a_word_known_only_elsewhere_is_still_guessed_here(store: Store) -> None:
    store.claims(["The schedular is a misspelling of another project."], ELSEWHERE)
    store.claim("The scheduler retries hourly.")
    assert store.qualified("schedular") == ["The scheduler retries hourly."]


def test_words_written_after_a_guess_are_guessed_next_time(store: Store) -> None:
    assert store.qualified("marlinspke") == []
    store.claim("The marlinspike hangs.")
    assert store.qualified("marlinspke") == ["The marlinspike hangs."]

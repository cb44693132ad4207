from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from memoree.retrieval.text import GUESSABLE_CHARS_MAX, GUESSABLE_CHARS_MIN
from memoree.retrieval.typo import SIMILARITY, SIMILARITY_ONE_WORD, Vocabulary

from .store import ELSEWHERE, HERE, Json, Store


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


LOOKALIKES = [f"{letter}thermocuple" for letter in "abcdefghijklmnopqrs"]
"""As similar to `thermocuple` as `thermocouple` is, and before it in the order of guesses."""


@pytest.mark.fault_class(24, 36)
@pytest.mark.parametrize("query", ["thermocuple", "thermocuple brokke", '"thermocuple broke"'])
@pytest.mark.parametrize("entity", ["claim", "artifact"])
def test_words_that_cannot_be_seen_do_not_crowd_out_those_that_can(store: Store, entity: str, query: str) -> None:
    def write(text: str, context: Json) -> None:
        store.claim(text, context) if entity == "claim" else store.artifact("Note", text, context)

    write("the thermocouple broke", HERE)
    write(" ".join(f"{word} broke" for word in LOOKALIKES), ELSEWHERE)
    assert store.qualified(query) == ["the thermocouple broke"]


@pytest.mark.fault_class(24, 36)
def test_retracted_and_forgotten_words_do_not_crowd_out_living_ones(store: Store) -> None:
    claim = store.claim("the thermocouple broke")
    artifact = store.artifact("Note", "the thermocouple cracked")
    crowd = store.claim(" ".join(LOOKALIKES))
    store.write("claim.retract", {"claim_id": crowd["claim_id"], "reason": "gone"})
    crowd = store.artifact("Crowd", " ".join(LOOKALIKES))
    store.write("artifact.forget", {"artifact_id": crowd["artifact_id"], "reason": "gone"})
    found = {hit["entity_id"] for hit in store.hits("thermocuple")}
    assert found == {claim["claim_id"], artifact["artifact_id"]}
    assert artifact["artifact_id"] in {hit["entity_id"] for hit in store.hits("thermocuple", include_historical=True)}


@pytest.mark.fault_class(24, 36)
def test_a_pinned_artifact_lends_its_words_to_the_guesses(store: Store) -> None:
    pinned = store.artifact("Note", "the thermocouple broke", ELSEWHERE)
    store.artifact("Crowd", " ".join(LOOKALIKES), ELSEWHERE)
    assert store.hits("thermocuple") == []
    assert store.qualified("thermocuple", {**HERE, "pins": [pinned["artifact_id"]]}) == ["the thermocouple broke"]


def test_the_words_that_are_right_are_judged_however_many_guesses_there_are(store: Store) -> None:
    """32 guesses of 16 parts fill the expression to its bound; what follows them in the query still counts."""
    parts = "设 alpha 备 bravo 用 carol 户 delta 中 eagle 文 fancy 线 gamma 行"
    words = [[f"{stem}{ending}" for ending in ("", "s", "r", "d")] for stem in ("marlinspike", "hawser", "capstan")]
    store.claims(f"{' '.join(choice)} {parts} kiln" for choice in product(*words))
    phrase = f"marlinspke hawserz capstanz {parts}"
    found = store.hits(f'"{phrase}" kiln')
    assert found[0]["ranking"]["trigram_matched_terms"] == [phrase, "kiln"]


def misspelled(word: str, letters: int) -> str:
    """The word with its last letters replaced: exactly that many edits away."""
    return word[: len(word) - letters] + "z" * letters


def vocabulary(word: str) -> Vocabulary:
    learned = Vocabulary()
    learned.learn([(1, word)])
    return learned


@pytest.mark.parametrize("threshold", [SIMILARITY_ONE_WORD, SIMILARITY])
@pytest.mark.parametrize("length", range(GUESSABLE_CHARS_MIN, GUESSABLE_CHARS_MAX + 1))
def test_similarity_of_exactly_the_threshold_is_enough(length: int, threshold: Fraction) -> None:
    word = ("abcdefghijklmnopqrstuvwxy" * 2)[:length]
    per_cent = int(threshold * 100)
    edits = length * (100 - per_cent) // 100
    assert [g.words for g in vocabulary(word).guesses(misspelled(word, edits), threshold)] == [(word,)]
    assert vocabulary(word).guesses(misspelled(word, edits + 1), threshold) == []
    for shorter in range(GUESSABLE_CHARS_MIN, length):
        reached = (length - shorter) * 100 <= length * (100 - per_cent)
        assert bool(vocabulary(word).guesses(word[:shorter], threshold)) is reached
        assert bool(vocabulary(word[:shorter]).guesses(word, threshold)) is reached


@pytest.mark.parametrize(("wrong", "right"), [("hause", "house"), ("yecht", "yacht"), ("thermacoople", "thermocouple")])
def test_one_wrong_letter_in_five_is_forgiven(store: Store, wrong: str, right: str) -> None:
    store.claim(f"The {right} is new.")
    assert store.qualified(wrong) == [f"The {right} is new."]

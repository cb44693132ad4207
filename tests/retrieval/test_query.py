from __future__ import annotations

import pytest

from memoree.errors import Code, MemoreeError
from memoree.retrieval.profile import retrieval_profile
from memoree.retrieval.query import Query, analyze, required_matches
from memoree.retrieval.stemming import stem


def displays(query: Query, *, phrases: bool) -> list[str]:
    return [unit.display for unit in query.units if unit.is_phrase == phrases]


@pytest.mark.proves("retrieval-1")
def test_function_words_are_dropped() -> None:
    query = analyze("parcel weights in manifests")
    assert displays(query, phrases=False) == ["parcel", "weights", "manifests"]
    assert query.dropped_stopwords == ("in",)
    assert query.required_matches == 2


@pytest.mark.proves("retrieval-2")
def test_hyphenated_and_quoted_words_are_phrases() -> None:
    query = analyze('What about DOCK-GATE-77 and "slow lane"?')
    assert displays(query, phrases=True) == ["dock gate 77", "slow lane"]
    assert query.dropped_stopwords == ("about", "and", "what")
    assert query.required_matches == 2
    assert query.normalized == '"dock gate 77" "slow lane"'


@pytest.mark.proves("retrieval-4")
@pytest.mark.fault_class(33)
def test_a_query_of_function_words_keeps_them_all() -> None:
    query = analyze("what is the")
    assert (len(query.units), query.dropped_stopwords, query.required_matches) == (3, (), 2)


@pytest.mark.proves("retrieval-5", "machine-146")
@pytest.mark.parametrize("text", ["???", '""', "-", "", " ", "\x00", '"\x00"', "👍", "*", "^", "()"])
def test_a_query_without_a_word_is_refused(text: str) -> None:
    with pytest.raises(MemoreeError) as caught:
        analyze(text)
    assert caught.value.code is Code.INVALID_REQUEST


@pytest.mark.proves("retrieval-6", "machine-146")
def test_a_query_of_49_words_is_refused_and_function_words_count() -> None:
    with pytest.raises(MemoreeError, match="at most 48 words, got 49"):
        analyze(" ".join(f"w{number}" for number in range(49)))
    assert displays(analyze("the " * 47 + "zebra"), phrases=False) == ["zebra"]


@pytest.mark.proves("retrieval-7", "machine-146")
@pytest.mark.fault_class(55)
def test_a_query_over_8192_bytes_is_refused() -> None:
    assert analyze("z" * 8192).units
    for text in ("z" * 8193, "é" * 4097, "z" * 2**20):
        with pytest.raises(MemoreeError, match="8192 bytes"):
            analyze(text)


@pytest.mark.proves("retrieval-8")
def test_repeated_units_count_once_and_a_phrase_is_another_unit_than_its_word() -> None:
    assert len(analyze("logs logs LOGS").units) == 1
    assert len(analyze('log "log"').units) == 2


@pytest.mark.proves("retrieval-9")
def test_an_unmatched_quote_is_punctuation() -> None:
    assert displays(analyze('she wrote "slow lane'), phrases=False) == ["she", "wrote", "slow", "lane"]


@pytest.mark.proves("retrieval-10", "retrieval-11")
def test_what_is_one_word_and_what_is_several() -> None:
    assert displays(analyze("getUserId"), phrases=False) == ["getuserid"]
    assert displays(analyze("24,000,000-byte"), phrases=False) == ["24", "000", "byte"]
    assert displays(analyze("--dry-run"), phrases=False) == ["dry", "run"]


@pytest.mark.proves("retrieval-12")
def test_required_matches_follow_the_table() -> None:
    assert [required_matches(count) for count in range(12)] == [0, 1, 2, 2, 2, 2, 3, 3, 4, 4, 4, 5]


@pytest.mark.proves("retrieval-3", "retrieval-13", "retrieval-14")
@pytest.mark.parametrize(
    ("text", "member", "value"),
    [
        ("CRATE_LIMIT_09", "intent_hint", "identifier_lookup"),
        ("Where do parcels land after the migration?", "intent_hint", "current_source"),
        ("Where is the tariff defined in?", "intent_hint", "ambiguous"),
        ("priority queue", "intent_hint", "historical_memory"),
        ("What was previously agreed after the migration?", "intent_hint", "historical_memory"),
        ("أين سجل الشحن؟", "script_profile", "arabic"),
        ("журнал cargo", "script_profile", "mixed"),
        ("12 34", "script_profile", "unknown"),
        ("用户身份", "script_profile", "cjk"),
    ],
)
def test_the_profile_advises_by_cues_and_script(text: str, member: str, value: str) -> None:
    assert retrieval_profile(analyze(text).normalized)[member] == value


@pytest.mark.proves("retrieval-16", "retrieval-17")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("charge", "charged"),
        ("cache", "caches"),
        ("cache", "caching"),
        ("store", "storing"),
        ("log", "logging"),
        ("log", "logs"),
        ("stop", "stopped"),
        ("call", "calling"),
        ("retry", "retries"),
        ("retry", "retried"),
        ("class", "classes"),
        ("fix", "fixes"),
    ],
)
def test_inflections_fold_both_ways(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.proves("retrieval-17")
@pytest.mark.parametrize("word", ["id", "v12", "設備", "бетона"])
def test_identifiers_and_words_of_other_scripts_have_no_other_form(word: str) -> None:
    assert stem(word) == word


@pytest.mark.proves("retrieval-17")
def test_words_that_only_look_inflected_lose_nothing() -> None:
    for word, other in [("log", "logic"), ("log", "login"), ("string", "str"), ("speed", "spe"), ("bus", "bu")]:
        assert stem(word) != stem(other)


STEMS = {
    "charged": "charg",
    "deployments": "deploy",
    "retries": "retri",
    "universities": "universiti",
    "news": "news",
    "organizational": "organiz",
}


def test_stored_terms_are_the_stems_that_the_next_version_must_have_too() -> None:
    assert {word: stem(word) for word in STEMS} == STEMS

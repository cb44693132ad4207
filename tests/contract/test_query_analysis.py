"""How a query is read (retrieval §1.3, §1.5): units, phrases, dropped words, required matches, intent and script."""

from __future__ import annotations

import pytest

from .answers import available, recall
from .door import Door, Json
from .workbench import Workbench

NUMBERS = " ".join(f"word{number}" for number in range(1, 50))


def analysis(bench: Workbench, query: str) -> Json:
    answer: Json = bench.search(query)["query_analysis"]
    return answer


def read(bench: Workbench, query: str) -> tuple[list[str], list[str], list[str], int]:
    """Content units, phrases among them, dropped words and required matches."""
    found = analysis(bench, query)
    return found["content_units"], found["phrase_groups"], found["dropped_stopwords"], found["required_matches"]


def free_units(bench: Workbench, query: str) -> list[str]:
    units, phrases, _, _ = read(bench, query)
    assert phrases == []
    return units


@pytest.mark.proves("retrieval-1")
def test_common_words_are_dropped_and_reported(bench: Workbench) -> None:
    assert read(bench, "parcel weights in manifests") == (["parcel", "weights", "manifests"], [], ["in"], 2)
    assert analysis(bench, "parcel weights in manifests")["normalized_query"] == "parcel weights manifests"


@pytest.mark.proves("retrieval-2")
def test_quoted_and_hyphenated_words_are_phrases(bench: Workbench) -> None:
    phrases = ["dock gate 77", "slow lane"]
    query = 'What about DOCK-GATE-77 and "slow lane"?'
    assert read(bench, query) == (phrases, phrases, ["about", "and", "what"], 2)
    assert analysis(bench, query)["normalized_query"] == '"dock gate 77" "slow lane"'


def test_a_phrase_keeps_its_common_words(bench: Workbench) -> None:
    assert read(bench, 'the "state of the art" kiln') == (
        ["state of the art", "kiln"],
        ["state of the art"],
        ["the"],
        2,
    )
    assert read(bench, "state-of-the-art") == (["state of the art"], ["state of the art"], [], 1)


def test_dropped_words_are_sorted_and_named_once(bench: Workbench) -> None:
    query = "Which of the kilns was on the shelf of the studio, and Which was it?"
    assert analysis(bench, query)["dropped_stopwords"] == ["and", "it", "of", "on", "the", "was", "which"]


@pytest.mark.parametrize("word", ["no", "not", "never", "without", "we", "you", "our"])
def test_negations_and_speakers_are_content(bench: Workbench, word: str) -> None:
    assert read(bench, f"the kiln {word}") == (["kiln", word], [], ["the"], 2)


@pytest.mark.proves("retrieval-3")
def test_an_identifier_in_snake_case_is_one_free_unit(bench: Workbench) -> None:
    assert read(bench, "CRATE_LIMIT_09") == (["crate_limit_09"], [], [], 1)
    assert analysis(bench, "CRATE_LIMIT_09")["retrieval_profile"]["intent_hint"] == "identifier_lookup"


@pytest.mark.proves("retrieval-4")
def test_a_query_of_common_words_alone_keeps_them(bench: Workbench) -> None:
    assert read(bench, "what is the") == (["what", "is", "the"], [], [], 2)


@pytest.mark.proves("retrieval-5")
@pytest.mark.parametrize("query", ["???", '""', "-", '"" ""', '"?!" --', "%", "\\", "👍", "\0"], ids=ascii)
def test_a_query_without_a_word_is_refused_by_every_operation(door: Door, bench: Workbench, query: str) -> None:
    for op in available(bench):
        door.refused("INVALID_REQUEST", op, {"query": query})


@pytest.mark.proves("retrieval-6")
def test_48_words_are_the_most_and_common_words_count(door: Door, bench: Workbench) -> None:
    assert len(read(bench, NUMBERS.rpartition(" ")[0])[0]) == 48
    assert read(bench, "the " * 47 + "zebra") == (["zebra"], [], ["the"], 1)
    for query in (NUMBERS, "the " * 48 + "zebra", "the-" * 48 + "zebra", f'"{NUMBERS}"', "again " * 49):
        for op in available(bench):
            door.refused("INVALID_REQUEST", op, {"query": query})


@pytest.mark.proves("retrieval-7")
def test_8192_bytes_are_the_longest_query(door: Door, bench: Workbench) -> None:
    for op in available(bench):
        for query in ("x" * 8192, "é" * 4096, "kiln " + "?" * 8187):
            door.ok(op, {"query": query})
            door.refused("INVALID_REQUEST", op, {"query": query + "x"})


@pytest.mark.proves("retrieval-8")
def test_a_repeated_unit_counts_once_and_a_phrase_is_another_unit(bench: Workbench) -> None:
    assert read(bench, "logs logs LOGS") == (["logs"], [], [], 1)
    assert read(bench, 'log "log"') == (["log", "log"], ["log"], [], 2)
    assert read(bench, '"slow lane" Slow-Lane "SLOW  lane!"') == (["slow lane"], ["slow lane"], [], 1)


@pytest.mark.proves("retrieval-9")
def test_an_unmatched_quote_is_punctuation(bench: Workbench) -> None:
    assert free_units(bench, 'she wrote "slow lane') == ["she", "wrote", "slow", "lane"]
    assert read(bench, '"slow lane" she "wrote')[:2] == (["slow lane", "she", "wrote"], ["slow lane"])


@pytest.mark.proves("retrieval-10")
def test_camel_case_is_one_word(bench: Workbench) -> None:
    assert free_units(bench, "getUserId") == ["getuserid"]


@pytest.mark.proves("retrieval-11")
def test_a_hyphen_beside_other_punctuation_makes_no_phrase(bench: Workbench) -> None:
    assert free_units(bench, "24,000,000-byte") == ["24", "000", "byte"]
    assert free_units(bench, "--dry-run") == ["dry", "run"]
    assert free_units(bench, "dry--run") == ["dry", "run"]
    assert read(bench, "(dry-run),")[1] == ["dry run"]


@pytest.mark.proves("retrieval-12")
def test_the_required_matches_of_1_to_11_units(bench: Workbench) -> None:
    words = NUMBERS.split()
    required = [analysis(bench, " ".join(words[:count]))["required_matches"] for count in range(1, 12)]
    assert required == [1, 2, 2, 2, 2, 3, 3, 4, 4, 4, 5]


INTENTS = [
    ("Where do parcels land after the migration?", "current_source"),
    ("Where is the tariff defined in?", "ambiguous"),
    ("priority queue", "historical_memory"),
    ("What was previously agreed after the migration?", "historical_memory"),
    ("What is currently in source code?", "current_source"),
    ("which limit applies right now", "current_source"),
    ("kiln/cone", "ambiguous"),
    ("retry_limit of the worker", "identifier_lookup"),
    ("cone6 firing", "identifier_lookup"),
    ("glaze recipe", "ambiguous"),
]
AUTHORITY = {
    "historical_memory": "memory_for_history_repository_for_current_source",
    "current_source": "repository_authoritative",
    "identifier_lookup": "repository_first_for_live_identifiers",
    "ambiguous": "compare_memory_with_current_authoritative_source",
}


@pytest.mark.proves("retrieval-13")
@pytest.mark.parametrize(("query", "intent"), INTENTS)
def test_the_intent_is_read_off_the_normalised_query(bench: Workbench, query: str, intent: str) -> None:
    profile = analysis(bench, query)["retrieval_profile"]
    assert profile["intent_hint"] == intent
    assert profile["authority_hint"] == AUTHORITY[intent]
    assert profile["policy_version"] == "conservative_query_profile_v1"
    assert profile["semantic_role"] == "candidate_and_ordering_only"


@pytest.mark.proves("retrieval-14")
@pytest.mark.parametrize(
    ("query", "script"),
    [
        ("أين سجل الشحن؟", "arabic"),
        ("журнал cargo", "mixed"),
        ("12 34", "unknown"),
        ("parcel weights", "latin"),
        ("żółw naïve", "latin"),
        ("журнал", "cyrillic"),
        ("用户身份", "cjk"),
        ("しりとり", "cjk"),
        ("끝말잇기", "cjk"),
        ("อุณหภูมิ", "other"),
        ("שלום", "other"),
    ],
)
def test_the_script_of_a_query_is_told(bench: Workbench, query: str, script: str) -> None:
    assert analysis(bench, query)["retrieval_profile"]["script_profile"] == script


def test_recall_reads_a_query_as_search_does(bench: Workbench) -> None:
    bench.claim("The slow lane was closed.")
    for query in ('What about DOCK-GATE-77 and "slow lane"?', "what is the", "журнал cargo"):
        assert recall(bench, query)["query_analysis"] == analysis(bench, query)


HOSTILE = [
    "NEAR(tokens) OR title:x*", "NEAR(", "AND", "NOT x", "-band", "a:b", "C++", "O'Reilly", "title : x", "x*", "^x",
    "{a b} : c", '"unbalanced', 'x""y', '"x"*', "a + b", "x\u0000y", "SELECT * FROM claims; --", "statement:tokens",
    '") OR ("', "rowid:1", "a AND (b", '"a" NEAR/2 "b"',
]  # fmt: skip


@pytest.mark.proves("retrieval-22")
@pytest.mark.fault_class(30)
def test_operators_in_a_query_are_words_to_every_operation(door: Door, bench: Workbench) -> None:
    bench.claim("nothing here about AND or NEAR tokens")
    for query in HOSTILE:
        for op in available(bench):
            door.ok(op, {"query": query})
    assert free_units(bench, "NEAR(tokens) OR title:x*") == ["near", "tokens", "title", "x"]


@pytest.mark.fault_class(30, 55)
@pytest.mark.parametrize(
    "query",
    [
        "x" * 5_000,
        "ab " * 48,
        "(" * 8_000 + "kiln",
        '"' * 8_000 + "kiln",
        "a\u0301" * 2_000,
        "设" * 48,
        "👩‍🚀" * 500 + " kiln",
    ],
    ids=lambda query: ascii(query)[:16],
)
def test_every_operation_answers_a_query_at_the_bounds(door: Door, bench: Workbench, query: str) -> None:
    bench.put("The kiln reached cone 6.")
    for op in available(bench):
        door.ok(op, {"query": query})


@pytest.mark.fault_class(33)
@pytest.mark.parametrize("query", ["to be or not to be", "the and", "who", "what is the"])
def test_common_words_alone_find_what_holds_them(bench: Workbench, query: str) -> None:
    wanted = bench.claim(f"He asked: {query} — and left.")
    bench.claim("Celadon glazes crack.")
    assert [claim["claim_id"] for claim in recall(bench, query)["claims"]] == [wanted["claim_id"]]

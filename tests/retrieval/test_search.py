from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoree.errors import Code, MemoreeError

from .store import Json, Store

SHARED_STORE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)


def check_span(store: Store, hit: Json, body: bytes) -> None:
    """The excerpt is exactly what the citation names."""
    span = hit["provenance"].get("retrieval_span")
    base = f"memoree://artifact/{hit['entity_id']}@{hit['revision_id']}"
    if span is None:
        assert (hit["citation"], hit["excerpt"]) == (base, hit["title"])
        return
    assert hit["citation"] == f"{base}#{span['start_byte']}-{span['end_byte']}"
    assert hit["excerpt"].encode() == body[span["start_byte"] : span["end_byte"]]


# --- query text ---------------------------------------------------------------------------------------------------


@pytest.mark.fault_class(30)
@pytest.mark.proves("retrieval-22")
@pytest.mark.parametrize(
    "query",
    [
        *("current.md", "ask-codex", "BENCH-100821", "state-of-the-art", "grammar::fa", "38.101", "C++", "O'Reilly"),
        *("user@example.com", "a:b", "-band", "AND", "NOT x", "NEAR(", "NEAR(tokens) OR title:x*", '"unbalanced'),
        *("x\x00y", '"x\x00"', "_", "a_b OR", "{title}: x", "x^2", "+x", "x*", "サンドボックス", "\ufffe x", "𞤀𞤁"),
    ],
)
def test_query_text_is_never_query_syntax(store: Store, query: str) -> None:
    store.claim("nothing here about AND or NEAR tokens")
    store.artifact("x", "y")
    assert store.search(query)["query"] == query


@SHARED_STORE
@given(query=st.text(max_size=200))
def test_any_query_is_answered_or_refused_as_invalid(store: Store, query: str) -> None:
    if not store.hits("anchor"):
        store.artifact("Anchor", "anchor and 設備 body " * 300)
        store.claim("The anchor claim")
    try:
        store.search(query)
    except MemoreeError as error:
        assert error.code is Code.INVALID_REQUEST


@pytest.mark.fault_class(31)
@pytest.mark.parametrize(
    ("identifier", "body", "distractors"),
    [
        ("38.101", "The spec 38.101 applies.", ["The spec 38.102 applies.", "38 of 101", "38 38 101 101", "38-101"]),
        ("v1.2.3", "Release v1.2.3 is out.", ["Release v1.3.2 is out.", "v1 2 2 3 3", "Release v1.2.4, 3 fixes"]),
        ("SKU-99-B", "Order SKU-99-B today.", ["Order SKU-98-B today.", "SKU and B 99", "99 SKU B"]),
        ("10.0.3.17", "Host 10.0.3.17 is up.", ["Host 10.0.17.3 is up.", "10 0 17 3", "Host 10.0.3.170 and 17"]),
        ("2026-03-02", "On 2026-03-02 we fired.", ["On 2026-02-03 we fired.", "03 02 2026", "2026-03-03, 02"]),
        ("550e8400", "Id 550e8400-e29b-41d4-a716-446655440000.", ["Id 550e8401-e29b-41d4-a716-446655440000."]),
        ("src/app/main.py", "See src/app/main.py now.", ["See app/src/main.py.", "main src py app", "src/app/test.py"]),
        ("cdm-xxc", "设备清单(devices) NAS cdm-xxc", ["cdm xx", "xxc then cdm", "cdm-xxd"]),
    ],
)  # fmt: skip
def test_an_identifier_finds_its_document_at_rank_one(
    store: Store, identifier: str, body: str, distractors: list[str]
) -> None:
    store.artifact("Target", body)
    store.claims(f"{distractor} ({number})" for number, distractor in enumerate(distractors))
    for number, distractor in enumerate(distractors * 30):
        store.artifact(f"Note {number}", distractor)
    assert store.hits(identifier)[0]["title"] == "Target"
    assert store.hits(identifier, recency={"enabled": False})[0]["title"] == "Target"


CJK_TEXTS = (
    "今日は成語しりとりをした",
    "오늘 끝말잇기 게임을 했다",
    "今天玩成语接龙游戏",
    "用户服务器部署在腾讯云国内节点",
    "设备清单(devices) NAS cdm-xxc",
    "中文优先",
    "这里保存用户身份信息",
    "サンドボックス修正テスト",
)
CJK_QUERIES = (
    "しりとり",
    "끝말잇기",
    "成语接龙",
    "腾讯云",
    "设备",
    "中文",
    "用户身份",
    "サンドボックス",
    CJK_TEXTS[-1],
)


@pytest.mark.fault_class(32)
@pytest.mark.proves("retrieval-21")
@pytest.mark.parametrize("kind", ["claim", "artifact", "title"])
def test_words_inside_unspaced_runs_are_found(store: Store, kind: str) -> None:
    for text in CJK_TEXTS:
        if kind == "claim":
            store.claim(text)
        else:
            store.artifact(*((text, "-") if kind == "title" else ("-", text)))
    for query in CJK_QUERIES:
        expected = [text for text in CJK_TEXTS if query in text]
        assert sorted(store.qualified(query)) == sorted(expected), query
    for text in CJK_TEXTS:
        for run in ("".join(c if ord(c) > 0x3000 else " " for c in text)).split():
            for length in (1, 2, 3, 4):
                for start in range(len(run) - length + 1):
                    assert text in store.qualified(run[start : start + length], limit=100), run[start : start + length]


@pytest.mark.fault_class(30)
@pytest.mark.proves("retrieval-20")
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Le café est fermé.", "cafe"),
        ("Le cafe\u0301 est fermé.", "CAF\u00c9 ferme"),
        ("Die Straße ist zu.", "STRASSE"),
        ("DIE STRASSE", "straße"),
        ("İstanbul harbour", "istanbul"),
        ("istanbul harbour", "İSTANBUL"),
    ],
)
def test_case_and_diacritics_do_not_matter(store: Store, text: str, query: str) -> None:
    store.claim(text)
    assert store.qualified(query) == [text]


@pytest.mark.fault_class(33)
@pytest.mark.parametrize("query", ["to be or not to be", "the and", "who"])
def test_function_words_alone_are_searched_for(store: Store, query: str) -> None:
    store.claims(["to be or not to be is the question and who asks", "unrelated words"])
    assert store.qualified(query)[0].startswith("to be")


# --- qualification ------------------------------------------------------------------------------------------------


@pytest.mark.proves("retrieval-15", "retrieval-16")
def test_inflected_forms_match_but_phrases_do_not_fold(store: Store) -> None:
    store.claims(["The crane logs every lift.", "The cache is warmed nightly."])
    assert store.qualified("log") == store.qualified("logging") == ["The crane logs every lift."]
    assert store.qualified('"log"') == []
    assert store.qualified("caching") == ["The cache is warmed nightly."]


@pytest.mark.proves("retrieval-18", "retrieval-19")
def test_words_are_neither_split_nor_joined(store: Store) -> None:
    store.claim("The handler calls getUserId before login.")
    store.artifact("Rule", "Notice DOCK-GATE-77 applies here.")
    assert store.qualified("GETUSERID") == ["The handler calls getUserId before login."]
    assert store.qualified("get user id") == []
    assert store.qualified("DOCK_GATE_77") == ["Notice DOCK-GATE-77 applies here."]
    assert store.qualified("dockgate77") == []


@pytest.mark.proves("retrieval-23")
def test_a_shared_word_alone_is_no_answer(store: Store) -> None:
    store.artifact("Tide table", "The harbour tide schedule is revised.")
    result = store.search("What harbour stores captain salary figures in the ledger?")
    (hit,) = result["hits"]
    assert hit["ranking"]["qualified"] is False
    assert hit["ranking"]["matched_terms"] == ["harbour"]
    assert hit["ranking"]["lexical_coverage"] == pytest.approx(1 / 6)
    assert hit["ranking"]["required_matches"] == 3
    assert result["unqualified_candidate_count"] == 1
    assert result["best_unqualified_coverage"] == pytest.approx(1 / 6)
    assert hit["provenance"]["retrieval_tier"] == "candidate"


@pytest.mark.proves("retrieval-25", "retrieval-26", "machine-165")
def test_the_words_of_an_identifier_must_stand_together(store: Store) -> None:
    store.artifact("Loose", "The dock opens early. A gate is further on. Berth 77 is elsewhere.")
    assert store.qualified("DOCK-GATE-77") == []
    store.artifact("Rule", "Notice DOCK-GATE-77 applies here.")
    assert store.qualified("DOCK-GATE-77") == ["Notice DOCK-GATE-77 applies here."]


@pytest.mark.proves("retrieval-27")
def test_a_hyphenated_word_of_the_query_is_mandatory(store: Store) -> None:
    statement = "Paint samples require a clean dry surface inside the hangar."
    store.claim(statement)
    assert store.qualified("paint samples dry-dock hangar") == []
    assert store.qualified("paint samples dry dock hangar") == [statement]
    assert store.qualified("paint samples clean-dry hangar") == [statement]


# --- order --------------------------------------------------------------------------------------------------------


@pytest.mark.proves("retrieval-33")
def test_a_match_of_everything_comes_first_whatever_bm25_says(store: Store) -> None:
    store.claims(["kiwi kiwi kiwi kiwi mango", "kiwi mango papaya"])
    first = store.hits("kiwi mango papaya")[0]
    assert first["excerpt"] == "kiwi mango papaya"
    assert first["ranking"]["exact_tier"] is True
    assert first["provenance"]["retrieval_tier"] == "exact_match"


@pytest.mark.proves("retrieval-34")
def test_of_equal_matches_the_newest_comes_first(store: Store) -> None:
    store.claims(["emu alpha", "emu bravo"])
    hits = store.hits("emu", recency={"enabled": False})
    assert [(hit["excerpt"], hit["score"]) for hit in hits] == [
        ("emu bravo", 0.016393442623),
        ("emu alpha", 0.016129032258),
    ]


def test_the_newest_of_more_equal_matches_than_the_window_holds_are_kept(store: Store) -> None:
    store.claims(f"heron number{number}" for number in range(300))
    assert store.excerpts("heron", limit=2, recency={"enabled": False}) == ["heron number299", "heron number298"]


@pytest.mark.proves("retrieval-31")
def test_unqualified_hits_are_listed_and_marked(store: Store) -> None:
    store.claims(["kiwi one", "kiwi mango papaya guava"])
    result = store.search("kiwi mango papaya guava lychee durian")
    assert [hit["ranking"]["qualified"] for hit in result["hits"]] == [True, False]
    assert result["unqualified_candidate_count"] == 1


@pytest.mark.proves("retrieval-35", "machine-163")
def test_two_stores_of_the_same_content_answer_in_the_same_order(store: Store, tmp_path: Any) -> None:
    other = Store(tmp_path / "other")
    for each in (store, other):
        each.claims(f"pelican {word} {word}" for word in ("one", "two", "three", "four") * 5)
        for number in range(20):
            each.artifact("Pelican", f"pelican body {number % 4}")
    assert store.search_bytes("pelican two", limit=50) == store.search_bytes("pelican two", limit=50)
    assert store.excerpts("pelican two", limit=50) == other.excerpts("pelican two", limit=50)
    other.close()


@pytest.mark.proves("retrieval-38")
def test_a_word_of_the_title_weighs_more(store: Store) -> None:
    store.artifact("Other", "a long body that mentions pelican twice, pelican")
    store.artifact("Pelican rollout", "unrelated body text here")
    assert store.hits("pelican")[0]["title"] == "Pelican rollout"


# --- spans --------------------------------------------------------------------------------------------------------


@pytest.mark.proves("retrieval-39", "machine-154", "machine-156")
def test_a_match_deep_in_a_long_body_is_cited_where_it_stands(store: Store) -> None:
    body = (
        "routine harbour remarks repeated. " * 2500
        + "\n\n# Deep part\n\nThe marlinspike hangs beside the bollardkey for checking.\n\n"
        + "appendix filler words. " * 1200
    )
    store.artifact("Long", body)
    (hit,) = store.hits("marlinspike bollardkey")
    assert hit["citation"].endswith("#85002-85074")
    check_span(store, hit, body.encode())
    assert "artifact_citation_span_v1" in hit["matched_by"]


@pytest.mark.proves("retrieval-40", "machine-155")
def test_a_match_of_the_title_only_has_no_span(store: Store) -> None:
    store.artifact("PIER-TITLE-318", "filler text. " * 4000)
    (hit,) = store.hits("PIER-TITLE-318")
    assert "#" not in hit["citation"]
    assert hit["excerpt"] == "PIER-TITLE-318"
    assert hit["provenance"]["retrieval_match"] == "title"


@pytest.mark.proves("retrieval-41")
def test_words_in_different_chunks_count_together_and_one_chunk_is_cited(store: Store) -> None:
    filler = "neutral words between the two ends. " * 500
    store.artifact("Ends", f"alphacrate starts the record.\n\n{filler}\n\nomegacrate ends the record.")
    (hit,) = store.hits("alphacrate omegacrate")
    assert hit["citation"].endswith("#0-31")
    assert (hit["ranking"]["matched_unit_count"], hit["ranking"]["qualified"]) == (2, True)


@pytest.mark.proves("retrieval-42")
def test_a_match_across_title_and_body_is_cited_by_the_title(store: Store) -> None:
    store.artifact("Pelican rollout", "The launch window opens in March.")
    (hit,) = store.hits("pelican launch")
    assert hit["ranking"]["exact_tier"] is True
    assert "#" not in hit["citation"]


@pytest.mark.proves("retrieval-43")
def test_spans_count_bytes(store: Store) -> None:
    store.artifact("U", "é" * 10 + " heron note")
    (hit,) = store.hits("heron")
    assert hit["citation"].endswith("#0-31")


@SHARED_STORE
@given(
    body=st.lists(st.text(max_size=400), max_size=60).map("\n\n".join),
    word=st.sampled_from(["quetzal", "設備", "ÉTUDE"]),
)
def test_every_span_is_exactly_its_excerpt(store: Store, body: str, word: str) -> None:
    whole = f"{body}\n{word}\n{body}"
    artifact = store.artifact("Spans", whole)
    found = [hit for hit in store.hits(word, limit=100) if hit["entity_id"] == artifact["artifact_id"]]
    for hit in found:
        check_span(store, hit, whole.encode())
    assert found or len(store.hits(word, limit=100)) == 100

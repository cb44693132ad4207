"""Ordinary text as a query: punctuation, identifiers, many scripts (fault classes 30 to 33)."""

from __future__ import annotations

import re

import pytest

from .workbench import Workbench

DISTRACTORS = [
    "The kiln was unloaded on Monday and the shelves were scraped.",
    "Glazes are mixed by weight, sieved twice, and left to rest overnight.",
    "Invoices for the studio are due at the end of each quarter.",
]
PUNCTUATED = [
    "current.md", "ask-codex", "BENCH-100821", "state-of-the-art", "grammar::fa", "38.101", "C++", "O'Reilly",
    "user@example.com", "a:b", "-band", "AND", "NOT x", "NEAR(", "NEAR(tokens)", '"unbalanced', "title:x*", "x OR y",
    "{curly}", "col:val", "x^2", "100%", "under_score", "a/b/c", "tab\tseparated", "x\u0000y", "--dry-run", "#42",
    "$HOME", "\\back\\slash", "x;DROP TABLE claims", "x' OR '1'='1", "[bracket]", "~tilde", "&amp;",
]  # fmt: skip
SCRIPTS = [
    "设备", "中文", "café", "cafe\u0301", "サンドボックス", "Straße", "STRASSE", "İstanbul", "istanbul", "ΣΊΣΥΦΟΣ",
    "журнал", "أين", "שלום", "हिन्दी", "ไทย", "한국어", "naïve", "ＡＢＣ", "ǅ", "ﬁne", "²", "٣٤", "𝒳𝒴", "𠀋𠀌",
]  # fmt: skip
WITHOUT_A_TERM = ["*", "^", "()", "", "\x00", '"\x00"', "👍", "…", "\ufeff", "\u202e", "\ufffe"]


@pytest.mark.fault_class(30)
@pytest.mark.parametrize("query", PUNCTUATED, ids=ascii)
def test_punctuation_and_keywords_in_a_query_are_ordinary_text(bench: Workbench, query: str) -> None:
    for body in DISTRACTORS:
        bench.put(body, title="untitled")
    wanted = bench.put(f"We wrote {query} on the board.", title="untitled")
    found = bench.found(query)
    assert found[:1] == [wanted["artifact_id"]]


@pytest.mark.fault_class(30)
@pytest.mark.parametrize("query", SCRIPTS, ids=ascii)
def test_words_of_any_script_find_their_own_spelling(bench: Workbench, query: str) -> None:
    for body in DISTRACTORS:
        bench.put(body, title="untitled")
    wanted = bench.put(f"We wrote {query} on the board.", title="untitled")
    claim = bench.claim(f"They said {query} twice.")
    assert set(bench.found(query)[:2]) == {wanted["artifact_id"], claim["claim_id"]}


@pytest.mark.fault_class(30)
@pytest.mark.parametrize("query", WITHOUT_A_TERM, ids=ascii)
def test_a_query_without_a_term_is_refused_and_breaks_nothing(bench: Workbench, query: str) -> None:
    bench.put(f"We wrote {query} on the board.")
    bench.door.refused("INVALID_REQUEST", "search", {"query": query})
    assert bench.found("board")


@pytest.mark.fault_class(30)
@pytest.mark.parametrize("query", ["x" * 5_000, "q" * 8_192, '"' * 5_000 + "x", "(" * 5_000 + "x", "x*" * 40])
def test_long_and_repetitive_queries_are_answered(bench: Workbench, query: str) -> None:
    assert bench.search(query)["query"] == query


@pytest.mark.fault_class(30)
def test_ten_thousand_words_are_refused(bench: Workbench) -> None:
    bench.door.refused("INVALID_REQUEST", "search", {"query": "a " * 10_000})


@pytest.mark.fault_class(55)
@pytest.mark.parametrize("repeats", [25, 100, 1000, 2048])
def test_words_of_two_scripts_without_spaces_are_counted_apart(bench: Workbench, repeats: int) -> None:
    bench.put("a 设备 用户 b c 中文 text line " + "a设" * 30)
    bench.door.refused("INVALID_REQUEST", "search", {"query": "a设" * repeats})
    assert bench.found("a设" * 24)


@pytest.mark.fault_class(30)
@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("サンドボックス修正テスト", "サンドボックス"),
        ("Le café est fermé.", "CAFÉ ferme"),
        ("Le café est fermé.", "cafe"),
    ],
)
def test_folding_and_runs_of_one_script(bench: Workbench, stored: str, asked: str) -> None:
    wanted = bench.put(stored, title="untitled")
    assert bench.found(asked) == [wanted["artifact_id"]]


IDENTIFIERS = {
    "a dotted number": ("38.101", ["38 kilns and 101 shelves", "101.38", "38.102", "138.101", "38.1.01"]),
    "a version": ("v1.2.3", ["v1.2.4", "v3.2.1", "1.2.3", "v1 and 2 and 3", "v1.23"]),
    "a version number": ("10.4.2", ["10.2.4", "4.10.2", "10.4.20", "104.2", "2 of 10 with 4"]),
    "an article number": ("SKU-88-4711-B", ["SKU-88-4712-B", "SKU-4711-88-B", "SKU 88 B", "B-4711-88-SKU"]),
    "an address": ("192.168.10.24", ["192.168.24.10", "10.24.192.168", "192.168.10.25", "192.10.168.24"]),
    "a date": ("2026-03-02", ["2026-02-03", "2026-03-20", "02-03-2026", "2025-03-02"]),
    "the start of a UUID": ("550e8400-e29b", ["550e8400-e29c", "e29b-550e8400", "550e8401-e29b"]),
    "a path": (
        "src/kiln/cone.py",
        ["src/cone/kiln.py", "kiln/src/cone.py", "src/kiln/cones.py", "src/kiln.py"],
    ),
}


@pytest.mark.fault_class(31)
@pytest.mark.parametrize("kind", IDENTIFIERS)
@pytest.mark.parametrize("as_claims", [False, True], ids=["artifacts", "claims"])
def test_the_exact_identifier_is_first_among_lookalikes(bench: Workbench, kind: str, as_claims: bool) -> None:
    identifier, lookalikes = IDENTIFIERS[kind]

    def store(text: str) -> str:
        sentence = f"The note of that day mentions {text} and nothing else of interest."
        stored = bench.claim(sentence) if as_claims else bench.put(sentence, title="untitled")
        return str(stored["claim_id"] if as_claims else stored["artifact_id"])

    for text in lookalikes[::2] + DISTRACTORS:
        store(text)
    wanted = store(identifier)
    for text in lookalikes[1::2] + [f"{identifier[:3]} {text}" for text in lookalikes]:
        store(text)
    for query in (identifier, f"what about {identifier}?", f'"{identifier}"'):
        assert bench.found(query, recency={"enabled": False})[:1] == [wanted], query


@pytest.mark.fault_class(31)
@pytest.mark.parametrize("kind", IDENTIFIERS)
def test_the_exact_identifier_is_first_whatever_the_rest_of_the_store_holds(bench: Workbench, kind: str) -> None:
    """Word frequencies elsewhere in the store shift every BM25 score; the literal match must not depend on them."""
    identifier, lookalikes = IDENTIFIERS[kind]
    sentence = "The note of that day mentions {} and nothing else of interest."
    first, *_, last = re.findall(r"\w+", identifier)
    lookalikes = [*lookalikes, *(f"{identifier[:3]} {text}" for text in lookalikes)]
    wanted = bench.put(sentence.format(identifier), title="untitled")["artifact_id"]
    for text in lookalikes:
        bench.put(sentence.format(text), title="untitled")
    elsewhere = {"context": bench.door.here(project_id="prj_crowd")}
    for crowd in (last, first):
        assert bench.found(identifier, recency={"enabled": False})[:1] == [wanted]
        for number in range(60 if crowd == last else 240):
            bench.put(f"{crowd} {number}{number}", title="untitled", how=elsewhere)
    assert bench.found(identifier, recency={"enabled": False})[:1] == [wanted]


CJK = {
    "今日は成語しりとりをした": ["しりとり", "成語", "今日"],
    "오늘 끝말잇기 게임을 했다": ["끝말잇기", "게임", "오늘"],
    "今天玩成语接龙游戏": ["成语接龙", "成语", "接龙游", "游戏"],
    "用户服务器部署在腾讯云国内节点": ["腾讯云", "服务器部", "节点", "云"],
    "设备清单(devices) NAS cdm-xxc": ["设备", "清单", "devices", "cdm-xxc", "备清"],
    "中文优先": ["中文", "优先", "中", "文优", "中文优", "中文优先"],
    "系统记录了用户身份和权限": ["用户身份", "身份", "户身份", "权", "权限"],
}


@pytest.mark.fault_class(32)
@pytest.mark.parametrize("text", CJK)
def test_a_piece_of_a_run_without_spaces_is_found(bench: Workbench, text: str) -> None:
    for other in CJK:
        if other != text:
            bench.put(other, title="untitled")
    wanted = bench.put(text, title="untitled")
    claim = bench.claim(text)
    for piece in CJK[text]:
        found = bench.found(piece)
        assert {wanted["artifact_id"], claim["claim_id"]} <= set(found[:4]), piece


@pytest.mark.fault_class(33)
@pytest.mark.parametrize("query", ["to be or not to be", "the and", "who", "what is the"])
def test_a_query_of_common_words_only_keeps_them_all(bench: Workbench, query: str) -> None:
    wanted = bench.put(f"He asked: {query} — and left.", title="untitled")
    bench.put("Celadon glazes crack.", title="untitled")
    answer = bench.search(query)
    assert [hit["entity_id"] for hit in answer["hits"]][:1] == [wanted["artifact_id"]]
    assert answer["query_analysis"]["content_units"]


@pytest.mark.fault_class(33)
def test_common_words_never_answer_for_the_word_that_matters(bench: Workbench) -> None:
    bench.put("What is the plan for the kiln?", title="untitled")
    for hit in bench.search("what is the celadon")["hits"]:
        assert hit["ranking"]["qualified"] is False


@pytest.mark.fault_class(34)
@pytest.mark.parametrize("name", ["caf\u00e9", "cafe\u0301", "\u212a", "K", "\uff21\uff22\uff23", "ABC"], ids=ascii)
def test_names_keep_the_spelling_they_were_given(bench: Workbench, name: str) -> None:
    stored = bench.put(name, title=name, kind=name)
    record = bench.get(stored["artifact_id"])
    assert (record["title"], record["kind"], record["content"]["data"]) == (name, name, name)


@pytest.mark.fault_class(34)
def test_the_twin_spelling_of_a_name_is_found_too(bench: Workbench) -> None:
    composed, decomposed = bench.put("x", title="caf\u00e9"), bench.put("x", title="cafe\u0301")
    both = {composed["artifact_id"], decomposed["artifact_id"]}
    assert set(bench.found("caf\u00e9")) == both
    assert set(bench.found("cafe\u0301")) == both

"""Answer packs: what is read for a question, what is said to be missing, and within which budget (OKF contract §7)."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoree.okf import tokens
from memoree.okf.answer_rules import check
from memoree.okf.answer_text import CLOSING_HEADING
from memoree.okf.answer_trace import ToolCall, Trace
from memoree.okf.answering import (
    NEIGHBOURS_MAX,
    TOKEN_BUDGET_MIN,
    Found,
    PackHit,
    PackNeighbour,
    assembled,
)

from .answer_support import AS_OF, BUNDLE, QUESTION, Json, Memory, milliseconds
from .golden import BUNDLE as GOLDEN
from .golden import expected, needs_golden, vectors


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    return Memory.of(tmp_path_factory.mktemp("pottery"))


def gaps(pack: Json, name: str) -> list[Json]:
    return [gap for gap in pack["gaps"] if gap["gap"] == name]


def cost(pack: Json) -> int:
    """Tokens of everything but the question, counted without the code under test."""
    text = orjson.dumps({name: value for name, value in pack.items() if name != "question"}).decode()
    return -(-len(text) // 4)


def followed(pack: Json) -> str:
    """An answer that does with a pack what the protocol says, and nothing of its own."""
    if not pack["nodes"]:
        yet = "Whoever knows should write it down."
        lines = [f"Memory holds nothing on that. {yet}", "", f"## {pack['closing_heading']}", ""]
        told = [*gaps(pack, "set_aside")] or [{"title": pack["question"]}]
        return "\n".join([*lines, *(f"- To be written, or read: {gap['title']}" for gap in told), ""])
    lines = []
    for node in pack["nodes"]:
        label = f" It is labelled: {node['hygiene']}." if node["hygiene"] else ""
        lines.append(f"- {node['title']} is on record (`{node['path']}`).{label}")
    lines += ["", f"## {pack['closing_heading']}", ""]
    lines += [f"- Set aside: {gap['title']} of {gap['path'].strip('/')[:-3]}" for gap in gaps(pack, "set_aside")]
    lines += [f"- Nothing is known of: {', '.join(gap['words'])}" for gap in gaps(pack, "unmatched_words")]
    lines += [f"- How `{pack['cite'][0]}` goes on is not stored"]
    lines += [f"- `{gap['path']}` is of {gap['date']}" for gap in gaps(pack, "age")]
    if not gaps(pack, "age"):
        lines.append("- No node that was read has a date")
    return "\n".join([*lines, ""])


def broken(pack: Json, memory: Memory) -> set[str]:
    """Rules that a trace breaks in which the pack is asked for, and followed."""
    call = ToolCall("memory_answer_pack", {"question": pack["question"]}, pack)
    trace = Trace(pack["question"], [call], followed(pack), memory.nodes)
    return {verdict.rule for verdict in check(trace) if not verdict.is_kept}


def test_the_first_hits_are_read_then_neighbours_of_the_subject_and_the_others_are_set_aside(memory: Memory) -> None:
    pack = memory.pack(QUESTION)
    assert [(node["id"], node["reached"]) for node in pack["nodes"]] == [
        ("entities/nora-finch", "hit"),
        ("projects/kiln-rebuild", "hit"),
        ("concepts/kiln-colours", "hit"),
        ("entities/clay-lab", "hop"),
        ("concepts/ash-glaze", "hop"),
    ]
    assert pack["cite"] == [node["path"] for node in pack["nodes"]]
    assert [gap["path"] for gap in gaps(pack, "set_aside")] == ["/projects/plan-lining.md", "/projects/task-bricks.md"]
    assert pack["nodes"][3]["expandedFrom"] == "entities/nora-finch"
    assert pack["nodes"][0]["content"] == BUNDLE["entities/nora-finch.md"]
    assert pack["content_is_untrusted"] is True


def test_a_question_about_no_person_or_project_reads_the_hits_alone(memory: Memory) -> None:
    pack = memory.pack("colours of cone packs")
    assert {node["reached"] for node in pack["nodes"]} == {"hit"}


@pytest.mark.proves("okf-111")
@pytest.mark.parametrize(
    "question",
    [
        QUESTION,
        "Is the pyrometer right?",
        "When does the courier collect?",
        "wash",
        "marzipan",
        "Обжиг печи",
        "Who is Nora Finch?",
        "Clay Lab and ash glaze",
        "4417 marmalade gossip",
    ],
)
@pytest.mark.parametrize("budget", [TOKEN_BUDGET_MIN, 700, 1000, 6000])
def test_an_answer_that_follows_the_pack_keeps_every_rule(memory: Memory, question: str, budget: int) -> None:
    pack = memory.pack(question, token_budget=budget)
    assert broken(pack, memory) == set()
    assert cost(pack) <= budget


@needs_golden
@pytest.mark.parametrize("query", sorted({vector["query"] for vector in vectors("recall")}))
def test_an_answer_that_follows_a_pack_of_the_golden_bundle_keeps_every_rule(query: str) -> None:
    golden = Memory.at(GOLDEN)
    pack = golden.pack(query, as_of=expected()["as_of"])
    assert broken(pack, golden) == set()
    assert len(pack["nodes"]) <= 5


def test_the_same_question_gives_the_same_pack(memory: Memory) -> None:
    assert orjson.dumps(memory.pack(QUESTION)) == orjson.dumps(memory.pack(QUESTION))


def test_a_pack_says_how_old_everything_is(memory: Memory) -> None:
    pack = memory.pack(QUESTION)
    assert gaps(pack, "age")[0] == {
        "gap": "age",
        "path": "/entities/nora-finch.md",
        "date": "2026-07-10",
        "age_days": 22,
    }
    assert gaps(pack, "same_day") == [{"gap": "same_day", "date": "2026-07-10"}]
    assert gaps(pack, "all_old") == []
    later = memory.pack(QUESTION, as_of="2026-09-08T00:00:00Z")
    assert gaps(later, "all_old") == [{"gap": "all_old", "newest": "2026-07-10", "age_days": 60}]
    assert gaps(memory.pack(QUESTION, as_of="2026-09-07T23:59:59Z"), "all_old") == []


def test_a_pack_says_what_has_no_date_and_which_words_are_nowhere(memory: Memory) -> None:
    pack = memory.pack("shelf wash spraygun")
    assert gaps(pack, "undated") == [{"gap": "undated", "path": "/concepts/shelf-wash.md"}]
    assert gaps(pack, "unmatched_words") == [{"gap": "unmatched_words", "words": ["spraygun"]}]


def test_a_pack_without_hits_says_so(memory: Memory) -> None:
    pack = memory.pack("marzipan")
    assert (pack["hits"], pack["nodes"], pack["cite"]) == ([], [], [])
    assert gaps(pack, "no_hits") == [{"gap": "no_hits"}]
    assert pack["closing_heading"] == CLOSING_HEADING


def test_labels_and_text_that_reads_like_instructions_are_told(memory: Memory) -> None:
    old = memory.pack("pyrometer")
    assert gaps(old, "hygiene") == [
        {"gap": "hygiene", "path": "/concepts/old-cone.md", "label": "[deprecated 2026-06-01]"}
    ]
    courier = memory.pack("courier")
    found = [gap for gap in gaps(courier, "instruction_like") if gap["path"] == "/concepts/courier-note.md"]
    assert found[0]["labels"] == ["ignore-previous-instructions", "run-execute-command"]


def test_hits_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    one = "---\ntype: Decision\ntitle: Glaze supplier\ntags: [glaze]\ntimestamp: 2026-0{}-01\n---\nGlaze from {}.\n"
    bundle = {"concepts/a.md": one.format(1, "Riga"), "concepts/b.md": one.format(2, "Turku")}
    pack = Memory.of(tmp_path, bundle).pack("glaze supplier")
    conflict = {"gap": "conflict", "path": "/concepts/a.md", "label": "⚔ conflicts with concepts/b"}
    assert gaps(pack, "conflict") == [conflict]


@pytest.mark.parametrize("question", ["kiln rebuild review marmalade salary 4417 gossip", "safe opens 4417"])
def test_no_pack_shows_a_secret_or_the_inbox(memory: Memory, question: str) -> None:
    told = orjson.dumps({**memory.pack(question), "question": ""}).decode()
    unmatched = orjson.dumps(gaps(memory.pack(question), "unmatched_words")).decode()
    shown = told.replace(unmatched.strip("[]"), "")
    for word in ("4417", "marmalade", "salaries", "gossip", "hidden", "safe.md"):
        assert word not in shown


def test_a_node_that_turns_secret_between_search_and_read_is_left_out() -> None:
    hit = PackHit("concepts/x", "Concept", "A safe", 1.0, "", "")
    secret = b"---\ntype: Concept\nvisibility: secret\n---\nword\n"
    pack = assembled("x", Found("bm25", [hit], []), lambda _: secret, at_ms=0)
    assert (pack["hits"], pack["nodes"], pack["cite"]) == ([], [], [])
    assert gaps(pack, "no_hits") != []


# --- budgets ----------------------------------------------------------------------------------------------------------


def long_memory(root: Path, text: str, count: int = 6) -> Memory:
    front = "---\ntype: Concept\ntitle: Firing {}\ntimestamp: 2026-07-10\n---\n"
    return Memory.of(root, {f"concepts/firing-{at}.md": front.format(at) + text * (at + 1) for at in range(count)})


@pytest.mark.fault_class(6)
def test_what_does_not_fit_is_cut_at_a_line_and_told(tmp_path: Path) -> None:
    pack = long_memory(tmp_path, "cone six was reached at nine\n" * 50).pack("cone", token_budget=1500)
    assert cost(pack) <= 1500
    assert pack["tokens"] in (cost(pack), cost(pack) + 1)
    cut = [node for node in pack["nodes"] if node["truncated"]]
    assert [gap["path"] for gap in gaps(pack, "cut")] == [node["path"] for node in cut] != []
    for node, gap in zip(cut, gaps(pack, "cut"), strict=True):
        whole = (tmp_path / node["path"][1:]).read_text()
        assert whole.startswith(node["content"])
        assert node["content"].endswith("\n")
        assert gap["tokens_left_out"] == -(-(len(whole) - len(node["content"])) // 4)


def test_a_short_node_is_whole_beside_a_huge_one(tmp_path: Path) -> None:
    front = "---\ntype: Concept\ntitle: {}\n---\ncone\n"
    bundle = {"concepts/big.md": front.format("Big") + "cone " * 200_000, "concepts/small.md": front.format("Small")}
    pack = Memory.of(tmp_path, bundle).pack("cone", token_budget=600)
    assert {node["id"]: node["truncated"] for node in pack["nodes"]} == {"concepts/big": True, "concepts/small": False}
    assert 540 <= cost(pack) <= 600, "what the short one leaves is for the huge one"


def test_no_node_is_shown_in_shreds(tmp_path: Path) -> None:
    memory = long_memory(tmp_path, "cone six was reached at nine\n" * 50)
    counts = set()
    for budget in range(TOKEN_BUDGET_MIN, 1200, 25):
        nodes = memory.pack("cone", token_budget=budget)["nodes"]
        counts.add(len(nodes))
        assert all(len(node["content"]) >= 80 for node in nodes)
    assert counts >= {1, 3, 5}


def test_titles_and_labels_are_cut() -> None:
    hit = PackHit("concepts/x", "Concept", "t" * 5000, 1.0, "", "l" * 5000)
    pack = assembled("x", Found("bm25", [hit], []), lambda _: b"x", at_ms=0)
    for shown in (pack["hits"][0], pack["nodes"][0]):
        assert (len(shown["title"]), len(shown["hygiene"])) == (200, 400)


HOSTILE = {
    "control characters, six to one in JSON": "\x01" * 5000,
    "one line": "x" * 100_000,
    "letters beyond the first plane": "\U0001f600" * 5000,
    "quotes": '"\\' * 5000,
    "nothing": "",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
@pytest.mark.parametrize("budget", [TOKEN_BUDGET_MIN, 777, 2000])
def test_no_text_breaks_a_budget(text: str, budget: int) -> None:
    hits = [PackHit(f"concepts/{at}" + "é" * 90, "Concept", text or "t", 1.0, text[:600], text) for at in range(5)]
    hops = [PackNeighbour(f"entities/{at}", "Entity", text, "about", hits[0].id, text) for at in range(NEIGHBOURS_MAX)]
    pack = assembled("t", Found("bm25", hits, hops), lambda _: text.encode(), at_ms=0, token_budget=budget)
    assert cost(pack) <= budget


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=3000), st.text(max_size=400)), max_size=5),
    st.integers(TOKEN_BUDGET_MIN, 3000),
    st.text(min_size=1, max_size=2000),
)
def test_a_budget_holds_for_any_nodes_and_any_question(
    nodes: list[tuple[str, str]], budget: int, question: str
) -> None:
    texts = {f"concepts/{at}": text.encode(errors="replace") for at, (text, _) in enumerate(nodes)}
    hits = [
        PackHit(node_id, "Project", title.encode(errors="replace").decode(), 1.0, "", "")
        for node_id, (_, title) in zip(texts, nodes, strict=True)
    ]
    asked = question.encode(errors="replace").decode()
    pack = assembled(asked, Found("bm25", hits, []), texts.get, at_ms=milliseconds(AS_OF), token_budget=budget)
    assert cost(pack) <= budget
    assert pack["question"] == asked


@pytest.mark.parametrize(("text", "count"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("ж" * 8, 2)])
def test_a_token_is_four_characters_begun(text: str, count: int) -> None:
    assert tokens.estimated(text) == count

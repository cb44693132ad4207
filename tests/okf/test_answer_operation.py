"""`answer.pack` over a bundle in the store, and the protocol followed with the real operations (OKF contract §7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memoree.errors import MemoreeError
from memoree.okf.answer_rules import check
from memoree.okf.answer_trace import ToolCall, Trace
from memoree.okf.answering import TOKEN_BUDGET_MAX, TOKEN_BUDGET_MIN
from memoree.operations.answer_pack import Pack

from .answer_support import AS_OF, BUNDLE, QUESTION, Json, Memory
from .stored import Store, opened
from .test_answer_pack import broken, cost
from .test_answer_rules import ANSWER

MIRROR = "---\ntype: Concept\ntitle: Kiln rebuild copy\nsource: [grok]\n---\nkiln rebuild review by Nora Finch\n"


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    return Memory.of(tmp_path_factory.mktemp("files"), BUNDLE)


@pytest.fixture(scope="module")
def store(memory: Memory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with opened(tmp_path_factory.mktemp("store")) as store:
        store.imported(memory.root)
        yield store


def called(store: Store, op: str, **arguments: Any) -> ToolCall:
    return ToolCall(op, arguments, store.ask(op, **arguments))


@pytest.mark.parametrize("question", [QUESTION, "pyrometer", "courier", "marzipan", "wash spraygun", "4417 gossip"])
@pytest.mark.parametrize("budget", [TOKEN_BUDGET_MIN, 6000])
def test_the_store_gives_the_pack_that_the_files_give(store: Store, memory: Memory, question: str, budget: int) -> None:
    pack = store.ask("answer.pack", question=question, token_budget=budget, as_of=AS_OF)
    assert pack == memory.pack(question, token_budget=budget)
    assert cost(pack) <= budget


@pytest.mark.parametrize("question", [QUESTION, "pyrometer", "courier", "wash spraygun", "marzipan"])
@pytest.mark.parametrize("budget", [TOKEN_BUDGET_MIN, 6000])
def test_a_pack_is_what_its_schema_says_and_holds_nothing_else(store: Store, question: str, budget: int) -> None:
    pack = store.ask("answer.pack", question=question, token_budget=budget)
    assert Pack.model_validate(pack, strict=True).model_dump(exclude_unset=True) == pack


@pytest.mark.proves("okf-111")
@pytest.mark.parametrize("question", [QUESTION, "pyrometer", "courier", "marzipan"])
def test_a_trace_that_asks_for_the_pack_and_follows_it_keeps_every_rule(
    store: Store, memory: Memory, question: str
) -> None:
    assert broken(store.ask("answer.pack", question=question), memory) == set()


@pytest.mark.proves("okf-112")
def test_the_example_of_the_protocol_is_kept_by_the_real_operations(store: Store, memory: Memory) -> None:
    ids = ["nora-finch", "kiln-rebuild", "concepts/kiln-colours", "/entities/clay-lab.md", "ash-glaze"]
    calls = [called(store, "okf.search", query=QUESTION, k=5), *(called(store, "okf.get", id=each) for each in ids)]
    trace = Trace(QUESTION, calls, ANSWER, memory.nodes)
    assert {verdict.rule for verdict in check(trace) if not verdict.is_kept} == set()
    more = Trace(QUESTION, [*calls, called(store, "okf.get", id="plan-lining")], ANSWER, memory.nodes)
    assert {verdict.rule for verdict in check(more) if not verdict.is_kept} == {"AP-3"}


def test_nothing_secret_is_in_a_pack_of_the_store(store: Store) -> None:
    for question in ("kiln safe opens", "salary review", "gossip"):
        pack = store.ask("answer.pack", question=question)
        shown: Json = {"hits": pack["hits"], "nodes": pack["nodes"], "cite": pack["cite"]}
        assert not any(word in str(shown) for word in ("4417", "marmalade", "gossip", "hidden", "secret"))


def test_a_project_without_a_bundle_has_nothing_on_any_question(tmp_path: Path) -> None:
    with opened(tmp_path) as empty:
        pack = empty.ask("answer.pack", question="kiln")
    assert [gap["gap"] for gap in pack["gaps"]] == ["no_hits", "unmatched_words"]
    assert pack["nodes"] == []


def test_copies_of_engines_memories_and_a_source_are_left_out_on_request(tmp_path: Path) -> None:
    source = Memory.of(tmp_path / "files", {**BUNDLE, "mirror/grok/kiln.md": MIRROR})
    with opened(tmp_path / "store") as store:
        store.imported(source.root, include_mirror=True)
        asked: Json = {"question": QUESTION, "as_of": AS_OF}
        found = {hit["id"] for hit in store.ask("answer.pack", **asked)["hits"]}
        without = {hit["id"] for hit in store.ask("answer.pack", **asked, include_mirror=False)["hits"]}
        unsourced = {hit["id"] for hit in store.ask("answer.pack", **asked, exclude_source="grok")["hits"]}
    assert "mirror/grok/kiln" in found
    assert "mirror/grok/kiln" not in without | unsourced


@pytest.mark.parametrize(
    "given",
    [
        {"question": " "},
        {"question": "x" * 5000},
        {"question": "kiln", "token_budget": TOKEN_BUDGET_MIN - 1},
        {"question": "kiln", "token_budget": TOKEN_BUDGET_MAX + 1},
        {"question": "kiln", "as_of": "yesterday"},
        {"question": "kiln", "exclude_source": "Grok CLI"},
        {"question": "kiln", "k": 50},
        {},
    ],
)
def test_a_request_that_cannot_be_meant_is_refused(store: Store, given: Json) -> None:
    with pytest.raises(MemoreeError) as refusal:
        store.ask("answer.pack", **given)
    assert refusal.value.code == "INVALID_REQUEST"

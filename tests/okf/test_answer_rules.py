"""The rules of answering, each held by one recorded trace and broken by another (OKF contract §7.4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from memoree.okf.answer_rules import RULES, check
from memoree.okf.answer_text import CLOSING_HEADING, bare_paths, coded_paths, parse
from memoree.okf.answer_trace import Kind, ToolCall, Trace, recorded
from memoree.okf.answer_words import content_words, reports_absence

from .answer_support import QUESTION, Memory

CLOSING = f"## {CLOSING_HEADING}\n\n"
BOTH_GAPS = "- No agenda and no date of the review is stored.\n- Who pays for the burner of the kiln is open.\n"
ANSWER = (
    "Nora Finch wants firing curves on paper first (`/entities/nora-finch.md`). She works at the Clay Lab, which "
    "answers within a week (`/entities/clay-lab.md`).\n\n"
    "- The rebuild replaces the lining; the review decides the burner (`/projects/kiln-rebuild.md`).\n"
    "- Her ash glaze is half wood ash (`/concepts/ash-glaze.md`).\n\n"
    f"{CLOSING}{BOTH_GAPS}"
    "- Everything read is of one day, 2026-07-10.\n"
)
SHORT = (
    "The rebuild replaces the lining (`/projects/kiln-rebuild.md`).\n\n"
    f"{CLOSING}- No date of the review.\n- Of 2026-07-10.\n"
)
NOTHING = (
    f"Memory holds nothing about marzipan.\n\n{CLOSING}- A note on the marzipan supplier would have to be written.\n"
)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    return Memory.of(tmp_path_factory.mktemp("pottery"))


def example(memory: Memory) -> Trace:
    """One search; three of five hits read, two neighbours read, two hits set aside."""
    calls = [
        memory.search(QUESTION),
        memory.get("entities/nora-finch"),
        memory.get("projects/kiln-rebuild"),
        memory.get("concepts/kiln-colours"),
        memory.get("entities/clay-lab"),
        memory.get("concepts/ash-glaze"),
    ]
    return Trace(QUESTION, calls, ANSWER, memory.nodes)


def broken(trace: Trace) -> set[str]:
    return {verdict.rule for verdict in check(trace) if not verdict.is_kept}


def fault(trace: Trace, rule: str) -> str:
    return str(next(verdict.fault for verdict in check(trace) if verdict.rule == rule))


def answering(trace: Trace, answer: str) -> Trace:
    return dataclasses.replace(trace, answer=answer)


def calling(trace: Trace, *calls: ToolCall) -> Trace:
    return dataclasses.replace(trace, calls=[*trace.calls, *calls])


def edited(old: str, new: str) -> Callable[[Memory], Trace]:
    """The example with other words in its answer."""

    def made(memory: Memory) -> Trace:
        assert old in ANSWER
        return answering(example(memory), ANSWER.replace(old, new))

    return made


def asking(question: str, *ids: str, answer: str, words: str | None = None) -> Callable[[Memory], Trace]:
    """One search, for the question or for these words of it, and reads."""
    return lambda memory: Trace(
        question, [memory.search(words or question), *map(memory.get, ids)], answer, memory.nodes
    )


def marzipan(answer: str) -> Callable[[Memory], Trace]:
    return asking("Where does the marzipan come from?", words="marzipan", answer=answer)


def wash(answer: str) -> Callable[[Memory], Trace]:
    return asking("What is in the shelf wash?", "concepts/shelf-wash", words="wash", answer=answer)


def prepended(*tools: str) -> Callable[[Memory], Trace]:
    def made(memory: Memory) -> Trace:
        trace = example(memory)
        return dataclasses.replace(trace, calls=[*(ToolCall(tool) for tool in tools), *trace.calls])

    return made


def two_hits_read(answer: str) -> Callable[[Memory], Trace]:
    return asking(QUESTION, "entities/nora-finch", "projects/kiln-rebuild", answer=answer)


SET_ASIDE = SHORT.replace(
    "- No date", "- Set aside: Colours in the kiln, Plan for the kiln rebuild lining, Order bricks.\n- No date"
)
DEPRECATED = "How far off is the pyrometer?"
OFF = "The pyrometer reads ten degrees high (`/concepts/old-cone.md`)"
OLD = f"{CLOSING}- Whether the pyrometer was replaced.\n- The note is of 2026-03-01.\n"
COURIER = "When does the courier collect?"
TUESDAYS = (
    f"On Tuesdays (`/concepts/courier-note.md`).\n\n{CLOSING}- The hour of the courier.\n- It is of 2026-05-05.\n"
)
WASH = f"Kaolin and alumina (`/concepts/shelf-wash.md`).\n\n{CLOSING}- How often the wash is renewed.\n"


def plain(question: str, *calls: ToolCall) -> Callable[[Memory], Trace]:
    return lambda memory: Trace(question, calls, "Use `sorted(key=len)`.", memory.nodes, is_triggered=False)


def with_fact(*, writes: int, paths: tuple[str, ...]) -> Callable[[Memory], Trace]:
    def made(memory: Memory) -> Trace:
        write = ToolCall("memory_write_inbox", {"content": "Nora moved the review to Friday."}, {"ok": True})
        trace = calling(example(memory), *[write] * writes)
        return dataclasses.replace(trace, has_new_fact=True, changed_paths=paths)

    return made


def after_courier(*calls: ToolCall) -> Callable[[Memory], Trace]:
    def made(memory: Memory) -> Trace:
        return calling(asking(COURIER, "concepts/courier-note", words="courier", answer=TUESDAYS)(memory), *calls)

    return made


def hop_from_hop(memory: Memory) -> Trace:
    trace = example(memory)
    return dataclasses.replace(trace, calls=[*trace.calls[:3], trace.calls[4], memory.get("concepts/grinding")])


def six_hits(memory: Memory) -> Trace:
    trace = example(memory)
    return dataclasses.replace(trace, calls=[memory.search(QUESTION, k=6), *trace.calls[1:]])


def read_by_guess(memory: Memory) -> Trace:
    trace = example(memory)
    return dataclasses.replace(trace, calls=[*trace.calls[:5], memory.get("concepts/shelf-wash")])


Made = Callable[[Memory], Trace]
TRACES: dict[str, tuple[Made, Made, set[str]]] = {
    "AP-1": (prepended("memory_handoff", "memory_health"), prepended("memory_get"), {"AP-1", "AP-5"}),
    "AP-2": (example, six_hits, {"AP-2"}),
    "AP-3": (example, lambda memory: calling(example(memory), memory.get("projects/plan-lining")), {"AP-3"}),
    "AP-4": (two_hits_read(SET_ASIDE), two_hits_read(SHORT), {"AP-4"}),
    "AP-5": (example, read_by_guess, {"AP-5", "AP-8"}),
    "AP-6": (example, hop_from_hop, {"AP-5", "AP-6", "AP-4", "AP-8"}),
    "AP-7": (
        lambda memory: calling(example(memory), ToolCall("memory_list", {"type": "Plan"})),
        lambda memory: calling(example(memory), ToolCall("memory_list", {"type": " "})),
        {"AP-7"},
    ),
    "AP-8": (example, edited("`/concepts/ash-glaze.md`", "`/concepts/ash-glazes.md`"), {"AP-8"}),
    "AP-9": (example, edited(" (`/projects/kiln-rebuild.md`).", ", as the Kiln Rebuild has it."), {"AP-9"}),
    "AP-10": (example, lambda memory: answering(example(memory), f"{ANSWER}\nShall I write that down?\n"), {"AP-10"}),
    "AP-11": (example, edited("2026-07-10", "2026-07-11"), {"AP-11", "AP-12"}),
    "AP-12": (
        example,
        edited("Who pays for the burner of the kiln is open", "Some things may be missing"),
        {"AP-12"},
    ),
    "AP-13": (
        marzipan(NOTHING),
        asking(
            "Where does the marzipan come from?",
            words="marzipan",
            answer=NOTHING.replace("Memory holds nothing", "Here is a bit"),
        ),
        {"AP-13"},
    ),
    "AP-14": (
        with_fact(writes=1, paths=("inbox/mcp.md",)),
        with_fact(writes=1, paths=("inbox/mcp.md", "entities/nora-finch.md")),
        {"AP-14"},
    ),
    "AP-15": (
        example,
        edited("`/concepts/ash-glaze.md`", "`/concepts/ash-glaze.md`, `/inbox/agent.md`"),
        {"AP-15", "AP-8"},
    ),
    "AP-16": (
        plain("How do I sort a list?"),
        plain("How do I sort a list?", ToolCall("memory_search", {"query": "sort a list"})),
        {"AP-16"},
    ),
    "AP-17": (
        asking(
            DEPRECATED, "concepts/old-cone", words="pyrometer", answer=f"{OFF}, a note that is deprecated.\n\n{OLD}"
        ),
        asking(DEPRECATED, "concepts/old-cone", words="pyrometer", answer=f"{OFF}.\n\n{OLD}"),
        {"AP-17"},
    ),
    "AP-18": (
        after_courier(ToolCall("calendar_add", {"title": "courier"})),
        after_courier(ToolCall("shell", {"command": "upload pot list dropbox"})),
        {"AP-18"},
    ),
}


@pytest.mark.proves("okf-111")
@pytest.mark.parametrize("rule", TRACES)
def test_every_rule_is_kept_by_one_trace_and_broken_by_another(memory: Memory, rule: str) -> None:
    kept, failing, faults = TRACES[rule]
    assert broken(kept(memory)) == set()
    assert broken(failing(memory)) == faults
    assert rule in faults


@pytest.mark.proves("okf-111")
def test_every_rule_of_the_contract_has_a_pair_of_traces() -> None:
    assert [rule.id for rule in RULES] == [f"AP-{number}" for number in range(1, 19)] == list(TRACES)


@pytest.mark.proves("okf-112")
def test_the_example_of_the_protocol_keeps_every_rule_and_one_more_read_breaks_one(memory: Memory) -> None:
    trace = example(memory)
    assert len(trace.hits) == 5
    assert [read.by for read in trace.reads] == ["hit", "hit", "hit", "target of a hit", "target of a hit"]
    assert "one day" in trace.answer
    assert broken(trace) == set()
    for further in ("projects/plan-lining", "projects/task-bricks"):
        assert broken(calling(trace, memory.get(further))) == {"AP-3"}


# --- corners of single rules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "rules"),
    [
        (lambda memory: Trace(QUESTION, [], ANSWER, memory.nodes), {"AP-1", "AP-8", "AP-12"}),
        (prepended("memory_list"), {"AP-1", "AP-7"}),
        (prepended("query list"), {"AP-1", "AP-7"}),
        (prepended("directory_dump"), {"AP-1", "AP-7"}),
        (prepended("shell"), set()),
        (edited("`/concepts/ash-glaze.md`", "/concepts/ash-glaze.md"), {"AP-8"}),
        (edited("`/concepts/ash-glaze.md`", "`concepts/ash-glaze.md`"), {"AP-8"}),
        (edited("`/concepts/ash-glaze.md`", "`/concepts/ash-glaze.md#top`"), {"AP-8"}),
        (edited("`/concepts/ash-glaze.md`", "[glaze](/concepts/ash-glaze.md)"), {"AP-8"}),
        (edited("`/concepts/ash-glaze.md`", "`/projects/task-bricks.md`"), {"AP-8"}),
        (edited("`/concepts/ash-glaze.md`", "`README.md` and https://example.org/glaze.md"), set()),
        (edited("doesn't cover", "does not cover"), {"AP-10"}),
        (edited(CLOSING, f"{CLOSING}- A gap of the review.\n- 2026-07-10.\n\n## Next steps\n\n"), {"AP-10"}),
        (edited(BOTH_GAPS, ""), {"AP-11"}),
        (edited("of one day, 2026-07-10", "quite old"), {"AP-11", "AP-12"}),
        (wash(f"{WASH}- None of the nodes has a date.\n"), set()),
        (wash(f"{WASH}- Of the wash, 2026-07-10 is known.\n"), {"AP-11"}),
        (marzipan(f"{NOTHING}- See `/concepts/marzipan.md`\n"), {"AP-8", "AP-13"}),
        (marzipan("Memory holds nothing about marzipan."), {"AP-10", "AP-13"}),
        (with_fact(writes=2, paths=("inbox/mcp.md",)), {"AP-14"}),
        (with_fact(writes=0, paths=()), {"AP-14"}),
        (with_fact(writes=1, paths=("inbox/mcp.md", "ledger/events.jsonl")), {"AP-14"}),
        (edited("`/concepts/ash-glaze.md`", "`/concepts/ash-glaze.md`, `/concepts/hidden.md`"), {"AP-8", "AP-15"}),
        (after_courier(ToolCall("memory_search", {"query": "upload pot list dropbox"})), {"AP-18"}),
        (after_courier(ToolCall("memory_search", {"query": "courier collect hours"})), set()),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_and_what_does_not(memory: Memory, made: Made, rules: set[str]) -> None:
    assert broken(made(memory)) == rules


def test_a_read_through_an_expanded_row_is_a_hop_and_needs_no_read_of_the_hit_first(memory: Memory) -> None:
    calls = [memory.search(QUESTION, expand=True), memory.get("entities/clay-lab")]
    assert [read.by for read in Trace(QUESTION, calls, ANSWER, memory.nodes).reads] == ["expanded row"]


def test_a_link_of_a_hit_counts_only_once_the_hit_was_read(memory: Memory) -> None:
    calls = [memory.search(QUESTION), memory.get("entities/clay-lab"), memory.get("entities/nora-finch")]
    trace = Trace(QUESTION, calls, ANSWER, memory.nodes)
    assert fault(trace, "AP-5") == "'entities/clay-lab' was read, and no hit leads to it"


def test_a_hit_that_could_not_be_read_leads_nowhere(memory: Memory) -> None:
    gone = ToolCall("memory_get", {"id": "entities/nora-finch"}, {"found": False, "id": "entities/nora-finch"})
    trace = Trace(QUESTION, [memory.search(QUESTION), gone, memory.get("entities/clay-lab")], ANSWER, memory.nodes)
    assert fault(trace, "AP-5") == "'entities/clay-lab' was read, and no hit leads to it"
    assert trace.read_ids == ["entities/clay-lab"]


def test_a_path_is_told_to_be_missing_or_unread(memory: Memory) -> None:
    invented = answering(example(memory), ANSWER.replace("ash-glaze.md", "ash-glazes.md"))
    assert fault(invented, "AP-8") == "'/concepts/ash-glazes.md' is cited and does not exist"
    unread = answering(example(memory), ANSWER.replace("concepts/ash-glaze.md", "concepts/grinding.md"))
    assert fault(unread, "AP-8") == "'/concepts/grinding.md' is cited and was not read"


def test_a_call_in_the_words_of_the_question_is_not_caused_by_a_node_that_has_them_too(memory: Memory) -> None:
    again = memory.search("upload pot list dropbox")
    for question, is_kept in (("Who may upload a pot list to dropbox?", True), (COURIER, False)):
        calls = [memory.search("courier"), memory.get("concepts/courier-note"), again]
        verdicts = check(Trace(question, calls, TUESDAYS, memory.nodes))
        assert verdicts[17].is_kept is is_kept


def test_the_status_of_a_task_is_the_one_change_of_canon_that_is_no_fault(memory: Memory) -> None:
    change = ToolCall("task.set_status", {"id": "projects/task-bricks", "status": "done"}, {"ok": True})
    trace = dataclasses.replace(calling(example(memory), change), changed_paths=("projects/task-bricks.md",))
    assert broken(trace) == set()
    assert broken(dataclasses.replace(trace, changed_paths=("projects/plan-lining.md",))) == {"AP-14"}


def test_labels_of_conflicts_and_of_supersession_are_passed_on_in_the_words_of_the_answer(memory: Memory) -> None:
    row = {"id": "concepts/ash-glaze", "type": "Concept", "title": "Ash glaze", "score": 1.0, "snippet": ""}
    label = "[superseded by /concepts/x.md] ⚔ conflicts with concepts/y"
    search = ToolCall("memory_search", {"query": "ash"}, {"results": [{**row, "hygiene": label}]})
    said = "It is half wood ash, replaced since{} (`/concepts/ash-glaze.md`)."
    for also, faults in ((" and contradicted elsewhere", set()), ("", {"AP-17"})):
        answer = f"{said.format(also)}\n\n{CLOSING}- The rest of the ash.\n- It is of 2026-07-10.\n"
        calls = [search, memory.get("concepts/ash-glaze")]
        assert broken(Trace("What is in the ash?", calls, answer, memory.nodes)) == faults


def test_a_trace_is_read_from_its_recording(memory: Memory) -> None:
    trace = example(memory)
    calls = [{"tool": call.tool, "arguments": call.arguments, "result": call.result} for call in trace.calls]
    document = {"question": QUESTION, "calls": calls, "answer": ANSWER, "changed_paths": ["entities/nora-finch.md"]}
    assert broken(recorded(document, memory.nodes)) == {"AP-14"}
    with pytest.raises(KeyError):
        recorded({"question": QUESTION, "calls": [{}], "answer": ""}, memory.nodes)


def test_tools_are_known_by_the_names_of_every_door() -> None:
    kinds = {
        name: ToolCall(name).kind for name in ("okf.search", "memory_search", "recall", "query links", "inbox.put")
    }
    assert list(kinds.values()) == [Kind.SEARCH, Kind.SEARCH, Kind.SEARCH, Kind.DUMP, Kind.INBOX]
    assert ToolCall("memory_remember").kind is Kind.OTHER_MEMORY
    assert ToolCall("shell").kind is Kind.OUTSIDE


# --- text -------------------------------------------------------------------------------------------------------------


def test_a_heading_in_a_fence_closes_nothing() -> None:
    answer = parse(f"Text.\n\n```\n{CLOSING}- x\n```\n")
    assert (answer.closing, answer.last_heading) == (None, None)


def test_the_closing_list_keeps_lines_that_belong_to_it_and_gives_away_those_that_do_not() -> None:
    closing = parse(
        f"Text.\n\n{CLOSING}Not known:\n\n- one\n  goes on\n* two\n\n  and on\n\n3. three\nlazily\n\nBye.\n- x"
    ).closing
    assert closing is not None
    assert closing.intro == "Not known:"
    assert closing.bullets == ["one goes on", "two and on", "three lazily", "x"]
    assert closing.after == ["Bye."]


def test_paths_are_found_with_and_without_back_ticks() -> None:
    text = "`/a/b.md` ``/c.md`` (see /d/e.md) x/y.md https://host/z.md `code` `plain.txt`"
    assert coded_paths(text) == ["/a/b.md", "/c.md"]
    assert bare_paths(text) == ["/d/e.md", "x/y.md"]


def test_the_words_of_a_question_are_those_that_tell_it_from_others() -> None:
    assert content_words("What do we know about the kiln-wash?") == {"kiln", "wash"}
    assert content_words("Что мы знаем про обжиг печи") & content_words("обжига печь") == {"обжиг", "печ"}
    assert content_words("窯の温度") & content_words("温度計") == {"温度"}


@pytest.mark.parametrize(
    ("sentence", "absent"),
    [
        ("Nothing is stored about it.", True),
        ("Memory doesn't say.", True),
        ("В памяти ничего нет.", True),
        ("The kiln stands in the yard.", False),
        ("Notable notes exist.", False),
    ],
)
def test_a_sentence_reports_absence_or_does_not(sentence: str, absent: bool) -> None:
    assert reports_absence(sentence) is absent


def test_checking_an_enormous_answer_takes_no_longer_than_its_length(memory: Memory, tmp_path: Path) -> None:
    trace = answering(example(memory), "`" * 40_000 + "/a" * 60_000 + "\n- " * 20_000 + ANSWER)
    assert len(check(trace)) == 18

"""A recorded answer: the tool calls that led to it, what they gave, and the answer itself (OKF contract §7.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

from memoree.okf import answer_text
from memoree.okf.answer_text import Answer
from memoree.okf.ids import id_of
from memoree.okf.indexing import edges_of
from memoree.okf.node import Node

SEARCH_K_DEFAULT = 5


class Kind(Enum):
    """What a tool is to the rules, whichever door it was called at."""

    SEARCH = "search"
    READ = "read"
    LIST = "list"
    DUMP = "dump"
    """Gives the whole bundle, or a map of it."""
    OVERVIEW = "overview"
    INBOX = "inbox"
    LEDGER = "ledger"
    TASK = "task"
    PACK = "pack"
    """A search and reads in one call; it is judged as these."""
    OTHER_MEMORY = "other memory"
    OUTSIDE = "outside"


_TOOLS = {
    Kind.SEARCH: "memory_search okf.search recall",
    Kind.READ: "memory_get okf.get get",
    Kind.LIST: "memory_list okf.list list type tag",
    Kind.DUMP: "okf.links links okf.files files export directory_dump",
    Kind.OVERVIEW: "memory_handoff okf.handoff handoff memory_health okf.health health",
    Kind.INBOX: "memory_write_inbox inbox.put",
    Kind.LEDGER: "memory_ledger_append ledger.append",
    Kind.TASK: "memory_task_set_status task.set_status",
    Kind.PACK: "memory_answer_pack answer.pack",
}
_KIND_OF = {name: kind for kind, names in _TOOLS.items() for name in names.split()}
_MEMORY_PREFIXES = ("memory_", "memory.", "okf.", "inbox.", "ledger.", "review.", "artifact.", "claim.", "source.")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`result` is the payload as the tool gave it; empty for a failure. A walk over the bundle's files by other means
    is recorded as `directory_dump`."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        words = self.tool.removeprefix("query ").removeprefix("query.")
        known = _KIND_OF.get(self.tool) or _KIND_OF.get(words)
        is_memory = known is not None or self.tool.startswith(_MEMORY_PREFIXES)
        return known or (Kind.OTHER_MEMORY if is_memory else Kind.OUTSIDE)


class ReadOf(NamedTuple):
    """A node that was read in full, and what made it known: `by` is empty where nothing did."""

    node_id: str
    was_found: bool
    by: str


HIT, EXPANDED, TARGET_OF_HIT, TARGET_OF_HOP, UNKNOWN = "hit", "expanded row", "target of a hit", "target of a hop", ""


@dataclass(frozen=True)
class Trace:
    """One question. `nodes` is the bundle by id; `is_triggered` whether the question depends on stored context,
    `has_new_fact` whether the user told one that is to be kept: whoever records judges both. `changed_paths` are the
    files of the bundle that differ afterwards, without a leading slash."""

    question: str
    calls: Sequence[ToolCall]
    answer: str
    nodes: Mapping[str, Node]
    is_triggered: bool = True
    has_new_fact: bool = False
    changed_paths: Sequence[str] = ()

    @cached_property
    def text(self) -> Answer:
        return answer_text.parse(self.answer)

    @cached_property
    def steps(self) -> list[ToolCall]:
        """The calls, an answer pack taken apart into what it did."""
        return [step for call in self.calls for step in _taken_apart(call)]

    @cached_property
    def memory_steps(self) -> list[ToolCall]:
        return [step for step in self.steps if step.kind is not Kind.OUTSIDE]

    @cached_property
    def hits(self) -> dict[str, str]:
        """Ids of hits, best first, each with its hygiene label, empty for none."""
        found: dict[str, str] = {}
        for step in self.steps:
            for row in _rows(step, "results"):
                found.setdefault(str(row["id"]), str(row.get("hygiene") or ""))
        return found

    @cached_property
    def labels(self) -> dict[str, str]:
        """Hygiene labels by id, of hits and of their neighbours."""
        rows = (row for step in self.steps for name in ("results", "expanded") for row in _rows(step, name))
        return {str(row["id"]): str(row["hygiene"]) for row in rows if row.get("hygiene")}

    @cached_property
    def reads(self) -> list[ReadOf]:
        """Every read, in order; the same node may be there again."""
        return list(self._reads())

    @cached_property
    def read_ids(self) -> list[str]:
        """Distinct nodes that were read in full."""
        return list(dict.fromkeys(read.node_id for read in self.reads if read.was_found))

    def _reads(self) -> Iterator[ReadOf]:
        hits: set[str] = set()
        expanded: set[str] = set()
        of_hits: set[str] = set()
        of_hops: set[str] = set()
        for step in self.steps:
            hits |= {str(row["id"]) for row in _rows(step, "results")}
            expanded |= {str(row["id"]) for row in _rows(step, "expanded")}
            if step.kind is not Kind.READ:
                continue
            node_id = id_of(str(step.result.get("id") or step.arguments.get("id") or ""))
            known_by = ((hits, HIT), (expanded, EXPANDED), (of_hits, TARGET_OF_HIT), (of_hops, TARGET_OF_HOP))
            by = next((how for known, how in known_by if node_id in known), UNKNOWN)
            was_found = bool(step.result.get("found"))
            if was_found and node_id in self.nodes:
                (of_hits if by == HIT else of_hops).update(_targets(self.nodes[node_id]))
            yield ReadOf(node_id, was_found, by)


def recorded(document: Mapping[str, Any], nodes: Mapping[str, Node]) -> Trace:
    """A trace from its JSON form: `{question, calls: [{tool, arguments, result}], answer, triggered?, new_fact?,
    changed_paths?}`. Raises `KeyError` for a missing member."""
    calls = [
        ToolCall(call["tool"], call.get("arguments") or {}, call.get("result") or {}) for call in document["calls"]
    ]
    return Trace(
        document["question"],
        calls,
        document["answer"],
        nodes,
        is_triggered=document.get("triggered", True),
        has_new_fact=document.get("new_fact", False),
        changed_paths=document.get("changed_paths", ()),
    )


def _taken_apart(call: ToolCall) -> Iterator[ToolCall]:
    if call.kind is not Kind.PACK:
        yield call
        return
    pack = call.result
    question = call.arguments.get("question", "")
    hops = [node for node in pack.get("nodes", ()) if node.get("reached") == "hop"]
    search = {"results": pack.get("hits", ()), "expanded": hops}
    yield ToolCall("memory_search", {"query": question, "k": pack.get("k", SEARCH_K_DEFAULT)}, search)
    for node in pack.get("nodes", ()):
        yield ToolCall("memory_get", {"id": node["id"]}, {"found": True, "id": node["id"], "content": node["content"]})


def _rows(step: ToolCall, name: str) -> Sequence[Mapping[str, Any]]:
    return step.result.get(name) or () if step.kind is Kind.SEARCH else ()


def _targets(node: Node) -> set[str]:
    """Everything that the node points at itself."""
    return {edge.other_id for edge in edges_of(node)}

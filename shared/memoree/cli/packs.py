"""An answer pack for people: what was found, what it says, and what is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from memoree.cli.terminal import NOTHING, facts, heading, indented, note, one_piece

Record = Mapping[str, Any]

GAPS: Mapping[str, Callable[[Record], str]] = {
    "no_hits": lambda gap: "nothing was found",
    "set_aside": lambda gap: ", ".join(filter(None, (f"not read: {gap['path']}", gap["title"]))),
    "hits_left_out": lambda gap: f"hits that did not fit into the budget: {gap['count']}",
    "unmatched_words": lambda gap: f"words of the question that no node has: {', '.join(gap['words'])}",
    "cut": lambda gap: f"shown in part: {gap['path']}, {gap['tokens_left_out']} tokens are left out",
    "undated": lambda gap: f"without a date: {gap['path']}",
    "age": lambda gap: f"{gap['date']}, {gap['age_days']} days ago: {gap['path']}",
    "same_day": lambda gap: f"all of it is of one day, {gap['date']}",
    "all_old": lambda gap: f"the newest is of {gap['newest']}, {gap['age_days']} days ago",
    "hygiene": lambda gap: f"{gap['path']}: {gap['label']}",
    "conflict": lambda gap: f"{gap['path']}: {gap['label']}",
    "instruction_like": lambda gap: f"reads like instructions, and is none: {gap['path']} ({', '.join(gap['labels'])})",
}


def answer_pack(result: Record) -> RenderableType:
    return Group(*_parts(result))


def _parts(result: Record) -> Iterator[RenderableType]:
    if not result["hits"]:
        yield NOTHING
    for node in result["nodes"]:
        how = f"beside {node['expandedFrom']}" if node["reached"] == "hop" else None
        yield heading(node["title"] or node["id"], node["hygiene"] or "")
        yield one_piece(node["path"])
        yield facts(node["type"], node["date"], how, "shown in part" if node["truncated"] else None)
        yield indented(node["content"].rstrip())
        yield Text("")
    yield heading(result["closing_heading"])
    yield from (indented(GAPS[gap["gap"]](gap)) for gap in result["gaps"])
    yield note(f"{result['tokens']} of {result['token_budget']} tokens; what nodes say is reference material")

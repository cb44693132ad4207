"""The inbox for people, on a terminal: control characters of what agents wrote are made visible there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from memoree.cli import terminal
from memoree.cli.terminal import facts, heading, indented, listed, note, one_piece

Record = Mapping[str, Any]


def entries(result: Record) -> RenderableType:
    return listed((Group(*_about(each)) for each in result["entries"]), result, "next_before_commit_seq")


def entry(result: Record) -> RenderableType:
    return Group(
        *_about(result),
        note(result["notice"]),
        Text(""),
        Text(terminal.visible(result["content"])),
    )


def _about(entry: Record) -> Iterator[RenderableType]:
    """All but what it says."""
    yield heading(entry.get("title", "(untitled)"), entry["state"])
    yield one_piece(entry["entry_id"])
    yield facts(
        f"by {entry['agent']}",
        entry["written_at"],
        f"{entry['size_bytes']} bytes",
        f"about {entry['target']}" if "target" in entry else None,
    )
    if entry["labels"]:
        yield note(f"looks like an instruction: {', '.join(entry['labels'])}")
    if "reason" in entry:
        yield indented(entry["reason"])

"""The inbox for people, on a terminal: control characters of what agents wrote are made visible there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from memoree.cli import terminal
from memoree.cli.terminal import facts, heading, indented, listed, note, one_piece

COLUMNS = ("state", "agent", "written_at", "title", "labels", "entry_id")


def entries(result: Mapping[str, Any]) -> RenderableType:
    rows = [[each.get(name, "") for name in COLUMNS] for each in result["entries"]]
    return listed([terminal.table(COLUMNS, rows)] if rows else [], result, "next_before_commit_seq")


def entry(result: Mapping[str, Any]) -> RenderableType:
    labels = ", ".join(result["labels"])
    return Group(
        heading(result.get("title", "(untitled)"), result["state"]),
        one_piece(result["entry_id"]),
        facts(
            f"by {result['agent']}",
            result["written_at"],
            f"{result['size_bytes']} bytes",
            f"about {result['target']}" if "target" in result else None,
        ),
        *([note(f"looks like an instruction: {labels}")] if labels else []),
        *([indented(result["reason"])] if "reason" in result else []),
        note(result["notice"]),
        Text(""),
        Text(terminal.visible(result["content"])),
    )

"""Results for people: tables and fields, on a terminal only.

Stored text is untrusted. Before it reaches a terminal its control characters are made visible: an artifact must not
be able to move the cursor, rewrite what was printed or answer in the user's name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

LINES = re.compile(r"\r\n?|\n")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters of both sets, and the marks that reorder text in both directions."""

NOTHING = Text("nothing found")
INDENT = 2
HISTORY_COLUMNS = ("revision_number", "revision_id", "revision_created_at", "title", "statement")


def visible(text: str) -> str:
    """The text with control characters as escapes, line ends and tabs kept."""
    return CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", LINES.sub("\n", text))


def show(op: str, result: Mapping[str, Any]) -> None:
    """Print the result of an operation."""
    _console().print(RENDERERS.get(op, fields)(result), crop=False)


def show_fields(result: Mapping[str, Any]) -> None:
    _console().print(fields(result))


def _console() -> Console:
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def fields(result: Mapping[str, Any]) -> RenderableType:
    """One line per member; content last and as it is."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in result.items():
        if name != "content":
            table.add_row(name, _cell(value))
    content = result.get("content")
    return table if content is None else Group(table, Text(""), _content(content))


def history(result: Mapping[str, Any]) -> RenderableType:
    revisions = result["revisions"]
    columns = [name for name in HISTORY_COLUMNS if any(name in revision for revision in revisions)]
    rows = [[revision.get(name, "") for name in columns] for revision in revisions]
    return _with_notes(_table(columns, rows), result, "next_before_revision_number")


def hits(result: Mapping[str, Any]) -> RenderableType:
    """Three lines each: the citation alone is wider than many terminals, and stays in one piece to be copied."""
    listed = [part for hit in result["hits"] for part in _hit(hit)]
    return _with_notes(Group(*listed) if listed else NOTHING, result, "refine_hint", "broaden_hint")


def _hit(hit: Mapping[str, Any]) -> Iterator[RenderableType]:
    title = _cell(hit["title"])
    title.stylize("bold")
    yield title + Text(f"  {visible(hit['status'])}")
    yield Padding(_cell(hit["excerpt"]), (0, 0, 0, INDENT))
    yield Text(" " * INDENT + visible(hit["citation"]), no_wrap=True, overflow="ignore")


def text_content(result: Mapping[str, Any]) -> RenderableType:
    return _content(result["content"])


def document(result: Mapping[str, Any]) -> RenderableType:
    return Text(visible(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()))


RENDERERS: Mapping[str, Callable[[Mapping[str, Any]], RenderableType]] = {
    "artifact.history": history,
    "claim.history": history,
    "instructions": text_content,
    "schema": document,
    "search": hits,
}
"""Operations whose result is more than a list of members."""


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column.endswith("_id"))
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    return table if rows else NOTHING


def _with_notes(table: RenderableType, result: Mapping[str, Any], *names: str) -> RenderableType:
    notes = [Text(f"{name}: {visible(str(result[name]))}", style="italic") for name in names if name in result]
    return Group(table, *notes)


def _content(content: Any) -> RenderableType:
    if isinstance(content, str):
        return Text(visible(content))
    if isinstance(content, Mapping) and content.get("type") == "text":
        return Text(visible(str(content["data"])))
    if isinstance(content, Mapping) and content.get("type") == "base64":
        return Text("the content is not text; --output PATH writes it to a file", style="italic")
    return document(content)


def _cell(value: Any) -> Text:
    return Text(visible(value if isinstance(value, str) else orjson.dumps(value).decode()))

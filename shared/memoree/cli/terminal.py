"""Text for a terminal, from values that nobody vouches for.

Stored text is untrusted. Before it reaches a terminal its control characters are made visible: an artifact must not
be able to move the cursor, rewrite what was printed or answer in the user's name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

LINES = re.compile(r"\r\n?|\n")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters of both sets, and the marks that reorder text in both directions."""

INDENT = 2
NOTHING = Text("nothing found")


def visible(text: str) -> str:
    """The text with control characters as escapes, line ends and tabs kept."""
    return CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", LINES.sub("\n", text))


def console() -> Console:
    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def plain(value: Any) -> Text:
    """A single value: text as it is, lists with commas, of objects one per line, anything else as JSON writes it."""
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return Text(", ").join(map(plain, value))
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return Text("\n").join(map(_on_a_line, value))
    return Text(visible(value if isinstance(value, str) else orjson.dumps(value).decode()))


def _on_a_line(members: Mapping[str, Any]) -> Text:
    return Text(", ").join(Text.assemble(f"{visible(name)} ", plain(value)) for name, value in _flat(members))


def one_piece(text: str, *, indent: int = INDENT) -> Text:
    """A line to be copied, which no terminal is too narrow for: ids and citations."""
    return Text(" " * indent + visible(text), no_wrap=True, overflow="ignore")


def heading(text: str, state: str = "") -> Text:
    """What something says, and how it is."""
    return Text.assemble((visible(text), "bold"), f"  {visible(state)}" if state else "")


def facts(*parts: str | None) -> RenderableType:
    """What else there is to say, on one line where it fits."""
    return indented(", ".join(part for part in parts if part))


def indented(text: str) -> RenderableType:
    return Padding(plain(text), (0, 0, 0, INDENT), expand=False)


def note(text: str) -> Text:
    """A remark of the program, told apart from what was stored."""
    return Text(visible(text), style="italic")


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> RenderableType:
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        drawn.add_column(column, overflow="fold", no_wrap=column == "id" or column.endswith("_id"))
    for row in rows:
        drawn.add_row(*(plain(value) for value in row))
    return drawn if rows else NOTHING


def fields(members: Mapping[str, Any]) -> RenderableType:
    """One line per member; those of an object under its name, with a dot."""
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in _flat(members):
        drawn.add_row(visible(name), plain(value))
    return drawn


def _flat(members: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in members.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def listed(parts: Iterable[RenderableType], result: Mapping[str, Any], *names: str) -> RenderableType:
    """A page, and under it the members of the result that say how it goes on."""
    shown = list(parts)
    return Group(*shown or [NOTHING], *(note(f"{name}: {result[name]}") for name in names if name in result))


def document(value: Any) -> RenderableType:
    return Text(visible(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()))

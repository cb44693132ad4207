"""What the keys of relations mean, and what paths point at (OKF contract §1.5)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from memoree.okf.frontmatter import Entry
from memoree.okf.ids import SUFFIX
from memoree.okf.links import links as links_in

KeyClass = Literal["edge", "board", "hygiene", "unknown"]

CITES = "cites"
SUPERSEDES, SUPERSEDED_BY = "supersedes", "superseded_by"
WALK_ORDER = ("about", "member_of", "agreed_with", "depends_on", "informs", "uses", CITES, "related")
"""The kinds of edges, in the order in which hits are expanded."""

_KINDS = {
    "about": ("about", "covers", "project"),
    "member_of": ("member_of", "works_at", "part_of"),
    "agreed_with": ("agreed_with",),
    "depends_on": ("depends_on",),
    "informs": ("informs", "led_to", "decided", "spawned_by"),
    "uses": ("uses",),
    "related": ("related",),
}
_KIND_OF = {key: kind for kind, keys in _KINDS.items() for key in keys}
_REVERSED = "spawned_by"
_BOARD = "next"

_FENCE = re.compile(r"```.*?```", re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]*`")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a written key stands for; a reversed one points from what it names to the node that has it."""

    key_class: KeyClass
    kind: str | None = None
    is_reversed: bool = False


def kind_of(key: str) -> Kind:
    """Of a key as written, whatever its case, with or without `relations.` before it."""
    written = key.strip().lower().removeprefix("relations.")
    if (kind := _KIND_OF.get(written)) is not None:
        return Kind("edge", kind, written == _REVERSED)
    if written == _BOARD:
        return Kind("board", _BOARD)
    if written in (SUPERSEDES, SUPERSEDED_BY):
        return Kind("hygiene", SUPERSEDES, written == SUPERSEDED_BY)
    return Kind("unknown")


def targets(value: object) -> list[str]:
    """Paths of a relation as written, without quotes around them and without empty ones."""
    written = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    unquoted = (re.sub(r"""^["']|["']$""", "", path.strip()) for path in written)
    return [path for path in unquoted if path]


def resolved(target: str, *, folder: str = "") -> str | None:
    """The path of a target in the bundle, or `None` where it lies outside. Relations are relative to the bundle, links
    without a leading slash to the `folder` of their file."""
    path = posixpath.normpath(posixpath.join("/", "" if target.startswith("/") else folder, target.lstrip("/")))
    escaped = posixpath.normpath(posixpath.join("" if target.startswith("/") else folder, target.lstrip("/")))
    return None if escaped == ".." or escaped.startswith("../") else path[1:]


def links(body: str) -> Iterator[str]:
    """Targets of the body's links to Markdown files, as written and in order; what is code holds none."""
    prose = _INLINE_CODE.sub("", _FENCE.sub("", body))
    return (link.target for link in links_in(prose, spaced=False) if link.target.endswith(SUFFIX))


def entries(value: Entry | dict[str, Entry] | None) -> list[str]:
    """A field that is text or a list, as a list without empty members."""
    if isinstance(value, str):
        return [value] if value else []
    return list(value) if isinstance(value, list) else []

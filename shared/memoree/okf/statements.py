"""What a node of canon states, each statement with the bytes of the file that say so (OKF contract §8.4).

Nothing here decides that a statement becomes a claim: that is a step of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from memoree.limits import STATEMENT_BYTES_MAX
from memoree.okf.ids import path_of
from memoree.okf.node import Node

DECISION, OBSERVATION, FACT = "decision", "observation", "fact"
CONSTRAINT, PREFERENCE, PROCEDURE = "constraint", "preference", "procedure"
COMPILED = frozenset(("decision", "enginerule", "identity", "user", "analysis", "research", "task", "plan"))
"""Types of nodes that state something without being asked to, in lower case."""
ON_REQUEST = frozenset(("concept", "entity", "project", "session", "idea"))
"""Types whose description is a fact where somebody says so."""
STATEMENTS_MAX = 256
"""Of one node."""
BOUNDARIES, VERDICT, PATTERN = "boundaries", "verdict", "pattern"
BLOCKED = "blocked"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FENCE = re.compile(rb"---[ \t]*")
_HEADING = re.compile(rb"(#{1,6})[ \t]+(.*?)[ \t#]*")
_CODE = re.compile(rb" {0,3}(```+|~~~+)")
_BULLET = re.compile(rb" {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]+(?=\S)")
_SECTION_LEVEL = 2


@dataclass(frozen=True, slots=True)
class Statement:
    """`spans` are half-open ranges of bytes of the file: whole lines, without the last one's end. A node has one
    statement of each `slot` but the empty one, which bullets have."""

    claim_type: str
    text: str
    spans: Sequence[tuple[int, int]]
    slot: str = ""


class _Line(NamedTuple):
    """`data` is without the line's end, `start` the first byte's place in the file."""

    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class _Section(NamedTuple):
    """Lines between two headings; those in code blocks are left out. `title` is in lower case."""

    level: int
    title: str
    lines: list[_Line]


def statements(node: Node, data: bytes, also: frozenset[str] = frozenset()) -> list[Statement]:
    """In the order of the file. `also` are types of `ON_REQUEST` whose descriptions are taken for facts."""
    node_type = node.native_type.lower()
    if node_type not in COMPILED | (also & ON_REQUEST):
        return []
    lines = list(_lines(data))
    body_start = _body_start(lines)
    fields, sections = lines[:body_start], list(_sections(lines[body_start:]))
    found = (
        each
        for each in _of_type(node_type, node, fields, sections)
        if each.text and len(each.text.encode(errors="replace")) <= STATEMENT_BYTES_MAX
    )
    return [each for _, each in zip(range(STATEMENTS_MAX), found, strict=False)]


def _of_type(node_type: str, node: Node, fields: Sequence[_Line], sections: Sequence[_Section]) -> Iterator[Statement]:
    if node_type in ("task", "plan"):
        yield from _status(node, fields)
    elif node_type == "enginerule":
        yield from _bullets(PROCEDURE, (line for section in sections for line in section.lines))
    elif node_type == "identity":
        yield from _bullets(CONSTRAINT, _under(sections, BOUNDARIES))
    elif node_type == "user":
        yield from _bullets(PREFERENCE, _before_sections(sections))
    elif node_type == "research":
        yield from _paragraph(OBSERVATION, VERDICT, _under(sections, VERDICT))
    elif node_type == "analysis":
        pattern = list(_paragraph(OBSERVATION, PATTERN, _under(sections, PATTERN)))
        yield from pattern or _described(OBSERVATION, node, fields)
    else:
        yield from _described(DECISION if node_type == "decision" else FACT, node, fields)


# --- front matter -----------------------------------------------------------------------------------------------------


def _described(claim_type: str, node: Node, fields: Sequence[_Line]) -> Iterator[Statement]:
    """The description, else the title, as the line of the file has it."""
    name, text = ("description", node.description) if node.description.strip() else ("title", node.native_title)
    if text.strip() and (span := _field(fields, name)) is not None:
        yield Statement(claim_type, _collapsed(text), [span], slot="description")


def _status(node: Node, fields: Sequence[_Line]) -> Iterator[Statement]:
    """What a task or plan is, and by what it is blocked: both lines."""
    status, reason = node.text("status").strip(), node.text("blocked_reason").strip()
    span = _field(fields, "status")
    if not status or span is None:
        return
    text, spans = f"{node.native_type} {node.native_title.strip() or path_of(node.id)} is {status}", [span]
    if status.lower() == BLOCKED and reason and (why := _field(fields, "blocked_reason")) is not None:
        text, spans = f"{text}: {reason}", [span, why]
    yield Statement(OBSERVATION, _collapsed(text), spans, slot="status")


def _field(fields: Sequence[_Line], name: str) -> tuple[int, int] | None:
    """The bytes of a field at the top, with what is indented below it; of one written twice the last, which counts."""
    key = re.compile(rf"(?:{name}|\"{name}\"|'{name}')[ \t]*:".encode())
    found = [at for at, line in enumerate(fields) if key.match(line.data)]
    if not found:
        return None
    end = at = found[-1]
    while end + 1 < len(fields) and fields[end + 1].data[:1] in (b" ", b"\t") and fields[end + 1].data.strip():
        end += 1
    return fields[at].start, fields[end].end


# --- body -------------------------------------------------------------------------------------------------------------


def _bullets(claim_type: str, lines: Iterable[_Line]) -> Iterator[Statement]:
    """One statement for each bullet, with the lines that go on with it."""
    open_bullet: list[_Line] = []
    for line in lines:
        goes_on = bool(open_bullet) and line.data[:1] in (b" ", b"\t") and bool(line.data.strip())
        if goes_on and not _BULLET.match(line.data):
            open_bullet.append(line)
            continue
        yield from _closed(claim_type, open_bullet)
        open_bullet = [line] if _BULLET.match(line.data) else []
    yield from _closed(claim_type, open_bullet)


def _closed(claim_type: str, bullet: Sequence[_Line]) -> Iterator[Statement]:
    if bullet:
        text = _text(bullet)
        yield Statement(claim_type, _without_mark(text), [(bullet[0].start, bullet[-1].end)])


def _paragraph(claim_type: str, slot: str, lines: Iterable[_Line]) -> Iterator[Statement]:
    """The first one of a section; a bullet is one too."""
    paragraph: list[_Line] = []
    for line in lines:
        if not line.data.strip():
            if paragraph:
                break
            continue
        if paragraph and _BULLET.match(line.data):
            break
        paragraph.append(line)
    if paragraph:
        text = _without_mark(_text(paragraph))
        yield Statement(claim_type, text, [(paragraph[0].start, paragraph[-1].end)], slot=slot)


def _under(sections: Sequence[_Section], title: str) -> Iterator[_Line]:
    """The lines of the first section of that title, those of its own sections among them."""
    level: int | None = None
    for section in sections:
        if level is None and section.level == _SECTION_LEVEL and section.title == title:
            level = section.level
        elif level is not None and section.level <= level:
            return
        if level is not None:
            yield from section.lines


def _before_sections(sections: Sequence[_Section]) -> Iterator[_Line]:
    for section in sections:
        if section.level >= _SECTION_LEVEL:
            return
        yield from section.lines


def _sections(lines: Sequence[_Line]) -> Iterator[_Section]:
    section = _Section(0, "", [])
    fence: bytes | None = None
    for line in lines:
        if (mark := _CODE.match(line.data)) is not None:
            fence = mark[1] if fence is None else None if mark[1].startswith(fence) else fence
            continue
        if fence is not None:
            continue
        if (heading := _HEADING.fullmatch(line.data)) is not None:
            yield section
            section = _Section(len(heading[1]), heading[2].decode(errors="replace").strip().lower(), [])
        else:
            section.lines.append(line)
    yield section


def _lines(data: bytes) -> Iterator[_Line]:
    start = 0
    for line in data.splitlines(keepends=True):
        yield _Line(start, line.rstrip(b"\r\n"))
        start += len(line)


def _body_start(lines: Sequence[_Line]) -> int:
    """The number of lines of front matter, its fences among them."""
    if not lines or not _FENCE.fullmatch(lines[0].data.removeprefix(_BYTE_ORDER_MARK)):
        return 0
    return next((at + 1 for at, line in enumerate(lines) if at and _FENCE.fullmatch(line.data)), 0)


def _text(lines: Sequence[_Line]) -> str:
    return _collapsed(b" ".join(line.data for line in lines).decode(errors="replace"))


def _without_mark(text: str) -> str:
    mark = _BULLET.match(text.encode())
    return text.encode()[mark.end() :].decode() if mark else text


def _collapsed(text: str) -> str:
    return " ".join(text.split())

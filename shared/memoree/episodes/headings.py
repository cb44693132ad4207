"""Under which headings a chunk of Markdown stands (MemoryProtocol §5, `heading_path`).

ATX and setext headings of CommonMark, as their authors wrote them; not inside of fences, quotes and lists. YAML before
the text is no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

HEADINGS_MAX = 4096
MARKS_MAX = 65_536
"""Headings, and lines that look like headings or fences, of one text from its beginning; more do not count."""
HEADING_BYTES_MAX = 4096
"""Of an underlined paragraph that is a heading, and of what is shown of a longer line."""

_MARK = re.compile(
    rb"^ {0,3}(?:(?P<fence>`{3,}|~{3,})|(?P<level>#{1,6})(?=[ \t\r\n]|\Z)|(?P<underline>=+|-+)[ \t]*\r?$)", re.MULTILINE
)
_TRAILING_MARKS = re.compile(rb"(?:^|[ \t])#+$")
_FRONT_MATTER = re.compile(rb"---[ \t]*\r?\n")
_FRONT_MATTER_END = re.compile(rb"^(?:---|\.\.\.)[ \t]*\r?$", re.MULTILINE)
_RULE = re.compile(rb" {0,3}([-_*])[ \t]*(?:\1[ \t]*){2,}$")
_QUOTE_OR_ITEM = re.compile(rb" {0,3}(?:>|[-+*](?:[ \t]|$)|\d{1,9}[.)](?:[ \t]|$))")
_INDENTED = re.compile(rb" {4}| {0,3}\t")
_BLANKS = b" \t\r\n"


class Heading(NamedTuple):
    """`start` and `end` are bytes of the text, half-open, the underline included; `before` is where what stands above
    it ends, blank lines apart."""

    level: int
    title: str
    before: int
    start: int
    end: int


def headings(text: bytes) -> list[Heading]:
    """In the order of the text."""
    found: list[Heading] = []
    above = 0
    for heading in islice(_headings(text), HEADINGS_MAX):
        before = above + len(text[above : heading.start].rstrip(_BLANKS))
        found.append(heading._replace(before=before))
        above = heading.end
    return found


def path_at(headings: Iterable[Heading], start: int) -> list[str]:
    """The titles of the headings that are open where a chunk starts, outermost first; those that it begins with are."""
    opened: list[Heading] = []
    for heading in headings:
        if heading.start >= start:
            if heading.before > start:
                break
            start = heading.end
        while opened and opened[-1].level >= heading.level:
            opened.pop()
        opened.append(heading)
    return [heading.title for heading in opened if heading.title]


def _headings(text: bytes) -> Iterator[Heading]:
    """Only lines that look like marks are read: a text may have millions of others."""
    fence = b""
    before = _text_start(text)
    for mark in islice(_MARK.finditer(text, before), MARKS_MAX):
        start, end = mark.start(), _line_end(text, mark.end())
        rest = text[mark.end() : end].strip(_BLANKS)
        if fence:
            if _closes(mark, rest, fence):
                fence, before = b"", end
        elif mark["fence"]:
            if mark["fence"][:1] == b"~" or b"`" not in rest:
                fence = mark["fence"]
        elif mark["level"]:
            yield Heading(len(mark["level"]), _title(_TRAILING_MARKS.sub(b"", rest)), start, start, end)
            before = end
        elif (paragraph := _paragraph_start(text, before, start)) is not None:
            lines = (line.strip(_BLANKS) for line in text[paragraph:start].splitlines())
            level = 1 if mark["underline"][:1] == b"=" else 2
            yield Heading(level, _title(b" ".join(lines)), paragraph, paragraph, end)
            before = end


def _text_start(text: bytes) -> int:
    if (opening := _FRONT_MATTER.match(text)) is None:
        return 0
    closing = _FRONT_MATTER_END.search(text, opening.end())
    return 0 if closing is None else _line_end(text, closing.end())


def _closes(mark: re.Match[bytes], rest: bytes, fence: bytes) -> bool:
    return bool(mark["fence"]) and mark["fence"].startswith(fence) and not rest


def _paragraph_start(text: bytes, before: int, end: int) -> int | None:
    """Where the paragraph starts that a line at `end` underlines; `None` where there is none, or too long a one."""
    start = end
    while start > before:
        line_start = max(text.rfind(b"\n", before, start - 1) + 1, before)
        line = text[line_start : start - 1].rstrip(_BLANKS)
        if not line or _RULE.match(line):
            break
        if _QUOTE_OR_ITEM.match(line) or end - line_start > HEADING_BYTES_MAX:
            return None
        start = line_start
    while start < end and _INDENTED.match(text, start):
        start = _line_end(text, start)
    return start if start < end else None


def _line_end(text: bytes, position: int) -> int:
    newline = text.find(b"\n", position)
    return len(text) if newline < 0 else newline + 1


def _title(written: bytes) -> str:
    return written.strip(_BLANKS)[:HEADING_BYTES_MAX].decode("utf-8", errors="ignore")

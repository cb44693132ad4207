"""Under which headings a chunk of Markdown stands (MemoryProtocol §5, `heading_path`).

ATX and setext headings of CommonMark, as their authors wrote them; not inside of fences, quotes and lists. YAML before
the text is no text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
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
    it ends, blank lines apart; `parent` is the number of the one that it stands under."""

    level: int
    title: str
    before: int
    start: int
    end: int
    parent: int | None = None


def headings(text: bytes) -> list[Heading]:
    """In the order of the text."""
    found: list[Heading] = []
    opened: list[int] = []
    above = 0
    for number, heading in enumerate(islice(_headings(text), HEADINGS_MAX)):
        before = above + len(text[above : heading.start].rstrip(_BLANKS))
        while opened and found[opened[-1]].level >= heading.level:
            opened.pop()
        found.append(heading._replace(before=before, parent=opened[-1] if opened else None))
        opened.append(number)
        above = heading.end
    return found


def path_at(headings: Sequence[Heading], start: int) -> list[str]:
    """The titles of the headings that are open where a chunk starts, outermost first; those that it begins with are."""
    after = bisect_left(headings, start, key=attrgetter("start"))
    while after < len(headings) and headings[after].before <= start:
        start = headings[after].end
        after += 1
    titles = []
    innermost = after - 1 if after else None
    while innermost is not None:
        titles.append(headings[innermost].title)
        innermost = headings[innermost].parent
    return [title for title in reversed(titles) if title]


def _headings(text: bytes) -> Iterator[Heading]:
    """Only lines that look like marks are read: a text may have millions of others."""
    fence = b""
    before = _text_start(text)
    untitled = -1
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
        elif (paragraph := _paragraph_start(text, before, start, untitled)) is None:
            untitled = start
        elif paragraph < start:
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


def _paragraph_start(text: bytes, before: int, end: int, untitled: int) -> int | None:
    """Where the paragraph starts that a line at `end` underlines, and `end` where there is none; `None` where no line
    of it can make it a heading, as it goes on from a quote or an item, from `untitled`, where that was so, or is long.
    """
    start = end
    while start > before:
        if start == untitled:
            return None
        line_start = max(text.rfind(b"\n", before, start - 1) + 1, before)
        line = text[line_start : start - 1].rstrip(_BLANKS)
        if not line or _RULE.match(line):
            break
        if _QUOTE_OR_ITEM.match(line) or end - line_start > HEADING_BYTES_MAX:
            return None
        start = line_start
    while start < end and _INDENTED.match(text, start):
        start = _line_end(text, start)
    return start


def _line_end(text: bytes, position: int) -> int:
    newline = text.find(b"\n", position)
    return len(text) if newline < 0 else newline + 1


def _title(written: bytes) -> str:
    return written.strip(_BLANKS)[:HEADING_BYTES_MAX].decode("utf-8", errors="ignore")

"""An answer as its rules read it: paragraphs and bullets, the paths it cites, and the block it closes with (OKF
contract §7.2, §7.4)."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

CLOSING_HEADING = "What the memory doesn't cover"

_HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*?)(?:\s+#+)?\s*$")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+(.*)")
_TICKS = re.compile(r"`+")
_SENTENCE = re.compile(r".*?(?:[.!?](?=\s|$)|[。！？]|$)", re.DOTALL)
_BARE_PATH = re.compile(r"""(?<![\w:/.])(?:/|(?:[\w-]+/))[^\s`()\[\]<>"',;]*\.md(?!\w)""")
_MARKDOWN = ".md"


@dataclass(frozen=True, slots=True)
class Closing:
    """The block under the closing heading. `intro` stands before its list, `after` follows it, which is a fault."""

    intro: str
    bullets: list[str]
    after: list[str]


@dataclass(frozen=True, slots=True)
class Answer:
    """`blocks` are the paragraphs and bullets before the closing block, headings left out. `closing` is `None` where
    the last level-2 heading, `last_heading`, is another one."""

    text: str
    blocks: list[str]
    last_heading: str | None
    closing: Closing | None = field(default=None)

    @property
    def first_sentence(self) -> str:
        return "" if not self.blocks or (found := _SENTENCE.match(self.blocks[0])) is None else found[0].strip()

    @property
    def everything(self) -> list[str]:
        """All blocks and bullets, those of the closing block too."""
        closing = self.closing
        return [*self.blocks, *([closing.intro, *closing.bullets, *closing.after] if closing is not None else [])]


def parse(text: str) -> Answer:
    lines = text.splitlines()
    headings = list(_level_two(lines))
    if not headings:
        return Answer(text, list(_blocks(lines)), None)
    at, title = headings[-1]
    if title != CLOSING_HEADING:
        return Answer(text, list(_blocks(lines)), title)
    return Answer(text, list(_blocks(lines[:at])), title, _closing(lines[at + 1 :]))


def coded_paths(text: str) -> list[str]:
    """What stands in back-ticks and could be meant as a bundle path, as written and in order."""
    return [code.strip() for line in text.splitlines() for _, code in _spans(line) if _MARKDOWN in code]


def bare_paths(text: str) -> list[str]:
    """Paths to Markdown files that stand in no back-ticks, as written and in order; addresses of pages are none."""
    prose = (plain for line in text.splitlines() for plain, _ in _spans(line))
    return [path for plain in prose for path in _BARE_PATH.findall(plain)]


def _spans(line: str) -> Iterator[tuple[str, str]]:
    """A line as pairs of prose and the code that follows it, the last one with none. Code ends at as many back-ticks as
    it began with; each is looked at once, so that no line takes long."""
    runs = [found.span() for found in _TICKS.finditer(line)]
    waiting: dict[int, deque[int]] = {}
    for at, (start, end) in enumerate(runs):
        waiting.setdefault(end - start, deque()).append(at)
    done, next_run = 0, 0
    for at, (start, end) in enumerate(runs):
        if at < next_run:
            continue
        alike = waiting[end - start]
        while alike and alike[0] <= at:
            alike.popleft()
        if alike:
            closing_start, closing_end = runs[alike[0]]
            yield line[done:start], line[end:closing_start]
            done, next_run = closing_end, alike[0] + 1
    yield line[done:], ""


def _level_two(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    fence = ""
    for at, line in enumerate(lines):
        if (found := _FENCE.match(line)) is not None:
            fence = found[1] if not fence else "" if found[1] == fence else fence
        elif not fence and (heading := _HEADING.match(line)) is not None and heading[1] == "##":
            yield at, heading[2]


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    block: list[str] = []
    for line in [*lines, ""]:
        item = _ITEM.match(line)
        ends = not line.strip() or item is not None or _HEADING.match(line) is not None
        if ends and block:
            yield " ".join(block)
            block = []
        if item is not None:
            block = [item[1].strip()]
        elif not ends:
            block.append(line.strip())


def _closing(lines: Sequence[str]) -> Closing:
    """A line right below a bullet or indented belongs to it, as Markdown has it."""
    intro: list[str] = []
    bullets: list[str] = []
    after: list[str] = []
    is_apart = False
    for line in lines:
        if not line.strip():
            is_apart = True
            continue
        if (item := _ITEM.match(line)) is not None:
            bullets.append(item[1].strip())
        elif not bullets:
            intro.append(line.strip())
        elif _HEADING.match(line) is None and (not is_apart or line[0] in " \t"):
            bullets[-1] += f" {line.strip()}"
        else:
            after.append(line.strip())
        is_apart = False
    return Closing(" ".join(intro), bullets, after)

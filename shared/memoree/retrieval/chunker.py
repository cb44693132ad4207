"""Chunks: contiguous slices of a text body that end where its structure ends (retrieval contract §1.2).

Everything is counted in bytes of the immutable revision. The chunks partition it exactly and never cut a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from memoree.limits import CHUNK_BYTES_MAX, CHUNK_BYTES_TARGET, CHUNK_TAIL_BYTES_MIN

CHUNKER_VERSION = 1

_MARKED_LINE = re.compile(rb"^[ \t\r\f\v]*(?:(?P<heading>#)|(?P<fence>```|~~~)|\n)", re.MULTILINE)
_LAST_SENTENCE_END = re.compile(rb".*[.!?](?=\s)", re.DOTALL)
_LAST_BEFORE_SPACE = re.compile(rb".*(?=\s)", re.DOTALL)


class Span(NamedTuple):
    """Half-open, in bytes of the revision."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def chunks(data: bytes) -> Iterator[Span]:
    """Slices of valid UTF-8, each of 1 to `CHUNK_BYTES_MAX` bytes; none for an empty body."""
    last: Span | None = None
    for span in _assembled(data):
        if last is not None:
            if span.end == len(data) and span.size < CHUNK_TAIL_BYTES_MIN and span.end - last.start <= CHUNK_BYTES_MAX:
                span = Span(last.start, span.end)
            else:
                yield last
        last = span
    if last is not None:
        yield last


def _assembled(data: bytes) -> Iterator[Span]:
    """Neighbouring blocks joined up to the target size; a block over the maximum is cut into pieces."""
    start = end = 0
    for block_end in _block_ends(data):
        block_size, joined = block_end - end, block_end - start
        if joined > CHUNK_BYTES_TARGET and not (
            joined == block_size or (end - start < CHUNK_TAIL_BYTES_MIN and joined <= CHUNK_BYTES_MAX)
        ):
            yield Span(start, end)
            start = end
        if block_size > CHUNK_BYTES_MAX:
            yield from _pieces(data, Span(start, block_end))
            start = block_end
        end = block_end
    if end > start:
        yield Span(start, end)


def _block_ends(data: bytes) -> Iterator[int]:
    """Where structural blocks end: before a heading or an opening fence, after a blank line or a closing fence.

    Plain integers: a body may be eight million blank lines.
    """
    end = 0
    in_fence = False
    for line in _MARKED_LINE.finditer(data):
        kind = line.lastgroup
        if kind == "fence":
            boundary = _line_end(data, line.end()) if in_fence else line.start()
            in_fence = not in_fence
        elif in_fence:
            continue
        else:
            boundary = line.end() if kind is None else line.start()
        if boundary > end:
            yield boundary
            end = boundary
    if end < len(data):
        yield len(data)


def _line_end(data: bytes, position: int) -> int:
    newline = data.find(b"\n", position)
    return len(data) if newline < 0 else newline + 1


def _pieces(data: bytes, block: Span) -> Iterator[Span]:
    """Cuts of an oversized block, each as late as the maximum allows, at the best kind of boundary there is."""
    start = block.start
    while block.end - start > CHUNK_BYTES_MAX:
        ceiling = start + CHUNK_BYTES_MAX
        while data[ceiling] & 0xC0 == 0x80:
            ceiling -= 1
        cut = _last_cut(data, start + CHUNK_BYTES_TARGET, ceiling)
        yield Span(start, cut)
        start = cut
    yield Span(start, block.end)


def _last_cut(data: bytes, floor: int, ceiling: int) -> int:
    """The last boundary in [floor, ceiling): paragraph, line, sentence, word; else the ceiling itself."""
    for mark in (b"\n\n", b"\n"):
        found = data.rfind(mark, floor - len(mark), ceiling - 1)
        if found >= 0:
            return found + len(mark)
    if (sentence := _LAST_SENTENCE_END.match(data, floor - 1, ceiling)) is not None:
        return sentence.end()
    if (word := _LAST_BEFORE_SPACE.match(data, floor, ceiling)) is not None:
        return word.end()
    return ceiling

"""Markdown links in a text, in time proportional to it: a regular expression would begin at every bracket anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_UNSPACED = re.compile(r"[^)\s]*+")


class Link(NamedTuple):
    """`[label](target)`, from `start` up to, not including, `end`."""

    start: int
    end: int
    label: str
    target: str


def links(text: str, *, spaced: bool) -> Iterator[Link]:
    """From the left, none within another. A target has no `)`; unless `spaced`, it has no white space and something in
    it. A label has no `]`."""
    position = target_end = 0
    while (middle := text.find("](", position)) >= 0:
        label_start = text.find("[", text.rfind("]", position, middle) + 1 or position, middle)
        target_start = position = middle + 2
        if label_start < 0:
            continue
        if target_end < target_start:  # else it ends where that of the link before it, which was none, ends
            target_end = text.find(")", target_start) if spaced else _end_of_unspaced(text, target_start)
            if target_end < 0:
                return
        if not text.startswith(")", target_end) or not (spaced or target_start < target_end):
            continue
        position = target_end + 1
        yield Link(label_start, position, text[label_start + 1 : middle], text[target_start:target_end])


def without_targets(text: str) -> str:
    """Every link as its label."""
    kept: list[str] = []
    position = 0
    for link in links(text, spaced=True):
        kept += (text[position : link.start], link.label)
        position = link.end
    return "".join((*kept, text[position:]))


def _end_of_unspaced(text: str, start: int) -> int:
    match = _UNSPACED.match(text, start)
    assert match is not None, "it may be empty"
    return match.end()

"""The lines of a node that a hit is shown with (OKF contract §2.12)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from memoree.okf import terms

SNIPPET_CHARS_MAX = 600
SEARCHED_CHARS_MAX = 128 * 1024
"""Of a body: what stands behind it is found, and shown by no snippet."""
_LINES_WITHOUT_QUERY = 3


def snippet(body: str, query: Sequence[str], *, chars_max: int | None = SNIPPET_CHARS_MAX) -> str:
    """The line that has most of the query's tokens, with its neighbours; the first lines where there are no tokens."""
    lines = body[:SEARCHED_CHARS_MAX].split("\n")
    if not query:
        found = "\n".join(lines[:_LINES_WITHOUT_QUERY])
    else:
        best = _best(lines, query)
        found = "\n".join(lines[max(best - 1, 0) : best + 2])
    return found.strip()[:chars_max]


def _best(lines: Sequence[str], query: Sequence[str]) -> int:
    """Where the first of the lines is that weigh most. A line has a token that is part of it; the stem of a word is
    part of the word. Tokens are looked for one after the other, each once in a line."""
    lowered = [line.lower() for line in lines]
    ends = list(accumulate(len(line) + 1 for line in lowered))
    text = "\n".join(lowered)
    weights: Counter[int] = Counter()
    for token, repeats in Counter(query).items():
        position = text.find(token)
        while position >= 0:
            line = bisect_right(ends, position)
            weights[line] += repeats * (terms.units(token) + 2)
            position = text.find(token, ends[line])
    return max(weights, key=lambda line: (weights[line], -line), default=0)

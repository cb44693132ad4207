"""The lines of a node that a hit is shown with (OKF contract §2.12)."""

from __future__ import annotations

from collections.abc import Sequence

from memoree.okf import terms

SNIPPET_CHARS_MAX = 600
_LINES_WITHOUT_QUERY = 3


def snippet(body: str, query: Sequence[str], *, chars_max: int | None = SNIPPET_CHARS_MAX) -> str:
    """The line that has most of the query's tokens, with its neighbours; the first lines where there are no tokens."""
    lines = body.split("\n")
    if not query:
        found = "\n".join(lines[:_LINES_WITHOUT_QUERY])
    else:
        weighed = [(token, terms.units(token) + 2) for token in query]
        best = max(range(len(lines)), key=lambda at: (_weight(lines[at].lower(), weighed), -at))
        found = "\n".join(lines[max(best - 1, 0) : best + 2])
    return found.strip()[:chars_max]


def _weight(line: str, query: Sequence[tuple[str, int]]) -> int:
    """Of the tokens that it has, as they are or as the stem of a word: a word without endings is in the line itself."""
    stems = {terms.stem(word) for word in terms.words(line)} if terms.has_endings(line) else ()
    return sum(weight for token, weight in query if token in line or token in stems)

"""How an entry of an inbox is written: its heading, and the fence that keeps what looks like an instruction apart (OKF
contract §4.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memoree.okf.dialect import Dialect

UNTITLED = "(untitled)"
FENCE_TAG = "quarantine"
_FENCE_MIN = 3
_TICKS = re.compile(r"`+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def file_of(agent: str) -> str:
    """The file of an agent's inbox."""
    return f"inbox/{agent}.md"


def one_line(title: str | None) -> str | None:
    """A title without line breaks and other control characters, which could pass for a heading; `None` for none."""
    return " ".join(_CONTROL.sub(" ", title or "").split()) or None


def fence_for(text: str, dialect: Dialect = Dialect.SERVICE) -> str:
    """A fence that nothing in the text closes. The reference program's always has three ticks."""
    if dialect is Dialect.COMPAT:
        return "`" * _FENCE_MIN
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    return "`" * max(_FENCE_MIN, longest + 1)


def fenced(text: str, dialect: Dialect = Dialect.SERVICE) -> str:
    """The text, unchanged, between two fences: it is everything between the first line break and the last."""
    fence = fence_for(text, dialect)
    return f"{fence}{FENCE_TAG}\n{text}\n{fence}"


def entry(*, at: str, title: str | None, text: str, labels: Sequence[str], dialect: Dialect = Dialect.SERVICE) -> str:
    """An entry as a file has it, a blank line at its end. `at` is an instant as ISO 8601. The reference program keeps
    line breaks of the title."""
    told = one_line(title) if dialect is Dialect.SERVICE else title
    heading = f"## {at} — {told or UNTITLED}\n\n"
    if not labels:
        return f"{heading}{text}\n\n"
    return f"{heading}quarantine: true  <!-- patterns: {', '.join(labels)} -->\n\n{fenced(text, dialect)}\n\n"

"""Text that speaks to a model as if it were its master: what an inbox marks before it keeps it (OKF contract §4.1).

A label is a warning to who curates, never a proof; what has none is no more to be trusted.
"""

from __future__ import annotations

import re

_BREAK = r"\n\r\x0b\x0c\x85\u2028\u2029"
"""Whatever begins a line for somebody."""
_PATTERNS: tuple[tuple[str, str], ...] = (
    (
        "ignore-previous-instructions",
        r"\b(?:ignore|disregard|forget)\s++(?:(?:all|any)\s++)?+(?:previous|prior|above|earlier)\s++"
        r"(?:instructions?|prompts?|context|rules?)\b",
    ),
    ("new-instructions", r"\bnew\s++instructions?\s*+:"),
    ("system-tag", r"</?\s*+system\b"),
    ("role-tag", r"<\|?\s*+(?:system|assistant|user)\s*+\|?>"),
    ("tool-use-marker", r"\b(?:tool_use|tool_result)\b"),
    (
        "run-execute-command",
        r"\b(?:run|execute)\s++(?:(?:the\s++following|this|the)\s++)?+(?:command|script|code|shell)\b",
    ),
    ("role-override", rf"(?<![^{_BREAK}])[^\S{_BREAK}]*+(?:system|assistant)\s*+:"),
)
_DETECTORS = tuple((label, re.compile(pattern, re.IGNORECASE)) for label, pattern in _PATTERNS)

_SHELL = "shell-injection"
_REMOVAL = re.compile(r"\bsudo\s++rm\s++-rf\b", re.IGNORECASE)
_FETCH = re.compile(r"\b(?:curl|wget)\b", re.IGNORECASE)
_INTO_SHELL = re.compile(r"\|\s*+(?:sudo\s++)?+/?+(?:\w++/)*+(?:ba|z|da)?sh\b", re.IGNORECASE)
_BEFORE = "role-override"
"""The label that comes after the shell's in the contract's order."""


def labels(text: str) -> list[str]:
    """What a text looks like, in the order of the contract's table; empty for ordinary prose. Takes time in proportion
    to the text, whatever it says."""
    found = [label for label, pattern in _DETECTORS if pattern.search(text)]
    if _would_run_in_a_shell(text):
        found.insert(len(found) - (_BEFORE in found), _SHELL)
    return found


def _would_run_in_a_shell(text: str) -> bool:
    """A line at a time: what is fetched, and the shell it is piped into, stand in one."""
    if _REMOVAL.search(text):
        return True
    return any(
        (fetched := _FETCH.search(line)) is not None and _INTO_SHELL.search(line, fetched.end()) is not None
        for line in text.replace("\\\n", " ").splitlines()
    )

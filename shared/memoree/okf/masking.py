"""Tokens of well-known services in captured text, made unreadable before it is kept (OKF contract §4.2)."""

from __future__ import annotations

import re

MASK = "•••masked•••"
_TOKENS = re.compile(
    r"npm_[A-Za-z0-9]{20,}"
    r"|sk-[A-Za-z0-9_-]{16,}"
    r"|ghp_[A-Za-z0-9]{20,}"
    r"|AKIA[A-Z0-9]{12,}"
)


def masked(text: str) -> tuple[str, int]:
    """The text without such tokens, and how many there were."""
    return _TOKENS.subn(MASK, text)

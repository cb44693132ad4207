"""What text costs a model, as budgets count it (OKF contract §7.5)."""

from __future__ import annotations

CHARS_PER_TOKEN = 4


def estimated(text: str) -> int:
    """Tokens: a quarter of the characters, rounded up."""
    return tokens_of(len(text))


def tokens_of(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)

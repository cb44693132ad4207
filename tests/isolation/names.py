"""Tenants whose names are easily taken for one another's, and words by which each tenant's things are known."""

from __future__ import annotations

ALIKE = ("a", "a1", "a_", "A", "a-", "a.b")
SCOPES = ["recall", "ingest", "forget", "inbox", "admin"]
_WORDS = dict(zip(ALIKE, ("zelkova", "quipuwa", "mbrioch", "xylofyn", "drongho", "juvikta"), strict=True))
_NOBODY = "wyrfend"
"""As long as the others', and as far from each."""


def word_of(tenant: str) -> str:
    """It is in every text that the tenant stores, and in no other tenant's."""
    return _WORDS[tenant]


def word_of_nobody() -> str:
    return _NOBODY


def words_of_others(tenant: str) -> list[str]:
    return [word for owner, word in _WORDS.items() if owner != tenant]


def token_of(tenant: str) -> str:
    return f"tok-{ALIKE.index(tenant)}-of-{word_of(tenant)}"


def tokens_file() -> dict[str, object]:
    context = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
    return {token_of(name): {"tenant": name, "scopes": SCOPES, "context": context} for name in ALIKE}

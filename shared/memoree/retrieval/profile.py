"""What kind of question a query looks like. Routing advice for the caller; it never changes a result (§1.5)."""

from __future__ import annotations

import unicodedata
from typing import Any

PROFILE_POLICY = "conservative_query_profile_v1"

_HISTORICAL = (
    *("previous", "previously", "prior", "earlier", "history", "historical"),
    *("decided", "decision", "learned", "audit", "remember"),
)
_CURRENT_SOURCE = (
    *("current code", "current implementation", "currently", "source code", "where is", "defined in"),
    *("this version", "after the migration", "after migration", "right now", "latest state"),
)
_AUTHORITY = {
    "historical_memory": "memory_for_history_repository_for_current_source",
    "current_source": "repository_authoritative",
    "identifier_lookup": "repository_first_for_live_identifiers",
    "ambiguous": "compare_memory_with_current_authoritative_source",
}
_SCRIPTS: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = (
    ("latin", ((0x0000, 0x024F), (0x1E00, 0x1EFF))),
    ("cyrillic", ((0x0400, 0x052F),)),
    ("arabic", ((0x0600, 0x06FF), (0x0750, 0x077F), (0x08A0, 0x08FF))),
    ("cjk", ((0x3040, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7AF))),
)


def retrieval_profile(normalized_query: str) -> dict[str, Any]:
    """The wire object `retrieval_profile`."""
    identifiers = [piece for piece in normalized_query.replace('"', " ").split() if _is_identifier_like(piece)]
    intent = _intent(normalized_query, bool(identifiers))
    return {
        "policy_version": PROFILE_POLICY,
        "intent_hint": intent,
        "script_profile": _script_profile(normalized_query),
        "identifier_like_units": identifiers,
        "semantic_role": "candidate_and_ordering_only",
        "authority_hint": _AUTHORITY[intent],
    }


def _intent(text: str, has_identifier: bool) -> str:
    if any(cue in text for cue in _HISTORICAL):
        return "historical_memory"
    if any(cue in text for cue in _CURRENT_SOURCE):
        return "current_source"
    return "identifier_lookup" if has_identifier else "ambiguous"


def _is_identifier_like(piece: str) -> bool:
    if "_" in piece or "::" in piece or "/" in piece:
        return True
    return any("0" <= c <= "9" for c in piece) and any(c.isalpha() for c in piece)


def _script_profile(text: str) -> str:
    scripts = {_script(character) for character in text if unicodedata.category(character)[0] == "L"}
    if len(scripts) > 1:
        return "mixed"
    return scripts.pop() if scripts else "unknown"


def _script(character: str) -> str:
    code = ord(character)
    for name, ranges in _SCRIPTS:
        if any(first <= code <= last for first, last in ranges):
            return name
    return "other"

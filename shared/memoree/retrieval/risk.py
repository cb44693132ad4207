"""Signals of language in stored text that tries to act on its reader (retrieval contract §6.2).

They are plain substrings, so that anybody can tell why a signal is there. An empty list is no verdict of safety.
"""

from __future__ import annotations

from collections.abc import Mapping

SIGNALS: Mapping[str, tuple[bytes, ...]] = {
    "instruction_override_language": (
        b"ignore previous",
        b"ignore all previous",
        b"disregard previous",
        b"override the system",
        b"forget your instructions",
    ),
    "role_spoofing_language": (
        b"system prompt",
        b"# system",
        b"<system",
        b"[system]",
        b"developer message",
        b"assistant:",
    ),
    "tool_execution_language": (b"tool_call", b"function_call", b"run this command", b"execute this command"),
    "sensitive_data_language": (b"api key", b"access token", b"private key", b"environment variables"),
}
"""Signals in the order in which they are told, each with the phrases that raise it, in lower case."""


def risk_signals(title: str, excerpt: str) -> list[str]:
    """The signals that a title and an excerpt raise, whatever the case of their ASCII letters."""
    text = f"{title}\n{excerpt}".encode().lower()
    return [signal for signal, phrases in SIGNALS.items() if any(phrase in text for phrase in phrases)]

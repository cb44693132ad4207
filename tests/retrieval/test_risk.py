"""Risk signals: which phrases raise them, and in which order they are told (retrieval contract §6.2)."""

from __future__ import annotations

import pytest

from memoree.retrieval.risk import risk_signals

OVERRIDE, ROLE = "instruction_override_language", "role_spoofing_language"
TOOL, SECRET = "tool_execution_language", "sensitive_data_language"
PHRASES = {
    OVERRIDE: [
        "ignore previous", "ignore all previous", "disregard previous", "override the system",
        "forget your instructions",
    ],
    ROLE: ["system prompt", "# system", "<system", "[system]", "developer message", "assistant:"],
    TOOL: ["tool_call", "function_call", "run this command", "execute this command"],
    SECRET: ["api key", "access token", "private key", "environment variables"],
}  # fmt: skip
"""Written from the contract, not from the code."""
CASES = [(phrase, signal) for signal, phrases in PHRASES.items() for phrase in phrases]


@pytest.mark.proves("machine-191")
@pytest.mark.parametrize(("phrase", "signal"), CASES)
def test_a_phrase_raises_its_signal_in_any_case_and_wherever_it_stands(phrase: str, signal: str) -> None:
    assert risk_signals("Note", f"Please {phrase}s now.") == [signal]
    assert risk_signals(f"x{phrase.upper()}x", "nothing else") == [signal]
    assert risk_signals("Note", phrase[:-1]) == []


@pytest.mark.proves("machine-191")
def test_signals_have_a_fixed_order_and_each_comes_once() -> None:
    text = "the API key: run this command after the system prompt; ignore previous orders, ignore previous ones"
    assert risk_signals("Note", text) == [OVERRIDE, ROLE, TOOL, SECRET]
    assert risk_signals("access token", "assistant: yes") == [ROLE, SECRET]


@pytest.mark.proves("machine-191")
@pytest.mark.parametrize(
    "text", ["", "The kiln reached cone 6.", "a systematic prompt", "ignore the previous", "API-key"]
)
def test_ordinary_text_raises_none(text: str) -> None:
    assert risk_signals("Kiln firing 12", text) == []


def test_a_phrase_never_spans_title_and_excerpt() -> None:
    assert risk_signals("please ignore", "previous orders") == []


def test_only_ascii_letters_have_a_case_here() -> None:
    assert risk_signals("Note", "\u212aey: the AP\u0130 \u212aey") == []

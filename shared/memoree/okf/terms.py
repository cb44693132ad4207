"""What of a node is searched, and how text becomes terms (OKF contract §2.6)."""

from __future__ import annotations

import re

from memoree.okf.links import without_targets
from memoree.okf.node import Node

_TOKEN = re.compile(r"(?:[^\W_]|-)+")
_WORD = re.compile(r"[^\W_]+")
_CYRILLIC = re.compile(r"[а-яё]")
_FENCE = re.compile(r"```.*?```", re.DOTALL)
TOKEN_UNITS_MIN = 2
"""UTF-16 code units."""
_STEM_CHARS_MIN = 3

_SUFFIXES = re.findall(
    r"\w+",
    "ующего ующему ующими ующая ующие ующий ского скому скими ской ская ские ским ениями ению ения ением ного ными ной "
    "ную ных ным ная ные ого ому ыми ими ией ием иях иям ами ах ов ев ам ом ем ую ые ая ой ей ий ый ия ию ии ью ить "
    "ать еть ешь ете али или ите ла ли ло ке ку ки кой у ы и е а я ь о",
)
_STOP_WORDS = frozenset(("the", "a", "an", "and", "of", "for", "to", "in", "on"))
_TOPIC_CHARS_MIN = 3
_TOPIC_DESCRIPTION_CHARS = 80


def document(node: Node) -> str:
    """The text of a node that a search sees: title, description, tags and body, a line each."""
    body = " ".join(_FENCE.sub(" ", without_targets(node.body)).split())
    return "\n".join(part for part in (node.title, node.description, ", ".join(node.tags), body) if part)


def tokens(text: str) -> list[str]:
    """Words of letters, digits and hyphens, in lower case, of two units or more; Cyrillic ones without endings."""
    lowered = text.lower()
    found = [
        token for token in _TOKEN.findall(lowered) if len(token) >= TOKEN_UNITS_MIN or units(token) >= TOKEN_UNITS_MIN
    ]
    return [stem(token) for token in found] if has_endings(lowered) else found


def stem(word: str) -> str:
    """A Russian word without the first of the known endings that leaves enough of it."""
    word = word.lower()
    if len(word) <= _STEM_CHARS_MIN or not _CYRILLIC.search(word):
        return word
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _STEM_CHARS_MIN:
            return word[: -len(suffix)]
    return word


def topic(node: Node) -> frozenset[str]:
    """The words by which two nodes are held to be about the same (§2.8)."""
    told = f"{node.native_title} {' '.join(node.tags)}".strip()
    text = told or f"{node.name.replace('-', ' ')} {node.description[:_TOPIC_DESCRIPTION_CHARS]}"
    words = _WORD.findall(text.lower())
    return frozenset(word for word in words if units(word) >= _TOPIC_CHARS_MIN and word not in _STOP_WORDS)


def words(line: str) -> list[str]:
    """Of a line already in lower case, as `tokens` splits it, endings and all."""
    return [token for token in _TOKEN.findall(line) if units(token) >= TOKEN_UNITS_MIN]


def has_endings(lowered: str) -> bool:
    """Whether a text in lower case may have words that `stem` shortens."""
    return _CYRILLIC.search(lowered) is not None


def units(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text) + sum(character > "\uffff" for character in text)

"""Deterministic claims: words of a made-up language, as frequent as a natural one's (Zipf), from a committed seed.

The first n claims are the same however many are made, so that a short run measures a prefix of the long one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, count, islice

SEED = 20261130
VOCABULARY_WORDS = 20_000
STATEMENT_WORDS_MIN = 8
STATEMENT_WORDS_MAX = 24
CLAIM_TYPES = ("fact", "decision", "constraint", "preference", "procedure", "observation")
CONTEXT = {"workspace_id": "wsp_bench", "project_id": "prj_bench"}

SOURCES = 100
SOURCE_BYTES = 1024
SPAN_BYTES = 96

TITLE_WORDS_MIN = 3
TITLE_WORDS_MAX = 6
DOCUMENT_WORDS_MIN = 40
DOCUMENT_WORDS_MAX = 250
FUNCTION_WORDS = ("the", "of", "and", "to", "a", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on")
FUNCTION_WORDS_SHARE = 0.4
"""Of the words of a document, as in natural text: a query of nothing but these must have something to find."""

_ONSETS = (
    *("b", "bl", "br", "c", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "l", "m"),
    *("n", "p", "pr", "qu", "r", "s", "st", "t", "tr", "v", "w", "z"),
)
_NUCLEI = ("a", "ai", "au", "e", "ea", "i", "io", "o", "ou", "u")
_CODAS = ("l", "m", "n", "nd", "p", "r", "rk", "st", "t", "x")


@dataclass(frozen=True, slots=True)
class Statement:
    """What one claim says. `source` is the number of the document it cites, from `start_byte` on."""

    claim_type: str
    text: str
    source: int
    start_byte: int


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    body: str


@cache
def vocabulary() -> Sequence[str]:
    """Distinct words, the most frequent first."""
    chooser = random.Random(SEED)
    words: dict[str, None] = {}
    while len(words) < VOCABULARY_WORDS:
        syllables = [chooser.choice(_ONSETS) + chooser.choice(_NUCLEI) for _ in range(chooser.choice((1, 2, 2, 3)))]
        words["".join(syllables) + chooser.choice(_CODAS)] = None
    return tuple(words)


@cache
def _cumulative_weights() -> Sequence[float]:
    return list(accumulate(1 / rank for rank in range(1, VOCABULARY_WORDS + 1)))


def statements(number: int) -> Iterator[Statement]:
    """The first `number` claims."""
    return islice(_statements(), number)


def _statements() -> Iterator[Statement]:
    chooser = random.Random(SEED + 1)
    for position in count():
        length = chooser.randint(STATEMENT_WORDS_MIN, STATEMENT_WORDS_MAX)
        words = chooser.choices(vocabulary(), cum_weights=_cumulative_weights(), k=length)
        yield Statement(
            claim_type=CLAIM_TYPES[position % len(CLAIM_TYPES)],
            text=" ".join(words).capitalize() + ".",
            source=chooser.randrange(SOURCES),
            start_byte=chooser.randrange(SOURCE_BYTES - SPAN_BYTES),
        )


def sources() -> Iterator[str]:
    """The documents that claims cite, ASCII, each of `SOURCE_BYTES` bytes."""
    chooser = random.Random(SEED + 2)
    for _ in range(SOURCES):
        words = chooser.choices(vocabulary(), cum_weights=_cumulative_weights(), k=SOURCE_BYTES // 4)
        yield " ".join(words)[:SOURCE_BYTES]


def documents(number: int) -> Iterator[Document]:
    """The first `number` documents that nothing cites: words as frequent as those of claims, function words between."""
    return islice(_documents(), number)


def _documents() -> Iterator[Document]:
    chooser = random.Random(SEED + 5)
    while True:
        title = zipf_words(chooser, chooser.randint(TITLE_WORDS_MIN, TITLE_WORDS_MAX))
        content = zipf_words(chooser, chooser.randint(DOCUMENT_WORDS_MIN, DOCUMENT_WORDS_MAX))
        yield Document(
            " ".join(title).capitalize(), " ".join(_with_function_words(chooser, content)).capitalize() + "."
        )


def _with_function_words(chooser: random.Random, content: Sequence[str]) -> Iterator[str]:
    for word in content:
        while chooser.random() < FUNCTION_WORDS_SHARE:
            yield chooser.choice(FUNCTION_WORDS)
        yield word


def zipf_words(chooser: random.Random, number: int) -> list[str]:
    """Words of the vocabulary, drawn by their frequency."""
    return chooser.choices(vocabulary(), cum_weights=_cumulative_weights(), k=number)

"""Which recovered bytes may be shown: those that share a word with the question (`recovery_lexical_relation_v1`).

Words meet as terms of the index do, by their stems, and in unspaced scripts by pairs of characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from memoree.retrieval.query import STOPWORDS, Query
from memoree.retrieval.stemming import simple_words, stem
from memoree.retrieval.text import fold
from memoree.retrieval.unspaced import split_runs
from memoree.retrieval.words import words

RECOVERY_POLICY: Final = "recovery_lexical_relation_v1"
WORD_BYTES_MIN = 4
"""Shorter words of stored text are not proposed: they distinguish little."""


def asked_terms(query: Query, routed: str) -> frozenset[str]:
    """The terms of what qualifies an answer and of the text that leads were looked for with."""
    asked = [*(word for unit in query.units for word in unit.words), *_content_words(routed)]
    return frozenset(term for word in asked for term in _terms(word))


def is_related(text: str, asked: frozenset[str]) -> bool:
    """Whether the text has a content word in common with the question, in any inflection."""
    return any(term in asked for word in _content_words(text) for term in (*_terms(word), *_characters(word)))


def words_not_asked(texts: Iterable[str], asked: frozenset[str]) -> list[str]:
    """Content words of the texts that the question lacks, sorted."""
    found = {word for text in texts for word in _content_words(text) if len(word.encode()) >= WORD_BYTES_MIN}
    return sorted(word for word in found if not asked.issuperset(_terms(word)))


def _content_words(text: str) -> list[str]:
    return [word for word in words(fold(text)) if word not in STOPWORDS]


def _terms(word: str) -> Iterator[str]:
    """Stems, and the pairs of unspaced runs; a run of one character is its own term."""
    for part, is_unspaced in split_runs(word):
        if is_unspaced:
            yield from (part[at : at + 2] for at in range(max(1, len(part) - 1)))
        else:
            yield from map(stem, simple_words(part))


def _characters(word: str) -> Iterator[str]:
    """What a question of one unspaced character is found by."""
    return (character for part, is_unspaced in split_runs(word) if is_unspaced for character in part)

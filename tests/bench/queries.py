"""The committed query lists, made from the committed seed as `generated` and `generated_questions` say.

`queries.tsv` (`band<TAB>query`) has one to three words of one claim, in three bands of frequency. `questions.tsv`
(`kind<TAB>query<TAB>terms`) has questions about some words of one claim, as they come, and four words drawn by their
frequency. Its terms are those of the reference query, function words left out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .data import SEED, statements, vocabulary, zipf_words

PATH = Path(__file__).with_name("queries.tsv")
QUESTIONS_PATH = Path(__file__).with_name("questions.tsv")
QUERIES_PER_BAND = 170
WORDS_MAX = 3
CLAIMS_ASKED_ABOUT = 2_000
"""Queries ask about the first claims, which every run has."""

BANDS: Mapping[str, range] = {
    "rare": range(7_500, 20_000),
    "medium": range(150, 1_500),
    "common": range(150),
}
"""Ranks in the vocabulary. Of 100 000 claims a rare word is in fewer than 20, a medium one in 100 to 1 000, a common
one in more than 1 000."""

ZIPF = "zipf"
ZIPF_WORDS = 4
QUESTION = "question"
QUESTION_WORDS_MIN = 3
QUESTION_WORDS_MAX = 5
OPENINGS = (
    "what is the",
    "who was it with",
    "when was the",
    "why would the",
    "which of the",
    "how did the",
    "where is",
)
JOINTS = (" ", " of the ", " and ", " for the ", " in ")


class Case(NamedTuple):
    """A query, the band or kind of its list, and the terms of its reference query."""

    kind: str
    query: str
    terms: Sequence[str]


def cases(per_list: int) -> Sequence[Case]:
    """The first queries of every list."""
    found = [Case(band, query, query.split()) for band, words in queries().items() for query in words[:per_list]]
    return found + [case for kind in (QUESTION, ZIPF) for case in questions(kind)[:per_list]]


def questions(kind: str) -> Sequence[Case]:
    """The committed list of that kind."""
    lines = [line.split("\t") for line in QUESTIONS_PATH.read_text(encoding="ascii").splitlines()]
    return [Case(kind, query, terms.split()) for kind_, query, terms in lines if kind_ == kind]


def queries() -> Mapping[str, Sequence[str]]:
    """The committed lists by band."""
    lists: dict[str, list[str]] = {band: [] for band in BANDS}
    for line in PATH.read_text(encoding="ascii").splitlines():
        band, query = line.split("\t")
        lists[band].append(query)
    return lists


def generated() -> str:
    """The content of the committed file."""
    ranks = {word: rank for rank, word in enumerate(vocabulary())}
    chooser = random.Random(SEED + 3)
    claims = _claims_asked_about()
    lines = [f"{band}\t{query}\n" for band in BANDS for query in _of_band(BANDS[band], claims, ranks, chooser)]
    return "".join(lines)


def _of_band(
    band: range, claims: Sequence[Sequence[str]], ranks: Mapping[str, int], chooser: random.Random
) -> Iterator[str]:
    for number in range(QUERIES_PER_BAND):
        wanted = 1 + number % WORDS_MAX
        while len(words := sorted({word for word in chooser.choice(claims) if ranks[word] in band})) < wanted:
            pass
        yield " ".join(chooser.sample(words, wanted))


def generated_questions() -> str:
    """The content of the committed file of questions."""
    chooser = random.Random(SEED + 4)
    claims = _claims_asked_about()
    asked = [sorted(set(chooser.choice(claims))) for _ in range(QUERIES_PER_BAND)]
    lines = [_question(words, chooser) for words in asked]
    for _ in range(QUERIES_PER_BAND):
        while len(words := list(dict.fromkeys(zipf_words(chooser, ZIPF_WORDS)))) < ZIPF_WORDS:
            pass
        lines.append(f"{ZIPF}\t{' '.join(words)}\t{' '.join(words)}\n")
    return "".join(lines)


def _question(words: Sequence[str], chooser: random.Random) -> str:
    """About some words of one claim, as they come."""
    number = min(len(words), chooser.randint(QUESTION_WORDS_MIN, QUESTION_WORDS_MAX))
    terms = chooser.sample(words, number)
    text = f"{chooser.choice(OPENINGS)} {terms[0]}" + "".join(chooser.choice(JOINTS) + term for term in terms[1:])
    return f"{QUESTION}\t{text}?\t{' '.join(terms)}\n"


def _claims_asked_about() -> Sequence[Sequence[str]]:
    return [statement.text.lower().rstrip(".").split() for statement in statements(CLAIMS_ASKED_ABOUT)]

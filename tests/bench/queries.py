"""The committed query lists: one to three words of one claim, in three bands of frequency.

`queries.tsv` holds them (`band<TAB>query`); `generated` says how they were made from the committed seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .data import SEED, statements, vocabulary

PATH = Path(__file__).with_name("queries.tsv")
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
    claims = [statement.text.lower().rstrip(".").split() for statement in statements(CLAIMS_ASKED_ABOUT)]
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

"""The worst query that somebody could think of, through `memory.recall` and `search`, against an ordinary recall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle, islice

from memoree import limits
from memoree.retrieval.query import STOPWORDS

from .. import data, queries
from ..asking import asked, timed
from ..figures import Figure, Ratio, p50
from ..site import Site
from ..wire import recall, search

WORDS = limits.QUERY_WORDS_MAX
BYTES = limits.QUERY_BYTES_MAX
SURFACES = {"recall": recall, "search": search}


async def measure(site: Site) -> Figure:
    memory = await site.memory()
    cases = queries.cases(site.plan.queries_per_band)
    ordinary: list[float] = []
    hostile: dict[str, list[float]] = {}
    async with await memory.caller() as caller:
        await asked(caller, cases)
        for first in range(site.plan.rounds):
            ordinary += await asked(caller, cases[first :: site.plan.rounds])
            for name, query in hostile_queries().items():
                for surface, request in SURFACES.items():
                    hostile.setdefault(f"{surface}_{name}", []).append(await timed(caller, request(query)))
    absolute = {f"hostile_{name}_p50_ms": p50(seconds) * 1000 for name, seconds in hostile.items()}
    return Figure(max(map(p50, hostile.values())), p50(ordinary), absolute)


def hostile_queries() -> Mapping[str, str]:
    """By name. Each is accepted; the largest are as large as the bounds allow."""
    common = data.vocabulary()[:WORDS]
    wide = "!" * ((BYTES - len("".join(common))) // WORDS)
    return {
        "common": " ".join(common),
        "common_8192_bytes": "".join(word + wide for word in common),
        "common_phrase": f'"{" ".join(common)}"',
        "common_phrases": " ".join(f'"{" ".join(words)}"' for words in zip(*[iter(common)] * 3, strict=True)),
        "common_pairs": " ".join("-".join(words) for words in zip(*[iter(common)] * 2, strict=True)),
        "common_misspelled": " ".join(_misspelled(word) for word in common),
        "unspaced_8192_bytes": "設備" * (BYTES // len("設備".encode())),
        "long_words_8192_bytes": " ".join(islice(_long_words(), WORDS)),
        "stop_words": " ".join(sorted(STOPWORDS)[:WORDS]),
        "stop_words_stored": " ".join(islice(cycle(data.FUNCTION_WORDS), WORDS)),
        "wildcards": " ".join(f"{letter}*" for letter in "abcdefghijklmnopqrstuvwxyz"),
    }


def _misspelled(word: str) -> str:
    """With its last two letters exchanged."""
    return word[:-2] + word[-1] + word[-2]


def _long_words() -> Iterator[str]:
    size = BYTES // WORDS - 1
    return (word * (size // len(word)) for word in data.vocabulary())


RATIO = Ratio(
    name="hostile_query_over_p50",
    measured_is="the worst of the hostile queries, recalled or searched for",
    floor_is="the p50 of one HTTP `memory.recall`",
    must=40,
    aim=8,
    measure=measure,
)

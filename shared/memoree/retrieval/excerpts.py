"""Excerpts: the part of a text that is shown, cut at characters and counted in bytes (retrieval contract §3.3)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from memoree.citation import ArtifactCitation, Span
from memoree.retrieval.stemming import stem

OCCURRENCES_MAX = 512
"""Places that are compared; a long text that repeats a word has no better ones further on."""
_LEAD = 4
"""A window begins this share of its size before the match, so that the match is read with what comes before it."""
_PLAIN_WORD = re.compile(rb"[a-z]{3,}")


class Window(NamedTuple):
    """Half-open, in bytes of the text."""

    start: int
    end: int


class Excerpt(NamedTuple):
    """What is shown of a cited text. `citation` names exactly these bytes where they are only a part of the span."""

    text: str
    is_truncated: bool
    citation: str | None


class _Place(NamedTuple):
    start: int
    end: int
    term: bytes


def cut(text: str, bytes_max: int) -> str:
    """As many whole characters from the start as the bytes allow."""
    data = text.encode()
    return text if len(data) <= bytes_max else data[:bytes_max].decode(errors="ignore")


def excerpt(text: str, cited: ArtifactCitation, terms: Sequence[str], bytes_max: int) -> Excerpt:
    """The window of a text that is exactly what `cited` names, or a title, which has no span."""
    data = text.encode()
    shown = window(text, terms, bytes_max)
    part = data[shown.start : shown.end].decode()
    is_truncated = len(part) < len(text)
    if not part or not is_truncated or cited.span is None:
        return Excerpt(part, is_truncated, None)
    offset = cited.span.start
    return Excerpt(part, True, str(cited._replace(span=Span(offset + shown.start, offset + shown.end))))


def window(text: str, terms: Sequence[str], bytes_max: int) -> Window:
    """The part of at most `bytes_max` bytes around the place where the most different terms stand close together, the
    first of several; the start of the text where none of them stands. Terms are lower-cased words."""
    data = text.encode()
    if len(data) <= bytes_max:
        return Window(0, len(data))
    best = _best_place(_lowered(text, data), terms, bytes_max)
    start = _start_before(data, best, bytes_max // _LEAD)
    return Window(start, _character_start(data, min(start + bytes_max, len(data))))


def _lowered(text: str, data: bytes) -> bytes:
    """Offsets are those of the text: where lower case has another length, as of `İ`, case counts."""
    lowered = text.lower().encode()
    return lowered if len(lowered) == len(data) else data


def _best_place(data: bytes, terms: Sequence[str], reach: int) -> int:
    """The offset of the occurrence from which the most terms are within reach; 0 without any."""
    places = _places(data, {term.encode() for term in terms}) or _inflected_places(data, set(map(stem, terms)))
    within: Counter[bytes] = Counter()
    best, most, last = 0, 0, 0
    for place in places:
        while last < len(places) and places[last].end <= place.start + reach:
            within[places[last].term] += 1
            last += 1
        if len(within) > most:
            best, most = place.start, len(within)
        if within[place.term] > 1:
            within[place.term] -= 1
        else:
            del within[place.term]
    return best


def _places(data: bytes, terms: Iterable[bytes]) -> list[_Place]:
    """The first occurrences of all the terms together, in the order of the text."""
    found = (
        _Place(match.start(), match.end(), term)
        for term in terms
        for match in islice(re.finditer(re.escape(term), data), OCCURRENCES_MAX)
    )
    return sorted(found)[:OCCURRENCES_MAX]


def _inflected_places(data: bytes, stems: Collection[str]) -> list[_Place]:
    """Where other forms of the terms stand: `retries` matches a text that has `retry`."""
    words = ((match, stem(match[0].decode())) for match in _PLAIN_WORD.finditer(data))
    found = (_Place(match.start(), match.end(), term.encode()) for match, term in words if term in stems)
    return list(islice(found, OCCURRENCES_MAX))


def _start_before(data: bytes, place: int, lead: int) -> int:
    """At most `lead` bytes before the place, at the start of a word where one is near."""
    start = _character_start(data, max(0, place - lead))
    if start == 0:
        return 0
    space = data.find(b" ", start, start + lead)
    return space + 1 if start <= space < place else start


def _character_start(data: bytes, offset: int) -> int:
    """The offset, or the start of the character of UTF-8 that it lies in."""
    while 0 < offset < len(data) and data[offset] & 0b1100_0000 == 0b1000_0000:
        offset -= 1
    return offset

"""Text that quotes this store: retrieved context that somebody stored again, or a note that cites its sources.

It is known by citations of the store's own form (machine protocol §5.2), also as editors of Markdown, JSON, URLs and
HTML write them. A citation is counted when what it names was there before the text came; that is for the database to
say. Artifacts are marked so, claims are not: a statement that quotes the store is a claim like any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeVar

from memoree.citation import ArtifactCitation, Span, claim_citation
from memoree.ids import ULID_PATTERN
from memoree.retrieval.expression import EntityType

SCHEME = "memoree"
"""In lower case; a text may have it in any."""
_ENTITIES = {":": "colon", "/": "sol", "@": "commat", "#": "num", "_": "lowbar"}


def _written(sign: str) -> str:
    """A sign as it is, with an escape or an escaped escape before it, or encoded for a URL or for HTML."""
    code = ord(sign)
    encoded = rf"%(?ai:{code:02x})|&(?:\#{code}|\#(?ai:x{code:x})|{_ENTITIES[sign]});"
    return rf"(?:\\{{0,2}}{re.escape(sign)}|{encoded})"


_COLON, _SLASH, _AT, _HASH, _UNDERSCORE = map(_written, _ENTITIES)
_END = "(?![0-9A-Za-z])"
_CITATION = re.compile(
    rf"(?ai:{SCHEME}){_COLON}{_SLASH}{_SLASH}(?:"
    rf"artifact{_SLASH}art{_UNDERSCORE}({ULID_PATTERN}){_AT}arev{_UNDERSCORE}({ULID_PATTERN}){_END}"
    rf"(?:{_HASH}([0-9]{{1,18}})-([0-9]{{1,18}}){_END})?"
    rf"|claim{_SLASH}clm{_UNDERSCORE}({ULID_PATTERN}){_AT}crev{_UNDERSCORE}({ULID_PATTERN}){_END})"
)
"""Every part has a bounded length, so a text is read once, whatever stands in it."""


class Cited(NamedTuple):
    """A revision of this store's form of names, and bytes of it where a span names some."""

    entity_type: EntityType
    entity_id: str
    revision_id: str
    span: Span | None

    def __str__(self) -> str:
        if self.entity_type == "claim":
            return claim_citation(self.entity_id, self.revision_id)
        return str(ArtifactCitation(self.entity_id, self.revision_id, self.span))


def cited_in(text: str) -> Iterator[Cited]:
    """The citations of a text, one after the other. Empty and reversed spans cite nothing; how a citation is written
    makes no difference."""
    for match in _CITATION.finditer(text):
        artifact, artifact_revision, start, end, claim, claim_revision = match.groups()
        if claim is not None:
            yield Cited("claim", f"clm_{claim}", f"crev_{claim_revision}", None)
        elif start is None or int(start) < int(end):
            span = None if start is None else Span(int(start), int(end))
            yield Cited("artifact", f"art_{artifact}", f"arev_{artifact_revision}", span)


Item = TypeVar("Item")


def originals_first(
    ranked: Sequence[Item],
    *,
    match: Callable[[Item], tuple[int, ...]],
    row: Callable[[Item], int],
    quoted: Callable[[Item], Collection[int]],
) -> list[Item]:
    """The items in the order given, but each one behind those that it quotes and that match as well or better.

    `match` says how much of the query an item matches; greater is better. A copy may stand before its source where it
    matches more, never for being newer, shorter, or stored a hundred times.
    """
    places = {row(item): position for position, item in enumerate(ranked)}

    def place(position: int) -> tuple[int, bool, int]:
        item = ranked[position]
        sources = (places[each] for each in quoted(item) if each in places)
        behind = [at for at in sources if match(ranked[at]) >= match(item)]
        return max([position, *behind]), bool(behind), position

    return [ranked[position] for position in sorted(range(len(ranked)), key=place)]

"""Text that quotes this store: retrieved context that somebody stored again, or a note that cites its sources.

It is known by citations of the store's own form (machine protocol §5.2). A citation is counted when what it names was
there before the text came; that is for the database to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from memoree import limits
from memoree.citation import ArtifactCitation, Span, claim_citation
from memoree.ids import ULID_PATTERN
from memoree.retrieval.expression import EntityType

SCHEME = "memoree:"
_SLASH = r"\\?/"
"""Some JSON encoders escape it."""
_END = "(?![0-9A-Za-z])"
_CITATION = re.compile(
    rf"{SCHEME}{_SLASH}{_SLASH}(?:"
    rf"artifact{_SLASH}(art_{ULID_PATTERN})@(arev_{ULID_PATTERN}){_END}(?:#([0-9]{{1,18}})-([0-9]{{1,18}}){_END})?"
    rf"|claim{_SLASH}(clm_{ULID_PATTERN})@(crev_{ULID_PATTERN}){_END})"
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


def cited_in(text: str) -> list[Cited]:
    """The different citations of a text in order of appearance, at most `DERIVATION_CANDIDATES_MAX`. Empty and reversed
    spans cite nothing."""
    found: dict[Cited, None] = {}
    for match in _CITATION.finditer(text):
        artifact_id, artifact_revision, start, end, claim_id, claim_revision = match.groups()
        if claim_id is not None:
            found[Cited("claim", claim_id, claim_revision, None)] = None
        elif start is None:
            found[Cited("artifact", artifact_id, artifact_revision, None)] = None
        elif int(start) < int(end):
            found[Cited("artifact", artifact_id, artifact_revision, Span(int(start), int(end)))] = None
        if len(found) == limits.DERIVATION_CANDIDATES_MAX:
            break
    return list(found)


Item = TypeVar("Item")


def originals_first(
    ranked: Sequence[Item], *, match: Callable[[Item], tuple[int, ...]], is_derived: Callable[[Item], bool]
) -> list[Item]:
    """The items in the order given, but each one that is derived behind every original that matches as well or better.

    `match` says how much of the query an item matches; greater is better. A copy may stand before its source where it
    matches more, never for being newer, shorter, or stored a hundred times.
    """
    last: dict[tuple[int, ...], int] = {}
    for position, item in enumerate(ranked):
        if not is_derived(item):
            last[match(item)] = position

    def place(position: int) -> tuple[int, bool, int]:
        item = ranked[position]
        if not is_derived(item):
            return position, False, position
        own = match(item)
        behind = [at for matched, at in last.items() if matched >= own]
        return max([position, *behind]), True, position

    return [ranked[position] for position in sorted(range(len(ranked)), key=place)]

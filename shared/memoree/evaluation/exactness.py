"""Whether answers show what they cite: every citation is followed, and the bytes are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memoree import limits
from memoree.citation import CLAIM_PREFIX, ArtifactCitation, Span, parse
from memoree.errors import MemoreeError
from memoree.evaluation.asking import Asker

BLOCKQUOTE_MARK = re.compile("(\\A|\\r\\n|[\\n\\v\\f\\r\\x1c-\\x1e\\x85\\u2028\\u2029])> ")
"""At the start of a line, whatever ends lines."""


@dataclass(frozen=True, slots=True)
class Quote:
    """A citation in an answer, and what stood beside it: `None` for a mere pointer. Unless `whole`, only the beginning
    of what is cited has to be shown. `within` is the citation that this one is a part of."""

    citation: str
    shown: str | None = None
    whole: bool = True
    within: str | None = None


def quotes(value: Any) -> Iterator[Quote]:
    """Every citation anywhere in a result."""
    if isinstance(value, list):
        for item in value:
            yield from quotes(item)
    elif isinstance(value, Mapping):
        yield from _own_quotes(value)
        for member in value.values():
            yield from quotes(member)


def _own_quotes(item: Mapping[str, Any]) -> Iterator[Quote]:
    """The citations of one object. An `excerpt_citation` names exactly the bytes of a cut excerpt."""
    if "excerpt_citation" in item:
        yield Quote(item["citation"])
        yield Quote(item["excerpt_citation"], item["excerpt"], within=item["citation"])
    elif "citation" in item:
        text = next((item[name] for name in ("statement", "content", "excerpt") if name in item), None)
        cut = any(item.get(name) for name in ("statement_truncated", "truncated", "excerpt_truncated"))
        yield Quote(item["citation"], text, whole=not cut)


def followed(op: str, result: Mapping[str, Any], citations: Citations) -> Iterator[tuple[str, bool]]:
    """Every citation in a result, and whether it is exact."""
    for quote in quotes(result):
        yield quote.citation, citations.is_exact(quote)
    if op == "context.build":
        unquoted = BLOCKQUOTE_MARK.sub(r"\1", result["rendered_markdown"])
        for item in result["manifest"]:
            yield item["citation"], citations.is_rendered(item, unquoted)


class Citations:
    """What citations name. Revisions are immutable, so each is fetched once."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._texts: dict[str, tuple[bytes, ...]] = {}

    def is_exact(self, quote: Quote) -> bool:
        """Whether the citation leads somewhere, and shows there what the answer showed."""
        if quote.within is not None and not _is_part(quote.citation, quote.within):
            return False
        texts = self.texts(quote.citation)
        if quote.shown is None:
            return bool(texts)
        shown = quote.shown.encode()
        return any(text == shown if quote.whole else text.startswith(shown) for text in texts)

    def is_rendered(self, item: Mapping[str, Any], unquoted: str) -> bool:
        """Whether the bytes that a manifest item says are included stand in the rendering, given without marks."""
        return any(
            len(text) == item["source_excerpt_bytes"]
            and text[: item["included_bytes"]].decode(errors="replace") in unquoted
            for text in self.texts(item["citation"])
        )

    def texts(self, citation: str) -> tuple[bytes, ...]:
        """What a citation may be shown as: its span; the statement of a claim; title or body of a whole revision.
        Empty for one that leads nowhere."""
        if citation not in self._texts:
            try:
                self._texts[citation] = tuple(self._fetched(citation))
            except (MemoreeError, ValueError):
                self._texts[citation] = ()
        return self._texts[citation]

    def _fetched(self, citation: str) -> Iterator[bytes]:
        """Raises `ValueError` or a `MemoreeError` for what is no citation or leads nowhere."""
        if citation.startswith(CLAIM_PREFIX):
            claim_id, _, revision_id = citation.removeprefix(CLAIM_PREFIX).partition("@")
            claim = self._asker.result("claim.get", {"claim_id": claim_id, "revision_id": revision_id})
            yield claim["statement"].encode()
            return
        found = parse(citation)
        if found.span is not None:
            yield self._span(found, found.span)
            return
        where = {"artifact_id": found.artifact_id, "revision_id": found.revision_id}
        artifact = self._asker.result("artifact.get", where)
        yield artifact["title"].encode()
        if artifact["content"]["type"] == "text":
            yield artifact["content"]["data"].encode()

    def _span(self, citation: ArtifactCitation, span: Span) -> bytes:
        """The cited bytes, in as many pieces as it takes."""
        pieces: list[bytes] = []
        start = span.start
        while True:
            rest = citation._replace(span=Span(start, span.end))
            got = self._asker.result(
                "citation.get", {"citation": str(rest), "max_bytes": limits.CITATION_FETCH_BYTES_MAX}
            )
            pieces.append(got["content"].encode())
            start += got["byte_count"]
            if not got["truncated"]:
                return b"".join(pieces)


def _is_part(citation: str, of: str) -> bool:
    """Whether a citation names bytes of the span that another one names."""
    try:
        part, whole = parse(citation), parse(of)
    except ValueError:
        return False
    if part.span is None or whole.span is None:
        return False
    inside = whole.span.start <= part.span.start and part.span.end <= whole.span.end
    return inside and part._replace(span=whole.span) == whole

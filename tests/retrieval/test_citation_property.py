"""Every citation that any retrieval operation gives is accepted, and names exactly the bytes shown beside it: over
random documents of many scripts, random claims about random spans of them, and questions in their words."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from memoree.citation import ArtifactCitation, Span, parse
from memoree.operations.content import ArtifactContent
from memoree.operations.registry import catalogue
from memoree.retrieval.words import is_word_character

from .store import Json, Store

QUESTIONS_OF: dict[str, list[Json]] = {
    "search": [{"limit": 20}, {"limit": 20, "include_historical": True}],
    "memory.recall": [
        {"max_claims": 10, "max_artifact_refs": 20, "max_candidate_claims": 5, "max_candidate_artifact_refs": 5},
        {"max_excerpt_bytes": 1},
        {"max_excerpt_bytes": 37, "max_candidate_artifact_refs": 5},
    ],
    "memory.probe": [{}],
    "memory.retrieve": [{}, {"max_recovery_bytes": 11}],
    "context.build": [{}, {"max_bytes": 700}],
}
"""Every operation that gives citations, with inputs that make it show much and cut much."""

WORDS = [
    "kiln", "Fired", "charging", "v1.2.3", "APP-BOUNDARY-101", "kiln_limit_09", "38.101", "İstanbul", "Straße", "ﬁne",
    "设备清单", "中文优先", "しりとり", "サンドボックス", "끝말잇기", "สวัสดีครับ", "น้ำ", "مرحبا", "سِجِلّ", "журнал", "ёлка",
    "हिन्दी", "cafe\u0301", "café", "a\u0323\u0302\u0301", "👩‍🔬", "🇨🇿", "👍🏽", "𝒜𝓁", "Ａ１", "\u202eabc", "\ufeffx",
    "e" + "\u0301" * 40,
]  # fmt: skip
MEDIA_TYPES = [
    "text/plain",
    "text/markdown",
    "application/json",
    "application/xml",
    "image/svg+xml",
    "application/x-yaml",
]
SEPARATORS = [
    *(" ", "  ", "\n", "\r\n", "\r\n\r\n", "\n\n", "\t", ". ", "、", "\n```\n", "\n~~~\r\n", "\n# ", "> ", "\u2028"),
    *("- ", "\n" * 9, '"', "@", "#1-2 ", " \u00a0"),
]
PADDING = ["", "", " filler words" * 60, "填充文字" * 400, "é" * 2100, "👍" * 1500, "\r\nshort line" * 200]
CITATION = re.compile(r"memoree://[a-z]+/[\w]+@[\w]+(?:#\d+-\d+)?")

words = st.sampled_from(WORDS) | st.text(min_size=1, max_size=8)
bodies = st.lists(st.tuples(words, st.sampled_from(SEPARATORS)), min_size=1, max_size=12).map(
    lambda pieces: "".join(word + separator for word, separator in pieces)
)


@dataclass(frozen=True)
class Place:
    """A citation and the object of an answer that it stands in."""

    citation: str
    holder: Json


def places(value: Any) -> Iterator[Place]:
    if isinstance(value, dict):
        if "citation" in value:
            yield Place(value["citation"], value)
        for member in value.values():
            yield from places(member)
    elif isinstance(value, list):
        for item in value:
            yield from places(item)


class Reader:
    """What a client does with a citation."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def text_at(self, citation: str) -> str:
        """The cited text: of a span its bytes, of a whole revision all of them. Of a claim it is the statement."""
        if citation.startswith("memoree://claim/"):
            claim_id, revision_id = citation.removeprefix("memoree://claim/").split("@")
            wanted = {"claim_id": claim_id, "revision_id": revision_id}
            return str(self._store.read("claim.get", wanted)["statement"])
        cited = parse(citation)
        if cited.span is None:
            content = self._record(cited)["content"]
            return ArtifactContent(**content).decoded().decode()
        return "".join(self._pieces(cited, cited.span))

    def title_of(self, citation: str) -> str:
        return str(self._record(parse(citation))["title"])

    def _record(self, cited: ArtifactCitation) -> Json:
        return self._store.read("artifact.get", {"artifact_id": cited.artifact_id, "revision_id": cited.revision_id})

    def _pieces(self, cited: ArtifactCitation, span: Span) -> Iterator[str]:
        """By `citation.get`, which gives so many bytes at a time."""
        start = span.start
        while start < span.end:
            asked = str(cited._replace(span=Span(start, span.end)))
            found = self._store.read("citation.get", {"citation": asked})
            assert found["truncated"] or found["citation"] == asked
            yield found["content"]
            start += found["byte_count"]
        assert start == span.end


def check(reader: Reader, place: Place) -> None:
    """The citation is accepted, and what is shown beside it is what it names, or the part that it says it is."""
    text, holder = reader.text_at(place.citation), place.holder
    shown = next((holder[name] for name in ("content", "statement", "excerpt") if name in holder), None)
    if shown is None:
        return
    if "excerpt_citation" in holder:
        assert reader.text_at(holder["excerpt_citation"]) == shown
    if shows_title(place):
        text = reader.title_of(place.citation)
    is_part = holder.get("excerpt_truncated", False) or holder.get("statement_truncated", False)
    assert shown in text if is_part else shown == text


def shows_title(place: Place) -> bool:
    """A hit without a span shows its title; evidence, which has a media type, shows the bytes of the revision."""
    is_artifact = place.citation.startswith("memoree://artifact/")
    return is_artifact and "#" not in place.citation and "media_type" not in place.holder


@st.composite
def spans(draw: st.DrawFn, body: str) -> tuple[int, int] | None:
    """Bytes of a body, between characters; or all of it."""
    if draw(st.integers(0, 4)) == 0:
        return None
    first, second = draw(st.tuples(st.integers(0, len(body)), st.integers(0, len(body))).filter(lambda p: p[0] != p[1]))
    start, end = (len(body[:at].encode()) for at in sorted((first, second)))
    return start, end


def fill(store: Store, data: st.DataObject) -> list[str]:
    """Documents and claims about them; gives the words that they are made of."""
    used: list[str] = []
    for number in range(data.draw(st.integers(1, 3))):
        above, below = data.draw(bodies), data.draw(bodies)
        body = above + data.draw(st.sampled_from(PADDING)) + below
        title = data.draw(words.filter(str.strip)) + f" {number}"
        artifact = store.artifact(title, body, media_type=data.draw(st.sampled_from(MEDIA_TYPES)))
        used += f"{above} {below} {title}".split()
        for _ in range(data.draw(st.integers(0, 3))):
            evidence = [
                {"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}
                | ({} if span is None else {"start_byte": span[0], "end_byte": span[1]})
                for span in data.draw(st.lists(spans(body), max_size=4))
            ]
            statement = " ".join(data.draw(st.lists(words, min_size=1, max_size=6))) + f" claim {number}"
            store.claim(statement, evidence=evidence)
            used += statement.split()
    return used


def questions(used: list[str]) -> st.SearchStrategy[str]:
    """Some words of the store, perhaps with one that it lacks; those of punctuation alone ask for nothing."""
    asked = st.lists(st.sampled_from(used) | st.just("windmill"), min_size=1, max_size=5).map(" ".join)
    return asked.filter(lambda text: any(map(is_word_character, text)))


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_every_citation_gives_back_the_bytes_that_are_shown(data: st.DataObject) -> None:
    _walk(data)


@pytest.mark.nightly
@given(st.data())
@settings(max_examples=2000, deadline=None)
@pytest.mark.timeout(900)
def test_every_citation_of_many_stores_gives_back_the_bytes_that_are_shown(data: st.DataObject) -> None:
    _walk(data)


def test_every_operation_that_gives_citations_is_walked() -> None:
    retrieval = {name for name in catalogue() if name in ("search", "context.build") or name.startswith("memory.")}
    assert set(QUESTIONS_OF) == retrieval


def _walk(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory) / "store")
        try:
            used = fill(store, data)
            reader = Reader(store)
            for query in data.draw(st.lists(questions(used), min_size=1, max_size=3)):
                _ask(store, reader, query)
        finally:
            store.close()


def _ask(store: Store, reader: Reader, query: str) -> None:
    for op, inputs in QUESTIONS_OF.items():
        for input in inputs:
            answer = store.read(op, {"query": query} | input)
            found = list(places(answer))
            for place in found:
                check(reader, place)
            for citation in CITATION.findall(answer.get("rendered_markdown", "")):
                reader.text_at(citation)
            event(f"{op} gives {'citations' if found else 'nothing'}")

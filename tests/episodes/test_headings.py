"""The headings under which a chunk stands (MemoryProtocol §5, `heading_path`)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from memoree.episodes.headings import HEADING_BYTES_MAX, HEADINGS_MAX, headings, path_at


def path(text: str, where: str = "") -> list[str]:
    """Of a chunk that starts with `where`."""
    data = text.encode()
    return path_at(headings(data), data.index(where.encode()))


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        ("plain\n\n# Later\n", "plain", []),
        ("# Guide\n\nfirst\n\n## Setup\n\nsecond\n", "second", ["Guide", "Setup"]),
        ("# A\n\n### C\n\ndeep\n\n## B\n\nhere\n", "here", ["A", "B"]),
        ("# A\n\n## B\n\n# Z\n\nhere\n", "here", ["Z"]),
        ("Guide\n=====\n\nSetup\n-----\n\nhere\n", "here", ["Guide", "Setup"]),
        ("two\nlines\n===\nhere\n", "here", ["two lines"]),
        ("# A\n\n```\n# no heading\n```\n\nhere\n", "here", ["A"]),
        ("# A\n\n~~~~ sh\n~~~\n# no heading\n~~~~\n\nhere\n", "here", ["A"]),
        ("# A\n\n    # code\n\nhere\n", "here", ["A"]),
        ("#hashtag\n\n####### seven\n\nhere\n", "here", []),
        ("## Closed ##\n\nhere\n", "here", ["Closed"]),
        ("## C# ##\r\n\r\nhere\r\n", "here", ["C#"]),
        ("- item\n---\nhere\n", "here", []),
        ("> quote\n---\nhere\n", "here", []),
        ("before\n\n---\n\nhere\n", "here", []),
        ("---\ntitle: x\n---\n# A\n\nhere\n", "here", ["A"]),
        ("# Überschrift 日記\n\nhere\n", "here", ["Überschrift 日記"]),
    ],
)
@pytest.mark.proves("memoryprotocol-29")
def test_the_path_has_the_headings_that_are_open(text: str, where: str, expected: list[str]) -> None:
    assert path(text, where) == expected


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        ("# Guide\n\n## Setup\n\nfirst\n\n## Use\n", "# Guide", ["Guide", "Setup"]),
        ("intro\n\n## Setup\n\nfirst\n", "intro", []),
        ("# Guide\n\nfirst\n\n## Use\n\nsecond\n", "## Use", ["Guide", "Use"]),
        ("Guide\n=====\nfirst\n", "Guide", ["Guide"]),
    ],
)
@pytest.mark.proves("memoryprotocol-29")
def test_the_headings_that_a_chunk_begins_with_are_open_at_its_start(
    text: str, where: str, expected: list[str]
) -> None:
    assert path(text, where) == expected


def by_commonmark(text: str) -> list[tuple[int, str]]:
    tokens = MarkdownIt("commonmark", {"html": False}).disable(["reference", "html_block"]).parse(text)
    return [
        (int(token.tag[1:]), " ".join(line.strip() for line in tokens[number + 1].content.splitlines()))
        for number, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0
    ]


LINES = st.sampled_from(
    ["", "word", "other words", "# One", "## Two ##", "   ### Three", "#", "#no", "####### no", "===", "---", "  --",
     "=", "```", "``", "````", "~~~", "~~~ sh", "``` a`b", "    code", "> quote", "***", "- - -", "-x"]
)  # fmt: skip


@given(st.lists(LINES, max_size=10), st.sampled_from(["\n", "\r\n"]))
@example(["word", "```", "word", "---", "```", "==="], "\n")
def test_headings_are_those_of_commonmark(lines: list[str], line_end: str) -> None:
    text = line_end.join(["word", "", *lines, ""])  # no YAML before it
    found = headings(text.encode())
    assert [(heading.level, heading.title) for heading in found] == by_commonmark(text)
    for heading in found:
        assert heading.before <= heading.start < heading.end


def test_millions_of_blank_and_marked_lines_are_read_in_passing() -> None:
    long = 2_000_000
    for text in (b"\n" * long, b"#" * long, b"# " + b" #" * long, b"a\n" * long + b"---\n", b"- \n---\n" * (long // 6)):
        assert len(headings(text)) <= 1
    for text in (b"=\n" * long, b"#\n" * long):
        assert len(headings(text)) == HEADINGS_MAX
    for unending in (b"- item\n", b"> quote\n", b"a" * HEADING_BYTES_MAX + b"\n"):
        assert headings(unending + b"=\n" * long) == []


def test_each_of_many_headings_is_found_by_its_place() -> None:
    text = b"# one\n\n" + b"## two\n\nthree\n\n" * HEADINGS_MAX
    found = headings(text)
    last = found[-1].end
    assert {tuple(path_at(found, last - number % 2)) for number in range(100_000)} == {("one", "two")}


def test_a_long_heading_is_cut_at_a_character() -> None:
    (heading,) = headings(b"# x" + "é".encode() * HEADING_BYTES_MAX)
    assert heading.title == "x" + "é" * ((HEADING_BYTES_MAX - 1) // 2)

from __future__ import annotations

import pytest

from memoree.connectors.media_types import as_title, media_type_of, title_of
from memoree.connectors.names import Wanted, external_id_of
from memoree.errors import Code, MemoreeError
from memoree.limits import TITLE_BYTES_MAX

MARKDOWN = "text/markdown; charset=utf-8"


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.md", ["a.md", "x/y/A.MD"], ["a.mdx", "a.md/b.txt"]),
        ("docs/*.md", ["docs/a.md"], ["a.md", "docs/x/a.md", "x/docs/a.md"]),
        ("docs/**", ["docs/a", "docs/x/y"], ["docs", "x/docs/a"]),
        ("**/notes/*", ["notes/a", "x/y/notes/a"], ["notes", "x/notes/a/b"]),
        ("?.md", ["a.md", "x/b.md"], ["ab.md"]),
        ("[ab].md", ["a.md"], ["c.md", "ab.md"]),
        ("[!ab].md", ["c.md"], ["a.md"]),
        ("[a&&b].md", ["&.md", "a.md"], ["c.md"]),
        ("a[b.md", ["a[b.md"], ["ab.md"]),
        ("(x|y).md", ["(x|y).md"], ["x.md"]),
        ("cafe\u0301.md", ["caf\u00e9.md"], ["cafe.md"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], others: list[str]) -> None:
    wanted = Wanted(include=[pattern])

    assert [name for name in matching + others if name in wanted] == matching


@pytest.mark.proves("fault-35")
@pytest.mark.parametrize("pattern", ["[z-a].md", "docs/[9-0]"])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    for given in ({"include": [pattern]}, {"exclude": ["*.txt", pattern]}):
        with pytest.raises(MemoreeError) as refused:
            Wanted(**given)

        assert refused.value.code is Code.INVALID_REQUEST
        assert pattern in refused.value.message


def test_hidden_parts_are_wanted_by_no_pattern() -> None:
    wanted = Wanted(include=["**", "*"])

    assert "a/b" in wanted
    assert "a/.b" not in wanted
    assert ".a/b" not in wanted


def test_ids_of_undecodable_names_never_meet_those_of_others() -> None:
    assert external_id_of("100%") == "100%"
    assert external_id_of("100%\udcff") == "100%25%FF"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Kiln\n", "Kiln"),
        ("\ufeff\r\n\n#  Kiln manual ##\r\ntext", "Kiln manual"),
        ("# C# ", "C#"),
        ("# #\n", "#"),
        ("#hashtag", "x.md"),
        ("text\n# Later", "x.md"),
        ("#  \n", "x.md"),
        ("# \x1b[31mred\n", "[31mred"),
    ],
)
def test_a_title_is_the_heading_a_text_begins_with(text: str, title: str) -> None:
    assert title_of("x.md", MARKDOWN, text.encode()) == title


def test_a_title_is_cut_between_characters() -> None:
    title = as_title("é" * TITLE_BYTES_MAX + "x")

    assert title == "é" * (TITLE_BYTES_MAX // 2)


@pytest.mark.parametrize(
    ("name", "content", "media_type"),
    [
        ("a.md", b"x", MARKDOWN),
        ("a.unknown", b"x", "text/plain; charset=utf-8"),
        ("a.unknown", b"\0", "application/octet-stream"),
        ("a.md", b"\0", MARKDOWN),
        ("a.png", b"x", "image/png"),
        ("README", b"x", "text/plain; charset=utf-8"),
    ],
)
def test_media_types(name: str, content: bytes, media_type: str) -> None:
    assert media_type_of(name, content) == media_type

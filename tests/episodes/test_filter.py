"""The filter language: what is one and what is none (MemoryProtocol §7)."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memoree.episodes.filter import Filter, parse_filter
from memoree.errors import Code, MemoreeError
from memoree.retrieval.episode_filter import first_after


def equals(field: str, value: str) -> Filter:
    return Filter(field=field, comparison="equals", value=value)


def begins_with(field: str, value: str) -> Filter:
    return Filter(field=field, comparison="begins_with", value=value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("source = 'notes.md'", equals("source", "notes.md")),
        ("source LIKE 'helios:fs/%'", begins_with("source", "helios:fs/")),
        ("source LIKE '%'", begins_with("source", "")),
        ("source = ''", equals("source", "")),
        ("  source  =  'a b'\n", equals("source", "a b")),
        ("source = '50 %'", equals("source", "50 %")),
        ("source = ' padded '", equals("source", " padded ")),
        ("source = 'a \"quoted\" word'", equals("source", 'a "quoted" word')),
        ("source = 'kjøkken/日記'", equals("source", "kjøkken/日記")),
        ("metadata.two words = 'x'", equals("metadata.two words", "x")),
        ("source = 'we LIKE this'", equals("source", "we LIKE this")),
        ("source LIKE 'a = b%'", begins_with("source", "a = b")),
        ("no such field = 'x'", equals("no such field", "x")),
    ],
)
@pytest.mark.proves("memoryprotocol-58")
def test_a_filter_is_read_field_first(text: str, expected: Filter) -> None:
    assert parse_filter(text) == expected


NO_FILTERS = [
    "",
    " ",
    "source",
    "source='a'",
    "source like 'a%'",
    "source != 'a'",
    "source = a",
    "source = 'a",
    "source = ",
    "source LIKE 'a'",
    "source LIKE 'a%b%'",
    "source LIKE '%%'",
    "source LIKE '%a'",
    " = 'a'",
    " LIKE 'a%'",
    "source = 'a' AND source = 'b'",
    "source = 'a' x",
    "source = 'it''s'",
    "source LIKE 'a%' OR x = 'b'",
    'source = "a"',
    "source =\t'a'",
]


@pytest.mark.parametrize("text", NO_FILTERS)
@pytest.mark.proves("memoryprotocol-56", "memoryprotocol-57")
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(MemoreeError) as refused:
        parse_filter(text)
    assert refused.value.code is Code.INVALID_REQUEST
    assert refused.value.message.startswith("filter: ")


REFERENCE = re.compile(
    r"(?P<field>(?:(?! = | LIKE ).)*)(?P<separator> = | LIKE )\s*'(?P<body>[^']*)'\s*", re.DOTALL | re.UNICODE
)
"""The grammar as one expression: a field holds no separator."""


def by_the_grammar(text: str) -> Filter | None:
    if (read := REFERENCE.fullmatch(text)) is None or not (field := read["field"].strip()):
        return None
    if read["separator"] == " = ":
        return equals(field, read["body"])
    prefix = read["body"][:-1]
    return begins_with(field, prefix) if read["body"] == f"{prefix}%" and "%" not in prefix else None


PIECES = st.sampled_from(
    [
        "source",
        "a",
        " ",
        "  ",
        "\n",
        "=",
        " = ",
        "LIKE",
        " LIKE ",
        "like",
        "'",
        "''",
        "'x'",
        "'x%'",
        "%",
        " AND ",
        "é",
        '"',
    ]
)


@given(st.lists(PIECES, max_size=9).map("".join) | st.text(max_size=20))
@example("x LIKE  = 'a'")
@example("a = = 'b'")
@pytest.mark.proves("memoryprotocol-56", "memoryprotocol-57")
def test_every_text_is_read_as_the_grammar_says(text: str) -> None:
    expected = by_the_grammar(text)
    try:
        assert parse_filter(text) == expected
    except MemoreeError:
        assert expected is None


@given(st.text(max_size=6), st.text(max_size=6))
@example("\U0010ffff", "\U0010ffff\U0010ffff")
@example("a\ud7ff", "a\ue000")
@example("", "")
def test_the_first_text_after_a_prefix_parts_what_begins_so_from_what_does_not(prefix: str, text: str) -> None:
    after = first_after(prefix)
    inside = prefix.encode() <= text.encode() and (after is None or text.encode() < after.encode())
    assert inside is text.startswith(prefix)


def test_a_long_prefix_that_nothing_stands_behind_is_read_in_passing() -> None:
    assert first_after("\U0010ffff" * 500_000) is None
    assert first_after("a" + "\U0010ffff" * 500_000) == "b"

"""Front matter as people write it, and what this service makes of it."""

from __future__ import annotations

import string
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.okf import frontmatter, terms, yaml_fields
from memoree.okf.dialect import Dialect
from memoree.okf.node import Node, parse
from memoree.okf.validate import check

from .bundle_support import hits, node, walked, write

PARSE_SECONDS_MAX = 2.0

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,12}", fullmatch=True).filter(
    lambda name: name not in ("relations", "metadata")
)
plain_values = st.text(alphabet=string.ascii_letters + string.digits + " ./,", max_size=30).map(str.strip)


def service(text: str | bytes, node_id: str = "concepts/x") -> Node:
    return parse(node_id, text if isinstance(text, bytes) else text.encode(), Dialect.SERVICE)


def compat(text: str, node_id: str = "concepts/x") -> Node:
    return parse(node_id, text.encode(), Dialect.COMPAT)


@pytest.mark.proves("okf-6")
def test_a_comment_is_no_part_of_a_value_but_for_the_reference_program() -> None:
    text = node(status="draft # x")
    assert service(text).text("status") == "draft"
    assert compat(text).text("status") == "draft # x"


@pytest.mark.proves("okf-7")
@pytest.mark.parametrize("dialect", Dialect)
def test_children_indented_by_three_spaces_do_not_swallow_the_next_key(dialect: Dialect) -> None:
    text = "---\ntype: Concept\nrelations:\n   about: /a.md\ntitle: After\n---\n"
    parsed = parse("x", text.encode(), dialect)
    assert parsed.text("title") == "After"
    if dialect is Dialect.COMPAT:
        assert parsed.relations == []


@pytest.mark.proves("okf-8")
@pytest.mark.parametrize("dialect", Dialect)
def test_a_key_named_proto_is_an_unknown_kind_and_nothing_more(dialect: Dialect) -> None:
    text = "---\ntype: Concept\nrelations:\n  __proto__: /x.md\n  constructor: /x.md\ntitle: T\n---\n"
    parsed = parse("concepts/y", text.encode(), dialect)
    assert parsed.relations == [("__proto__", "/x.md"), ("constructor", "/x.md")]
    assert parsed.text("title") == "T"
    report = check([parsed, parse("x", node().encode(), dialect)], dialect)
    assert [(finding.rule, finding.text) for finding in report.findings] == [
        ("V5", "concepts/y [__proto__] — unknown relation kind"),
        ("V5", "concepts/y [constructor] — unknown relation kind"),
    ]


@pytest.mark.proves("okf-9")
@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("written", [None, ""])
def test_a_node_that_tells_no_visibility_is_internal(dialect: Dialect, written: str | None) -> None:
    text = node() if written is None else node(visibility=written)
    assert parse("x", text.encode(), dialect).visibility == "internal"
    assert not parse("x", text.encode(), dialect).is_secret


@pytest.mark.proves("okf-10")
def test_the_description_then_the_name_stand_for_a_missing_title() -> None:
    assert service(node(title="T", description="D", name="N")).title == "T"
    assert service(node(description="D", name="N")).title == "D"
    assert service(node(name="N")).title == "N"


@pytest.mark.proves("okf-13")
def test_a_single_word_as_tags_is_searched_and_harms_nobody(tmp_path: Path) -> None:
    root = write(tmp_path, {"a.md": node("Alpha.", tags="quokka"), "b.md": node("Beta.", tags="[one, two]")})
    assert hits(root, "quokka") == ["a"]
    assert hits(root, "beta") == hits(root, "two") == ["b"]
    assert terms.document(walked(root)["a"]).splitlines() == ["quokka", "Alpha."]


def test_block_lists_and_quotes_are_read_by_the_service_and_lost_by_the_reference_program() -> None:
    text = "---\ntype: Concept\ntags:\n  - a\n  - 'b: c'\ntitle: 'it''s'\n---\n"
    assert service(text).tags == ["a", "b: c"]
    assert service(text).text("title") == "it's"
    assert compat(text).tags == []


@pytest.mark.fault_class(61)
@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf---\r\ntype: Concept\r\ntitle: T\r\n---\r\nBody\r\n",
        b"---\rtype: Concept\rtitle: T\r---\rBody\r",
        b"---\ntype: Concept\ntitle: T\n---\nBody \xff\xfe\n",
    ],
    ids=["mark and CRLF", "CR", "no UTF-8"],
)
def test_odd_line_ends_marks_and_bytes_do_not_hide_the_fields(data: bytes) -> None:
    parsed = service(data)
    assert (parsed.native_type, parsed.text("title"), parsed.problem) == ("Concept", "T", None)
    assert parsed.body.startswith("Body")


@pytest.mark.parametrize(
    "front",
    [
        "type: &a [x]\nother: *a",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\ntype: Concept",
        "type: Concept\nx: {a: {b: {c: d}}}",
        "type: !!python/object/apply:os.system [ls]\nx: {y: {z: 1}}",
        "? [complex, key]\n: value",
        "type: Concept\n" + "\n".join(f"k{at}: v" for at in range(yaml_fields.FIELDS_MAX + 1)) + "\n\tx",
        "x: [" * 2000 + "]" * 2000,
    ],
    ids=["anchors", "bomb", "deep", "tags", "complex keys", "many fields", "nested lists"],
)
def test_what_yaml_can_do_beyond_plain_fields_hides_a_node_or_is_read_as_text(front: str) -> None:
    started = time.monotonic()
    parsed = service(f"---\n{front}\n---\nBody\n")
    assert time.monotonic() - started < PARSE_SECONDS_MAX
    flat = [value for value in parsed.fields.values() if isinstance(value, str | list)]
    assert len(flat) + sum(isinstance(value, dict) for value in parsed.fields.values()) == len(parsed.fields)
    assert all(isinstance(item, str) for value in flat if isinstance(value, list) for item in value)
    assert sum(map(len, map(str, flat))) <= len(front), "nothing grows"


@pytest.mark.parametrize("data", [b"", b"---", b"---\n", b"---\n---", b"\x00" * 100, b"---\ntype: [\n---\n"])
def test_every_file_is_a_node_of_some_sort(data: bytes) -> None:
    for dialect in Dialect:
        parsed = parse("x", data, dialect)
        assert parsed.type in ("", "[")
        assert check([parsed], dialect).is_conformant == (parsed.type == "[" and not parsed.is_secret)


def test_a_line_of_a_mebibyte_is_read_in_no_time() -> None:
    started = time.monotonic()
    for text in ("---\ntitle: " + "x" * 1024 * 1024 + "\n---\n", node("w " * 512 * 1024), "`" * 1024 * 1024):
        parsed = service(text)
        terms.tokens(terms.document(parsed))
    assert time.monotonic() - started < PARSE_SECONDS_MAX * 2


@given(st.dictionaries(names, plain_values, max_size=6))
def test_plain_fields_read_the_same_in_both_dialects(fields: dict[str, str]) -> None:
    written = "".join(f"{name}: {value}\n" for name, value in fields.items())
    text = f"---\n{written}---\nBody\n"
    expected = {name: value for name, value in fields.items() if not _is_odd(value)}
    for dialect in Dialect:
        read = frontmatter.read(text, dialect)
        if read.fields is None:  # the reference program sees no block without a line in it
            assert not fields
            continue
        assert {name: read.fields[name] for name in expected} == expected
        assert read.body == "Body\n"


def _is_odd(value: str) -> bool:
    """Whether YAML reads more than text in it: a comma alone begins nothing."""
    return value.startswith(",")


@given(st.dictionaries(names, st.lists(st.text(alphabet=string.ascii_letters, min_size=1, max_size=8), min_size=1)))
def test_inline_lists_read_the_same_in_both_dialects(fields: dict[str, list[str]]) -> None:
    front = "\n".join(f"{name}: [{', '.join(value)}]" for name, value in fields.items())
    assert frontmatter.parse_lines(front) == yaml_fields.parse_yaml(front) == fields


@given(st.binary(max_size=400), st.sampled_from(["x", "concepts/x", "secret/x"]))
def test_no_bytes_at_all_break_the_reader(data: bytes, node_id: str) -> None:
    for dialect in Dialect:
        parsed = parse(node_id, b"---\n" + data, dialect)
        terms.tokens(terms.document(parsed))
        check([parsed], dialect).render()


@given(st.text(max_size=200))
def test_tokens_are_lower_case_words_of_letters_digits_and_hyphens(text: str) -> None:
    for token in terms.tokens(text):
        assert terms.units(token) >= 1
        assert token == token.lower()
        assert all(character == "-" or character.isalnum() or character.isnumeric() for character in token), token


@given(st.text(alphabet=string.ascii_lowercase + " -", max_size=60), st.text(alphabet=string.ascii_lowercase + " -"))
def test_texts_beside_each_other_have_the_tokens_of_both(one: str, other: str) -> None:
    assert terms.tokens(f"{one}\n{other}") == terms.tokens(one) + terms.tokens(other)

"""Single fields of a file are changed, and nothing else in it is."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.errors import MemoreeError
from memoree.okf import dates, discipline, editing, frontmatter
from memoree.okf.dialect import Dialect
from memoree.okf.discipline import Draft
from memoree.okf.node import parse

AT_MS = 1_780_272_000_000
"""2026-06-01T00:00:00Z"""
IDEA = b"""---
type: Idea
title: Night bakes
status: spark
---

# Night bakes

## Essence

Bake when power is cheap.

## Reflections

- 2026-05-01 (cursor): ask the neighbours first

## Sources

- a bill
"""

BODIES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=200)
WORDS = st.from_regex(r"[A-Za-z][A-Za-z ]{0,15}[A-Za-z]", fullmatch=True)
NAMES = st.sampled_from(
    (
        "title",
        "tags_of",
        "status",
        "deprecated",
        "deprecated_on",
        "superseded_by",
        "blocked_reason",
        "supersedes",
        "x-1",
    )
)
ONE_LINE = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Cn", "Zl", "Zp"], exclude_characters="\ufeff"), max_size=60
).map(str.strip)
ENDINGS = st.sampled_from(("\n", "\r\n"))
MARKS = st.sampled_from((b"", b"\xef\xbb\xbf"))


@st.composite
def files_of_nodes(draw: st.DrawFn) -> bytes:
    """Files as people write them: blocks, lists, comments, blank lines, either line ending, with and without a mark."""
    lines = ["---", "type: Task"]
    for name, word in draw(st.dictionaries(NAMES, WORDS, max_size=6)).items():
        lines += draw(
            st.sampled_from(
                (
                    [f"{name}: {word}"],
                    [f"{name}: '{word}'  # {word}"],
                    [f"{name}: [{word}, {word}x]"],
                    [f"{name}:", f"  - {word}", f"  - {word}y"],
                    [f"{name}:", f"- {word}", ""],
                    [f"{name}: |", f"  {word}", f"  {word}z", ""],
                    [f"# {word}", "", f"{name}: {word}"],
                )
            )
        )
    lines += draw(st.sampled_from(([], ["relations:", "  about: /a.md", "  next:", "    - /b.md"], ["# end", ""])))
    lines.append("---")
    ending = draw(ENDINGS)
    body = draw(BODIES).replace("\n", ending)
    return draw(MARKS) + ending.join((*lines, body)).encode()


def refused(data: bytes, **changes: str | list[str]) -> str:
    with pytest.raises(MemoreeError) as error:
        editing.with_fields(data, changes)
    assert error.value.code == "INVALID_REQUEST"
    return error.value.message


def added_and_removed(before: bytes, after: bytes) -> tuple[list[bytes], list[bytes]]:
    ours, theirs = before.splitlines(keepends=True), after.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(a=ours, b=theirs, autojunk=False)
    changes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    removed = [line for _, start, stop, _, _ in changes for line in ours[start:stop]]
    added = [line for _, _, _, start, stop in changes for line in theirs[start:stop]]
    return added, removed


# --- fields -----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("okf-92")
def test_forgetting_appends_two_lines_and_forgetting_again_leaves_one_pair() -> None:
    once = editing.deprecated(IDEA, AT_MS)
    assert added_and_removed(IDEA, once) == (
        [b"deprecated: true\n", b"deprecated_on: 2026-06-01T00:00:00.000Z\n"],
        [],
    )
    twice = editing.deprecated(once, AT_MS + dates.DAY_MS)
    assert added_and_removed(once, twice) == (
        [b"deprecated_on: 2026-06-02T00:00:00.000Z\n"],
        [b"deprecated_on: 2026-06-01T00:00:00.000Z\n"],
    )
    assert twice.count(b"deprecated: true") == twice.count(b"deprecated_on:") == 1
    assert parse("a", twice).is_deprecated


@pytest.mark.proves("okf-92")
@given(files_of_nodes())
def test_forgetting_changes_no_field_but_its_own_and_no_byte_of_the_body(data: bytes) -> None:
    before, after = parse("a", data), parse("a", editing.deprecated(data, AT_MS))
    assert after.fields == before.fields | {"deprecated": "true", "deprecated_on": "2026-06-01T00:00:00.000Z"}
    assert after.body == before.body
    assert after.is_deprecated


@given(files_of_nodes(), NAMES, st.one_of(ONE_LINE, st.lists(ONE_LINE.filter(bool), max_size=4)))
def test_a_field_is_set_and_the_rest_of_the_file_stays_byte_for_byte(
    data: bytes, name: str, value: str | list[str]
) -> None:
    changed = editing.with_fields(data, {name: value})
    before, after = parse("a", data), parse("a", changed)
    assert after.fields == before.fields | {name: value}
    assert after.body == before.body
    kept = [line for line in data.splitlines(keepends=True) if not line.startswith(name.encode() + b":")]
    span_lines = {line for line in kept if line.startswith((b" ", b"- "))}
    missing = [line for line in kept if line not in changed.splitlines(keepends=True) and line not in span_lines]
    assert missing == []


@given(files_of_nodes(), NAMES, ONE_LINE)
def test_setting_a_field_twice_is_setting_it_once(data: bytes, name: str, value: str) -> None:
    once = editing.with_fields(data, {name: value})
    assert editing.with_fields(once, {name: value}) == once


@given(ONE_LINE)
def test_a_value_reads_back_whatever_it_says(value: str) -> None:
    data = editing.with_fields(b"---\ntype: Task\n---\n", {"blocked_reason": value})
    assert parse("a", data).text("blocked_reason") == value


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("blocked", b"status: blocked\n"),
        ("waits: for parts", b'status: "waits: for parts"\n'),
        ('say "no": then go', b"status: 'say \"no\": then go'\n"),
        ("# none", b'status: "# none"\n'),
        ("[a]", b'status: "[a]"\n'),
        ("it's", b"status: it's\n"),
    ],
)
def test_quotes_stand_only_where_a_value_needs_them_and_both_readers_agree(value: str, line: bytes) -> None:
    changed = editing.with_fields(IDEA, {"status": value})
    assert added_and_removed(IDEA, changed) == ([line], [b"status: spark\n"])
    assert frontmatter.read(changed.decode(), Dialect.COMPAT).fields == parse("a", changed).fields


def test_line_endings_and_the_mark_at_the_beginning_are_kept() -> None:
    data = b"\xef\xbb\xbf---\r\ntype: Task\r\nstatus: backlog\r\n---\r\nbody\r\nmixed\n"
    assert editing.with_status(data, "blocked", "no flour") == (
        b"\xef\xbb\xbf---\r\ntype: Task\r\nstatus: blocked\r\nblocked_reason: no flour\r\n---\r\nbody\r\nmixed\n"
    )


def test_a_status_other_than_blocked_takes_the_old_reason_away() -> None:
    blocked = editing.with_status(b"---\ntype: Task\nstatus: backlog\n---\n", "blocked", "no flour")
    assert editing.with_status(blocked, "in-progress") == b"---\ntype: Task\nstatus: in-progress\n---\n"


@pytest.mark.proves("okf-93")
def test_a_merge_sets_one_line() -> None:
    merged = editing.superseded_by(IDEA, "concepts/day-bakes")
    assert added_and_removed(IDEA, merged) == ([b"superseded_by: /concepts/day-bakes.md\n"], [])
    assert editing.superseded_by(merged, "concepts/day-bakes") == merged


def test_of_a_field_that_is_written_twice_the_one_that_counts_is_changed() -> None:
    data = b"---\ntype: Task\nstatus: backlog\nstatus: done\n---\n"
    assert editing.with_status(data, "in-progress") == b"---\ntype: Task\nstatus: backlog\nstatus: in-progress\n---\n"


def test_a_relation_of_the_same_name_is_another_field() -> None:
    data = b"---\ntype: Plan\nrelations:\n  supersedes: /a.md\n---\n"
    assert editing.with_fields(data, {"supersedes": "/b.md"}) == (
        b"---\ntype: Plan\nrelations:\n  supersedes: /a.md\nsupersedes: /b.md\n---\n"
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"# no fields\n", "no front matter"),
        (b"", "no front matter"),
        (b"---\ntype: Task\n", "does not begin or end"),
        (b"---\ntype: [a\n: : :\n---\n", "cannot be read"),
        (b"---\n{type: Task, status: backlog}\n---\n", "by hand"),
        (b"---\n- a\n---\n", "cannot be"),
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_refused(data: bytes, why: str) -> None:
    assert why in refused(data, status="done")


@pytest.mark.parametrize("value", ["two\nlines", "a\rb", "nul\0", "\u2028", "x" * 5000])
def test_a_value_of_more_than_one_line_is_refused(value: str) -> None:
    assert refused(IDEA, status=value).startswith("status: must")


# --- reflections ------------------------------------------------------------------------------------------------------


@pytest.mark.proves("okf-97")
def test_a_reflection_is_one_dated_bullet_at_the_end_of_its_section_and_the_status_stays() -> None:
    merged = editing.with_reflection(IDEA, on="2026-06-01", by="claude-code", text="Adopt: the bill fell by a third.")
    bullet = b"- 2026-06-01 (claude-code): Adopt: the bill fell by a third.\n"
    assert added_and_removed(IDEA, merged) == ([bullet], [])
    assert merged.index(b"ask the neighbours") < merged.index(bullet) < merged.index(b"## Sources")
    assert parse("a", merged).fields == parse("a", IDEA).fields


@pytest.mark.proves("okf-97")
@given(files_of_nodes(), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200).filter(str.strip))
def test_a_reflection_adds_bytes_in_one_place_and_takes_none(data: bytes, text: str) -> None:
    merged = editing.with_reflection(data, on="2026-06-01", by="cursor", text=text)
    at = next((at for at, (one, other) in enumerate(zip(data, merged, strict=False)) if one != other), len(data))
    tail = len(data) - at
    assert merged[:at] + merged[len(merged) - tail :] == data
    assert parse("a", merged).fields == parse("a", data).fields
    assert b"- 2026-06-01 (cursor): " in merged[: len(merged) - tail]


def test_a_missing_section_is_made_at_the_end() -> None:
    data = b"---\r\ntype: Idea\r\n---\r\n# Night bakes"
    assert editing.with_reflection(data, on="2026-06-01", by="cursor", text="wait") == (
        b"---\r\ntype: Idea\r\n---\r\n# Night bakes\r\n\r\n## Reflections\r\n\r\n- 2026-06-01 (cursor): wait\r\n"
    )


def test_an_empty_section_gets_its_first_bullet() -> None:
    data = discipline.render(Draft("Idea", "Night bakes", AT_MS))
    merged = editing.with_reflection(data, on="2026-06-01", by="cursor", text="wait")
    assert merged == data.rstrip(b"\n") + b"\n\n- 2026-06-01 (cursor): wait\n"


def test_a_heading_in_a_code_block_is_no_section() -> None:
    data = b"---\ntype: Idea\n---\n```\n## Reflections\n```\n"
    merged = editing.with_reflection(data, on="2026-06-01", by="cursor", text="wait")
    assert merged == data + b"\n## Reflections\n\n- 2026-06-01 (cursor): wait\n"


def test_what_a_reflection_says_cannot_leave_its_bullet() -> None:
    merged = editing.with_reflection(IDEA, on="2026-06-01", by="cursor", text="wait\n## Sources\n---\n```\nopen")
    bullet = b"- 2026-06-01 (cursor): wait\n  ## Sources\n  ---\n  ```\n  open\n  ```\n"
    assert added_and_removed(IDEA, merged)[1] == []
    assert bullet in merged


@pytest.mark.parametrize("text", ["", " \n\t", "x" * 20_000])
def test_a_blank_or_endless_reflection_is_refused(text: str) -> None:
    with pytest.raises(MemoreeError, match="a reflection must"):
        editing.with_reflection(IDEA, on="2026-06-01", by="cursor", text=text)

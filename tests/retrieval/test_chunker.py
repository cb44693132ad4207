from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memoree.limits import CHUNK_BYTES_MAX
from memoree.retrieval.chunker import Span, chunks

LINES = st.sampled_from(
    [
        "",
        "# Überschrift",
        "```",
        "~~~",
        "word " * 40,
        "é" * 700,
        "今日は成語しりとりをした。" * 60,
        "👩🏽‍💻",
        "z" * 5000,
        " \t",
        "\r",
    ]
)
BODIES = st.one_of(st.text(), st.lists(st.one_of(LINES, st.text(max_size=80))).map("\n".join))


@pytest.mark.proves("retrieval-46", "machine-154")
@given(BODIES)
@example("z" * (CHUNK_BYTES_MAX + 100)).via("a tail too short to stand alone and a chunk too full to take it")
def test_chunks_partition_every_body_at_character_boundaries(body: str) -> None:
    data = body.encode()
    spans = list(chunks(data))
    assert b"".join(data[span.start : span.end] for span in spans) == data
    assert [span.start for span in spans] == [0, *(span.end for span in spans)][: len(spans)]
    for span in spans:
        assert 1 <= span.size <= CHUNK_BYTES_MAX
        data[span.start : span.end].decode()


@pytest.mark.proves("retrieval-46")
def test_an_oversized_block_is_cut_late_and_after_sentences() -> None:
    assert list(chunks(b"Sentence here. " * 1000)) == [(0, 4094), (4094, 8189), (8189, 12284), (12284, 15000)]


@pytest.mark.proves("retrieval-46")
def test_a_body_without_any_boundary_is_cut_at_the_maximum() -> None:
    assert list(chunks(b"z" * 10_000)) == [(0, 4096), (4096, 8192), (8192, 10_000)]


def test_a_heading_starts_a_chunk_once_the_last_is_full_enough() -> None:
    first = b"filler words here. " * 100 + b"\n"
    second = b"# Deep part\n" + b"more words here. " * 100
    assert list(chunks(first + second)) == [(0, len(first)), (len(first), len(first + second))]


def test_a_fenced_block_is_not_cut_at_its_blank_lines_or_comments() -> None:
    before = b"intro words. " * 100 + b"\n"
    fence = b"```python\n" + b"# a comment, no heading\n\n" * 60 + b"```\n"
    assert list(chunks(before + fence + b"after " * 300))[1] == Span(len(before), len(before + fence))


def test_a_short_tail_joins_the_chunk_before_it() -> None:
    data = b"a" * 3000 + b"\n\n" + b"short tail"
    assert list(chunks(data)) == [(0, len(data))]


def test_an_empty_body_has_no_chunk() -> None:
    assert list(chunks(b"")) == []

"""The grammar of citations (machine protocol §5.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree import citation
from memoree.citation import ArtifactCitation, Span

OFFSETS = st.integers(0, 2**64 - 1)
IDS = st.text(st.characters(codec="utf-8", exclude_characters="@#"), min_size=1, max_size=64)
CITATIONS = st.builds(ArtifactCitation, IDS, IDS, st.none() | st.builds(Span, OFFSETS, OFFSETS))


@given(CITATIONS)
def test_what_is_written_is_read_back(cited: ArtifactCitation) -> None:
    assert citation.parse(str(cited)) == cited


@given(st.text(st.sampled_from("memoree:/artifact@@##--0123456789é "), max_size=60))
def test_what_is_read_is_written_normally_and_read_alike(tail: str) -> None:
    try:
        cited = citation.parse(citation.ARTIFACT_PREFIX + tail)
    except ValueError:
        return
    assert citation.parse(str(cited)) == cited
    assert len(str(cited)) <= len(citation.ARTIFACT_PREFIX + tail)


def test_a_claim_is_cited_without_a_span() -> None:
    written = citation.claim_citation("clm_1", "crev_1")
    assert written == "memoree://claim/clm_1@crev_1"
    with pytest.raises(ValueError, match="memoree://artifact/"):
        citation.parse(written)


@pytest.mark.parametrize(
    ("text", "locator"), [("a@r", ("a", "r", None)), ("@", ("", "", None)), ("a@r@s#1-2", ("a", "r@s", (1, 2)))]
)
def test_a_locator_is_split_at_the_first_signs(text: str, locator: tuple[object, ...]) -> None:
    assert citation.parse_locator(text) == locator


@pytest.mark.parametrize("text", ["", "a", "a#1-2", "a@r#", "a@r#1", "a@r#1-2-3", "a@r#１-２", f"a@r#0-{2**64}"])
def test_what_is_no_locator_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"stands between|a span is"):
        citation.parse_locator(text)


def test_digits_without_end_are_refused_and_not_computed() -> None:
    zeros = "0" * 100_000
    assert citation.parse_span(f"{zeros}1-{zeros}2") == (1, 2)
    with pytest.raises(ValueError, match="a span is"):
        citation.parse_span(f"0-{'9' * 100_000}")

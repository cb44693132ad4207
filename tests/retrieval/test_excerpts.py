"""Excerpts: exact bytes of what is cited, around the words that matched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memoree.citation import ArtifactCitation, Span
from memoree.retrieval.excerpts import OCCURRENCES_MAX, cut, excerpt, window

CITED = ArtifactCitation("art_A", "arev_A", Span(1000, 1922))


def around(text: str, terms: list[str], bytes_max: int) -> str:
    start, end = window(text, terms, bytes_max)
    return text.encode()[start:end].decode()


def test_a_text_that_fits_is_shown_whole() -> None:
    assert around("é" * 10, ["x"], 20) == "é" * 10
    assert window("", ["x"], 1) == (0, 0)


def test_without_a_match_the_start_is_shown_and_no_character_is_cut() -> None:
    assert around("é" * 20, ["x"], 9) == "é" * 4
    assert around("🦀" * 3, [], 3) == ""


def test_the_window_starts_at_a_word_before_the_first_match() -> None:
    """The example of the contract (§9, 44)."""
    text = "filler " * 75 + "fil The quetzalcode threshold is forty two units. " + "more filler " * 40
    text = text[:922].ljust(922, ".")
    match = text.index("quetzalcode")
    assert match == 533
    start, end = window(text, ["quetzalcode", "threshold"], 120)
    assert (end - start, text[start - 1]) == (120, " ")
    assert match - 30 <= start <= match - 1
    assert "quetzalcode threshold" in text[start:end]


def test_the_place_with_the_most_different_terms_wins_and_the_first_of_equals() -> None:
    gap = " filler" * 40
    text = f"alpha alpha alpha{gap} alpha bravo one{gap} bravo alpha two"
    assert "one" in around(text, ["alpha", "bravo"], 60)
    assert around(text, ["alpha"], 60).startswith("alpha alpha alpha")
    assert "two" not in around(text, ["alpha", "bravo"], 60)


def test_terms_are_found_in_any_case_and_inside_of_longer_words() -> None:
    gap = "filler " * 60
    assert "WEBHOOKS" in around(f"{gap}WEBHOOKS {gap}", ["webhook"], 80)
    assert "ЖУРНАЛ" in around(f"{gap}ЖУРНАЛ {gap}", ["журнал"], 80)
    assert "設備" in around(f"{gap}この設備は{gap}", ["設備"], 80)


def test_where_lower_case_has_another_length_the_case_counts() -> None:
    gap = "filler " * 60
    assert "needle" in around(f"İ{gap}needle {gap}", ["needle"], 80)
    assert "NEEDLE" not in around(f"İ{gap}NEEDLE {gap}", ["needle"], 80)


def test_another_form_of_a_term_is_found_where_the_term_itself_is_not() -> None:
    gap = "filler " * 60
    assert "retry" in around(f"{gap}one retry {gap}", ["retries"], 80)
    assert "retries" in around(f"{gap}one retry {gap}retries {gap}", ["retries"], 80)


def test_an_excerpt_cites_exactly_what_it_shows() -> None:
    text = "x" * 600 + " needle " + "y" * 314
    assert len(text) == 922
    shown = excerpt(text, CITED, ["needle"], 120)
    cited = shown.citation
    assert cited is not None and shown.is_truncated and len(shown.text) == 120
    start, end = map(int, cited.partition("#")[2].split("-"))
    assert text[start - 1000 : end - 1000] == shown.text and "needle" in shown.text


def test_a_whole_excerpt_and_a_title_need_no_citation_of_their_own() -> None:
    assert excerpt("short", CITED, ["short"], 5) == ("short", False, None)
    assert excerpt("a long title", CITED._replace(span=None), ["title"], 6)[1:] == (True, None)
    assert excerpt("🦀🦀", CITED, ["x"], 3) == ("", True, None), "not one character fits"


def test_repetition_is_not_searched_without_end() -> None:
    text = "a " * OCCURRENCES_MAX + "filler " * 20 + "a b"
    assert "b" not in around(text, ["a", "b"], 30)


@given(st.text(), st.lists(st.text(min_size=1, max_size=5), max_size=4), st.integers(1, 40))
def test_a_window_is_whole_characters_within_its_size(text: str, terms: list[str], bytes_max: int) -> None:
    data = text.encode()
    start, end = window(text, terms, bytes_max)
    assert 0 <= start <= end <= len(data) and end - start <= bytes_max
    assert data[start:end].decode() in text
    if len(data) > bytes_max:
        assert end - start > bytes_max - 4 or end == len(data), "no room is given away"


@given(st.text(), st.integers(0, 40))
def test_a_cut_keeps_whole_characters_from_the_start(text: str, bytes_max: int) -> None:
    kept = cut(text, bytes_max)
    assert text.startswith(kept) and len(kept.encode()) <= bytes_max
    assert kept == text or len(kept.encode()) > bytes_max - 4

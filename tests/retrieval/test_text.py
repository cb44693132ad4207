from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.retrieval.text import fold, segments
from memoree.retrieval.unspaced import run_pairs, split_runs
from memoree.retrieval.words import words


@pytest.mark.fault_class(34)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Straße", "STRASSE"),
        ("caf\u00e9", "cafe\u0301"),
        ("\u212a", "K"),
        ("ＡＢＣ", "abc"),
        ("ｶﾀｶﾅ", "カタカナ"),
        ("ﬁle", "FILE"),
    ],
)
def test_spellings_that_mean_the_same_fold_to_the_same_text(one: str, other: str) -> None:
    assert fold(one) == fold(other)


@pytest.mark.fault_class(35)
def test_a_megabyte_of_combining_marks_folds_in_linear_time() -> None:
    started = time.perf_counter()
    fold("a" + "\u0301\u0323" * 250_000)
    assert time.perf_counter() - started < 10


@given(st.text(max_size=6000))
def test_folding_in_slices_loses_no_text_that_folds_to_itself(text: str) -> None:
    plain = "".join(character for character in text if fold(character) == character and not character.isspace())
    plain = " ".join(plain[start : start + 50] for start in range(0, len(plain), 50)) * 60
    assert fold(plain).split() == fold(" ".join(plain.split())).split()


def test_words_keep_the_marks_that_write_their_vowels() -> None:
    assert words("हिन्दी में, v1_x") == ["हिन्दी", "में", "v1_x"]


def test_unspaced_runs_are_indexed_as_pairs_and_taken_out_of_the_words() -> None:
    found = segments("設備A1 リスト")
    assert found.words.split() == ["a1"]
    assert found.pairs == "設備 備a a1 1リ リス スト ト"


@given(st.text(alphabet="今日は成語しりとりした", min_size=2, max_size=12), st.data())
def test_every_piece_of_a_run_is_a_sequence_of_its_pairs(run: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(run) - 2))
    end = data.draw(st.integers(start + 2, len(run)))
    wanted, pairs = run_pairs(run[start:end])[:-1], run_pairs(run)
    assert any(pairs[at : at + len(wanted)] == wanted for at in range(len(pairs)))


def test_a_word_of_mixed_script_splits_at_its_runs() -> None:
    assert split_runs("nas設備x") == [("nas", False), ("設備", True), ("x", False)]

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import pytest

from memoree import limits
from memoree.errors import MemoreeError
from memoree.retrieval.expression import PHRASES_MAX, Expression, expression_of
from memoree.retrieval.query import Unit, analyze

from .store import Store

WORDS_MAX = limits.QUERY_WORDS_MAX
BYTES_PER_PAIR = 6
PHRASES_OF_WORDS_MAX = 3 * WORDS_MAX
"""As written, by its term, and as part of a literal. The pairs of an unspaced run come on top."""
MIXED_LINE = "a 设备 用户 b c 中文 text line\n"
HOSTILE = {
    "common words": " ".join(["a", "b", "c", "text", "line", "设备", "用户", "中文"] * 6),
    "words with forms": " ".join(f"{a}{b}arge" for a in "bcdfgh" for b in "lmnprstw"),
    "script changes": "a设" * (WORDS_MAX // 2),
    "distinct script changes": "".join(chr(0x61 + n) + chr(0x4E00 + n) for n in range(WORDS_MAX // 2)),
    "one run": "设备" * 1365,
    "single characters": " ".join("设备用户中文" * 8),
    "stop words": " ".join(["a", "the", "is"] * 16),
    "quotes": '"a" "b c" "text line" "a 设备" ' * 6,
    "only quotes": '"' * 8191 + "a",
    "dotted pieces": "a.b.c " * 16,
    "underscores": "a_" * 16,
}


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("crowded"))
    store.artifact("Lines", MIXED_LINE * 45_000)
    yield store
    store.close()


@pytest.mark.fault_class(55)
@pytest.mark.parametrize("kind", HOSTILE)
def test_no_query_has_more_phrases_than_its_words_have_forms(kind: str) -> None:
    expression = expression_of(analyze(HOSTILE[kind]), "claim")
    assert 0 < expression.phrase_count <= PHRASES_OF_WORDS_MAX <= PHRASES_MAX
    assert expression.match.count('"') == 2 * expression.phrase_count


@pytest.mark.fault_class(55)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_query_is_answered_in_time(crowded: Store, kind: str) -> None:
    started = monotonic()
    crowded.search(HOSTILE[kind])
    assert monotonic() - started < 4


@pytest.mark.fault_class(55)
@pytest.mark.parametrize("text", ["a设" * 100, "a设" * 2048, "设a" * 25, '"' + "a设" * 25 + '"', "x-设y设" * 17])
def test_every_change_of_script_counts_as_a_word(text: str) -> None:
    with pytest.raises(MemoreeError, match=f"at most {WORDS_MAX} words"):
        analyze(text)


@pytest.mark.fault_class(55)
def test_equal_phrases_are_written_once() -> None:
    mixed = expression_of(analyze("a设" * 24), "claim")
    assert mixed.unit_matches == [f'{{cjk}} : "{" ".join(["a设", "设a"] * 23)} a设"']
    folded = expression_of(analyze("log logs"), "claim")
    assert folded.phrase_count == len(folded.match.split(" OR ")) == len(set(folded.match.split(" OR ")))
    repeated = expression_of(analyze('cone-6 "cone 6" cone-6'), "claim")
    assert repeated.match.split(" OR ")[:3] == ['{statement} : "cone 6"', '{terms} : "cone"', '{terms} : "6"']
    assert repeated.phrase_count == 4, "the literal cone-6 is a term of its own"
    assert repeated.units == repeated.literals


def test_units_that_share_a_phrase_are_both_matched(store: Store) -> None:
    store.claim("The log is full.")
    assert store.hits('logs "log"')[0]["ranking"]["matched_unit_count"] == 2


def test_spellings_past_the_bound_are_left_out() -> None:
    unit = Unit(("w",), is_phrase=False)
    expression = Expression.over("claim", 2)
    expression.spell(0, unit, (((f"w{number}",), 1.0) for number in range(PHRASES_MAX + 1)))
    assert len(expression.units[0]) == expression.phrase_count == PHRASES_MAX
    assert expression.unit_matches[0].count(" OR ") + 1 == PHRASES_MAX
    expression.spell(1, unit, [(("w7",), 0.9)])
    assert expression.units[1][0].phrases == (7,)

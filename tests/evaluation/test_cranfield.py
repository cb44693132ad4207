"""The Cranfield collection: its files, its measures, and three documents in its form."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from memoree.client.request import Endpoint
from memoree.errors import MemoreeError
from memoree.evaluation.cranfield import (
    DOCUMENTS_NAME,
    JUDGEMENTS_NAME,
    NDCG_BOUND,
    QUESTIONS_NAME,
    Question,
    ndcg,
    read_collection,
    recall,
    reciprocal_rank,
    run_cranfield,
)

COLLECTION_VARIABLE = "MEMOREE_CRANFIELD"

DOCUMENTS = """<doc>
<docno>7</docno>
<title>drag of a delta
wing .</title>
<author>weaver,t.</author>
<text>drag of a delta
wing .
  the drag was measured at mach 3 .</text>
</doc>
<doc>
<docno>8</docno>
<title></title>
<text></text>
</doc>
<doc>
<docno>9</docno>
<title>heat transfer of a blunt nose .</title>
<text>heat transfer of a blunt nose .
the heating of a blunt nose falls with its radius .</text>
</doc>"""
QUESTIONS = """<?xml version='1.0' encoding='utf-8' standalone='yes'?>
<xml>
<top><num> 4</num>
<title>
how much drag does a
delta wing have .
</title></top>
<top><num> 5</num><title>buckling of cylinders</title></top>
<top><num> 11</num><title>how does the heating of a blunt nose depend on its radius .</title></top>
</xml>"""
JUDGEMENTS = "1 0 7 1\n1 0 9 0\n2 0 8 -1\n3 0 9 3\n3 0 8 1\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name, text in ((DOCUMENTS_NAME, DOCUMENTS), (QUESTIONS_NAME, QUESTIONS), (JUDGEMENTS_NAME, JUDGEMENTS)):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_judgements_count_the_questions_and_only_grades_above_zero_are_relevant(directory: Path) -> None:
    collection = read_collection(directory)
    assert collection.questions == [
        Question("how much drag does a delta wing have .", frozenset({"7"})),
        Question("how does the heating of a blunt nose depend on its radius .", frozenset({"8", "9"})),
    ]
    assert [(each.number, each.title) for each in collection.documents] == [
        ("7", "drag of a delta wing ."),
        ("8", ""),
        ("9", "heat transfer of a blunt nose ."),
    ]
    assert collection.documents[0].body == "drag of a delta\nwing .\n  the drag was measured at mach 3 ."


def test_three_documents_are_searched_and_measured(directory: Path, endpoint: Endpoint) -> None:
    figures = run_cranfield(endpoint, read_collection(directory))
    assert (figures.documents, figures.questions) == (3, 2)
    assert figures.mrr == 1.0
    assert figures.recall_at_100 == 0.75, "an empty document cannot be found"
    assert figures.ndcg_at_10 == pytest.approx((1 + 1 / (1 + 1 / math.log2(3))) / 2)


def test_gains_are_discounted_by_rank_and_held_against_the_best_order() -> None:
    assert ndcg(["a", "b"], {"a", "b"}) == 1.0
    assert ndcg(["x", "a"], {"a"}) == pytest.approx(1 / math.log2(3))
    assert ndcg([*"xxxxxxxxxx", "a"], {"a"}) == 0.0
    assert ndcg([str(number) for number in range(10)], {str(number) for number in range(20)}) == pytest.approx(1.0)


def test_recall_and_reciprocal_rank() -> None:
    assert recall(["x", "a", "b"], {"a", "b", "c", "d"}) == 0.5
    assert reciprocal_rank(["x", "a", "b"], {"a", "b"}) == 0.5
    assert reciprocal_rank(["x"], {"a"}) == 0.0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (DOCUMENTS_NAME, None, "cannot be read"),
        (DOCUMENTS_NAME, "<doc><docno>1</doc>", "does not hold the Cranfield collection"),
        (DOCUMENTS_NAME, "<note/>", "holds no documents"),
        (QUESTIONS_NAME, "<xml></xml>", "no question with a relevant one"),
        (JUDGEMENTS_NAME, "1 0 7\n", "does not hold the Cranfield collection"),
    ],
)
def test_a_directory_with_something_else_is_refused(directory: Path, name: str, text: str | None, message: str) -> None:
    (directory / name).unlink()
    if text is not None:
        (directory / name).write_text(text)
    with pytest.raises(MemoreeError, match=message):
        read_collection(directory)


@pytest.mark.nightly
@pytest.mark.skipif(COLLECTION_VARIABLE not in os.environ, reason=f"{COLLECTION_VARIABLE} names no directory")
def test_the_collection_reaches_its_bound(endpoint: Endpoint) -> None:
    figures = run_cranfield(endpoint, read_collection(Path(os.environ[COLLECTION_VARIABLE])))
    assert (figures.documents, figures.questions) == (1400, 225)
    assert NDCG_BOUND.reaches(figures.ndcg_at_10, NDCG_BOUND.must)

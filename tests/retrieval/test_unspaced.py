"""Questions in scripts without spaces: how they are taken apart, and how much of a long part a text must have
(retrieval §1, assertion 21 as amended)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.retrieval.expression import PAIRS_MAX
from memoree.retrieval.query import analyze
from memoree.retrieval.unspaced import RUN, are_most_pairs, run_pairs, split_runs, telling_parts

from .store import Json, Store

PLACES = itertools.count(1)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for many questions, each of which gets a project of its own."""
    store = Store(tmp_path_factory.mktemp("unspaced"))
    yield store
    store.close()


@pytest.fixture
def place() -> Json:
    """A context with nothing in it."""
    return {"workspace_id": "wsp_lab", "project_id": f"prj_{next(PLACES)}"}


def answers(store: Store, place: Json, query: str, text: str) -> bool:
    """Whether a text, as a claim and as the body of an artifact, answers a query. Both must be of one mind."""
    store.claim(text, place)
    store.artifact("untitled", text, place)
    found = sorted(hit["entity_type"] for hit in store.hits(query, place) if hit["ranking"]["qualified"])
    assert found in ([], ["artifact", "claim"])
    return bool(found)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("nas", [("nas", False)]),
        ("设备", [("设备", True)]),
        ("nas设备x2", [("nas", False), ("设备", True), ("x2", False)]),
        ("設備ａテスト", [("設備", True), ("ａ", False), ("テスト", True)]),
        ("가마", [("가마", True)]),
        ("เตา", [("เตา", True)]),
        ("печь", [("печь", False)]),
        ("𠀀𠀁", [("𠀀𠀁", True)]),
    ],
)
def test_a_word_is_split_where_its_script_changes(word: str, parts: list[tuple[str, bool]]) -> None:
    assert split_runs(word) == parts


@given(st.text(st.sampled_from("aß9_é设备窑テストしり가마เตา"), max_size=12))
def test_the_parts_of_a_word_are_the_word_and_take_turns(word: str) -> None:
    parts = split_runs(word)
    assert "".join(part for part, _ in parts) == word
    assert all(part and bool(RUN.fullmatch(part)) is is_run for part, is_run in parts)
    assert all(one[1] is not other[1] for one, other in itertools.pairwise(parts))


def test_every_character_of_a_run_begins_one_token() -> None:
    assert run_pairs("设") == ["设"]
    assert run_pairs("设备") == ["设备", "备"]
    assert run_pairs("设备清单") == ["设备", "备清", "清单", "单"]


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        # Up to four characters are a word, whatever they are.
        ("的", "的"),
        ("设备", "设备"),
        ("谁的设备", "谁的设备"),
        ("たべもの", "たべもの"),
        # Chinese: words that ask or join go.
        ("窑炉温度是多少", "窑炉温度"),
        ("为什么窑炉没有记录", "窑炉没有记录"),
        ("用户服务器部署在哪里", "用户服务器部署"),
        ("谁负责备份的检查", "负责备份 检查"),
        ("窑炉在什么时候检修", "窑炉 检修"),
        ("什么是的吗呢", "什么是的吗呢"),
        # Japanese: hiragana goes where there is kanji or katakana.
        ("窯の温度は何度ですか", "窯 温度 何度"),
        ("システムを再起動する", "システム 再起動"),
        ("しりとりをしました", "しりとりをしました"),
        # Korean: a particle at the end of a word goes, behind two syllables or more.
        ("온도는", "온도"),
        ("서버에서", "서버"),
        ("가은", "가은"),
        ("보안인증서를", "보안인증서"),
        # Thai: words that ask or join go.
        ("อุณหภูมิของเตาคืออะไร", "อุณหภูมิ เตา"),
        ("ใครตรวจสอบระบบ", "ตรวจสอบระบบ"),
        # Mixed with another script, each part is one of its own, but for numbers and letters beside short runs.
        ("nas设备", "nas 设备"),
        ("nas设备v2", "nas设备v2"),
        ("a社製", "a社製"),
        ("2024年12月", "2024年12月"),
        ("nas设备清单记录表v2", "nas 设备清单记录表 v2"),
        ("печь", "печь"),
    ],
)
def test_what_of_a_question_carries_meaning(word: str, parts: str) -> None:
    assert telling_parts(word) == parts.split()


@given(st.text(st.sampled_from("设备的了是什么窯のでテスト가마는을ของคือเตา9a"), min_size=1, max_size=24))
def test_something_of_a_question_is_always_left(word: str) -> None:
    parts = telling_parts(word)
    assert parts
    assert all(parts)
    assert all(part in word for part in parts)


PAIRS = {
    # Three fifths of them.
    "1111": True, "1011": True, "0111": True, "0110": False, "1001": False, "1010": False, "11011": True,
    "10011": True, "01110": True, "10001": False, "1001101": False, "10011001": False, "1001100111": True,
    # No gap that another word would leave: two in a row inside, one at an end.
    "110011": True, "11000111": False, "1110001111": False, "1110011111": True, "00111": False, "11100": False,
    "0111110": True, "0011111": False, "1111100": False, "1111111100": False, "0011111111": False,
}  # fmt: skip
"""Which pairs of a run a text has, in their order, and whether they are enough."""


@pytest.mark.parametrize("has", PAIRS)
def test_a_long_run_is_said_by_most_of_its_pairs_without_a_gap(has: str) -> None:
    assert are_most_pairs([pair == "1" for pair in has]) is PAIRS[has]


LETTERS = {
    "Chinese": "窑炉温度记录报告检修备份",
    "Japanese": "釉薬調合比率実験記録帳簿",
    "Katakana": "サンドボックスシテムリレ",
    "Korean": "보안인증서갱신절차안내문",
    "Thai": "ตรวจสอบระดมพลฉก",
}


@pytest.mark.proves("retrieval-21")
@pytest.mark.parametrize("has", PAIRS)
@pytest.mark.parametrize("script", LETTERS)
def test_a_text_with_some_pairs_of_a_long_run_answers_if_they_are_enough(
    shelf: Store, place: Json, script: str, has: str
) -> None:
    run = LETTERS[script][: len(has) + 1]
    assert [unit.display for unit in analyze(run).units] == [run]
    assert answers(shelf, place, run, ", ".join(_pairs_of(run, has))) is PAIRS[has]


def _pairs_of(run: str, has: str) -> list[str]:
    return [run[at : at + 2] for at, there in enumerate(has) if there == "1"]


def test_a_run_past_all_bounds_is_judged_by_its_beginning(shelf: Store, place: Json) -> None:
    run = "".join(chr(0x7000 + number) for number in range(PAIRS_MAX + 40))
    assert answers(shelf, place, run, run[: PAIRS_MAX + 1])
    assert not answers(shelf, place | {"project_id": f"{place['project_id']}_end"}, run, run[40:])


@pytest.mark.proves("retrieval-21")
@pytest.mark.parametrize("length", [3, 4])
@pytest.mark.parametrize("script", LETTERS)
def test_a_run_of_up_to_four_characters_is_matched_as_it_is(
    shelf: Store, place: Json, script: str, length: int
) -> None:
    run = LETTERS[script][:length]
    pairs = ", ".join(run[at : at + 2] for at in range(length - 1))
    assert not answers(shelf, place, run, pairs)
    assert answers(shelf, place, run, f"{LETTERS[script][6:8]}{run}{LETTERS[script][8:10]}")


@pytest.mark.proves("retrieval-21")
@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        # One character is found wherever it stands, two only together and in order.
        ("窑", "旧窑炉", True),
        ("炉", "旧窑炉", True),
        ("旧", "新窑炉", False),
        ("窑炉", "旧窑炉房", True),
        ("窑炉", "旧炉窑房", False),
        ("窑炉", "旧窑 炉房", False),
        # A repeated pair counts once.
        ("窑炉窑炉窑炉窑", "窑炉窑", True),
        ("窑炉温度记录", "窑炉窑炉窑炉窑炉", False),
        # Mixed runs: each part has to be there, short ones with numbers stand together.
        ("NAS设备", "新NAS设备柜", True),
        ("NAS设备", "设备NAS", True),
        ("NAS设备", "设施NAS", False),
        ("7号设备", "新7号设备柜", True),
        ("7号设备", "设备7号", False),
        ("NAS设备清单记录", "设备清单记录: 新NAS", True),
        ("NAS设备清单记录", "设备清单记录", False),
        # In quotes, and as a part of an identifier, exact at any length.
        ('"窑炉温度记录报告"', "旧窑炉温度记录报告书", True),
        ('"窑炉温度记录报告"', "窑炉温度记录书报告", False),
        ("窑炉温度记录报告", "窑炉温度记录书报告", True),
        ('"窯の温度は"', "窯の圧力と温度は", False),
        ("7号-窑炉温度记录", "7号-窑炉温度记录", True),
        ("7号-窑炉温度记录", "7号-窑炉温度报告", False),
        # The words that ask are looked for by nobody.
        ("窑炉温度是多少", "窑炉温度", True),
        ("窯の温度は何度ですか", "温度何度、窯", True),
        ("อุณหภูมิของเตาคืออะไร", "เตามีอุณหภูมิสูง", True),
        ("อุณหภูมิของเตาคืออะไร", "อะไรคือของเตา", False),
        ("온도는", "가마 온도가", True),
    ],
)
def test_a_question_in_an_unspaced_script_is_answered_by_its_meaning(
    shelf: Store, place: Json, query: str, text: str, expected: bool
) -> None:
    assert answers(shelf, place, query, text) is expected

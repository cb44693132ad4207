"""Runs of scripts that are written without spaces: where they are, their pairs of characters, and what of a question
in them carries meaning.

An index of words cannot know where such words end. Pairs find a word inside of any longer run; a question, which
is one long run itself, is taken apart at words that only ask or join, and a long part matches by most of its pairs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

RUN = re.compile(
    "["
    "\u1100-\u11ff"  # Hangul letters that did not compose into syllables
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # Japanese kana and iteration
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\uac00-\ud7a3"  # Hangul syllables
    "\u0e01-\u0e4e\u0e81-\u0ece"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17d3"  # Burmese, Khmer
    "]+"
)
MIXED = re.compile(rf"[0-9a-z]*(?:{RUN.pattern}[0-9a-z]*)+")
"""Of folded text: runs with the Latin letters and digits that they stand next to, `2024年12月` or `a社製`."""
_GAP = re.compile(rf"(?<=[0-9a-z])[ \u3000]+(?={RUN.pattern})|(?<={RUN.pattern[:-1]})[ \u3000]+(?=[0-9a-z])")
"""A space that some put between a run and what is Latin."""
EXACT_CHARS_MAX = 4
"""A run of at most so many characters is a word and looked for as it is."""
PAIRS_NEEDED = 3, 5
"""The share of a longer run's pairs that a text must have, as a fraction."""

GAP_INSIDE_MAX = 2
GAP_AT_END_MAX = 1

_HIRAGANA = re.compile("[\u3041-\u309f]+")
_WITH_KANJI_OR_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc-\u30ff\u3400-\u9fff]")
_KOREAN_PARTICLE = re.compile("(?<=[\uac00-\ud7a3]{2})(?:에서|으로|부터|까지|은|는|이|가|을|를|에|의|로|와|과|도|만)$")
_CHINESE = (
    *("为什么", "什么时候", "有没有", "什么", "怎么", "怎样", "如何", "多少", "多久", "哪里", "哪个", "哪些", "哪儿"),
    *("几个", "几年", "几天", "几次", "是否", "何时", "请问", "可以", "需要", "我们", "他们"),
    *("的", "了", "吗", "呢", "吧", "啊", "是", "在", "谁", "哪", "这", "那", "么", "把", "被"),
)
_THAI = (
    *("หรือไม่", "ที่ไหน", "ทางไหน", "เมื่อไร", "เมื่อใด", "อย่างไร", "เท่าไร", "เท่าใด", "ทำไม", "อะไร", "ไหน", "ใคร"),
    *("กี่", "ไหม", "ของ", "ที่", "และ", "หรือ", "เป็น", "คือ", "ต้อง", "ทุก", "กับ", "ใน"),
)
_JOINING = re.compile("|".join(_CHINESE + _THAI))


def split_runs(word: str) -> list[tuple[str, bool]]:
    """The parts of a folded word, each with whether it is an unspaced run."""
    parts: list[tuple[str, bool]] = []
    end = 0
    for run in RUN.finditer(word):
        if run.start() > end:
            parts.append((word[end : run.start()], False))
        parts.append((run[0], True))
        end = run.end()
    if end < len(word):
        parts.append((word[end:], False))
    return parts


def run_pairs(run: str) -> list[str]:
    """The overlapping pairs of a run, then its last character: every character starts one token, so that a single
    character is a prefix query, and two neighbouring runs never look like one."""
    return [run[position : position + 2] for position in range(len(run))]


def mixed_runs(folded: str) -> list[str]:
    """The runs of a text, each with what is Latin and touches it."""
    return MIXED.findall(_GAP.sub("", folded))


def are_most_pairs(has: Sequence[bool]) -> bool:
    """Whether a text that has these pairs of a run, in the run's order, says what the run says: most of them, and no
    gap that another word would leave. One other character inside costs two pairs, at an end one."""
    share, of = PAIRS_NEEDED
    if of * sum(has) < share * len(has):
        return False
    gaps = [len(list(pairs)) for there, pairs in groupby(has) if not there]
    return max(gaps, default=0) <= GAP_INSIDE_MAX and max(_gap(has), _gap(has[::-1])) <= GAP_AT_END_MAX


def _gap(has: Sequence[bool]) -> int:
    """Pairs that are lacking at the beginning."""
    return next((at for at, there in enumerate(has) if there), len(has))


def telling_parts(word: str) -> list[str]:
    """What of a folded word of a question carries meaning. A word without a long run is itself, and so is one with a
    number or a single letter: `2024年12月`, `a社製`. What is Latin beside a run is a word of its own otherwise."""
    parts = split_runs(word)
    if all(not is_run or len(part) <= EXACT_CHARS_MAX for part, is_run in parts):
        latin = [part for part, is_run in parts if not is_run]
        if len(parts) > 1 and all(len(part) > 1 and not any(map(str.isdigit, part)) for part in latin):
            return [_KOREAN_PARTICLE.sub("", part) for part, _ in parts]
        return [_KOREAN_PARTICLE.sub("", word)]
    return [kept for part, is_run in parts for kept in (_of_run(part) if is_run else [part])]


def _of_run(run: str) -> list[str]:
    if len(run) <= EXACT_CHARS_MAX:
        return [_KOREAN_PARTICLE.sub("", run)]
    if _HIRAGANA.search(run) and _WITH_KANJI_OR_KATAKANA.search(run):
        return [part for part in _HIRAGANA.split(run) if part]
    return [part for part in _JOINING.split(_KOREAN_PARTICLE.sub("", run)) if part] or [run]

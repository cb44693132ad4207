"""The words of a question and of its answer that say something (OKF contract §7.4)."""

from __future__ import annotations

import re

from memoree.okf import terms

WORD_CHARS_MIN = 3
_FREQUENT = (
    "a about above after all also and any anything are ask been before below but can could did does doing done for "
    "from had has have her here his how into its just know like made make many may memory might more most much must "
    "need not nothing now off one only other our out over say says should some something still such tell than that "
    "the their them then there these they this those through too under until upon use very want was were what when "
    "where which while who whom whose why will with would yet you your covers doesn don без был была были быть вам "
    "вас все всё где для его если есть ещё или как какая какие какой когда кто меня мне мой наш нас нет них ничего "
    "она они оно от под при про сам так там тебя то только тут уже чем что чтобы эта эти это этот"
)
_STOP_WORDS = frozenset(terms.tokens(_FREQUENT))
_ABSENT = re.compile(
    r"\b(?:no|not|nothing|none|never|neither|without|cannot|empty|absent|missing)\b|n['’]t\b"
    r"|\b(?:нет|ничего|никаких|не)\b|没有|沒有|无|ない|ありません|없",
    re.IGNORECASE,
)
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Scripts that put no space between words."""


def content_words(text: str) -> set[str]:
    """Words as a search takes them, without those of any question; of scripts without spaces, pairs of letters."""
    return {word for token in terms.tokens(text) for word in _words(token) if word not in _STOP_WORDS}


def reports_absence(sentence: str) -> bool:
    """Whether a sentence says that there is nothing."""
    return _ABSENT.search(sentence) is not None


def _words(token: str) -> list[str]:
    if _UNSPACED.search(token):
        return [token[at : at + 2] for at in range(max(len(token) - 1, 1))]
    return [part for part in token.split("-") if len(part) >= WORD_CHARS_MIN]

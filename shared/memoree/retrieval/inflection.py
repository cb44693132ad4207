"""Inflected English forms of a query word. They fold both ways: `charge` reaches `charged` and `charged` `charge`."""

from __future__ import annotations

from collections.abc import Iterator

VARIANTS_MAX = 6
WORD_CHARS_MIN = 3

_VOWELS = frozenset("aeiou")
_SIBILANTS = ("s", "x", "z", "ch", "sh")
_SOFT = (*_SIBILANTS, "c", "g", "v")
"""Endings of a bare stem whose plural ends in `es`: cach-es, danc-es, charg-es, mov-es."""


def variants(word: str) -> tuple[str, ...]:
    """At most `VARIANTS_MAX` forms, the word itself first. Only plain ASCII words of three letters or more fold."""
    if len(word) < WORD_CHARS_MIN or not (word.isascii() and word.isalpha()):
        return (word,)
    forms = dict.fromkeys(form for form in _forms(word) if len(form) >= WORD_CHARS_MIN)
    return tuple(forms)[:VARIANTS_MAX]


def _forms(word: str) -> Iterator[str]:
    yield word
    for suffix in ("ing", "ed"):
        bare = word.removesuffix(suffix)
        if bare != word and _is_stem(bare) and not word.endswith("eed"):
            yield from _of_stem(bare, suffix)
            return
    if word.endswith("ies") and len(word) > 4:
        yield from _of_base(word[:-3] + "y")
    elif word.endswith("s") and word[-2] not in "su" and len(word) > 3:
        if word.endswith("es") and word[:-2].endswith(_SIBILANTS):
            yield from (word[:-2], word[:-1], word[:-2] + "ing", word[:-2] + "ed")
        else:
            yield from _of_base(word[:-1])
    else:
        yield from _of_base(word)


def _of_stem(bare: str, suffix: str) -> Iterator[str]:
    """Forms around what precedes -ing or -ed: `charg`, `stopp`, `walk`, `retri`."""
    other = "ed" if suffix == "ing" else "ing"
    if bare.endswith("i"):
        base = bare[:-1] + "y"
        yield from (base, bare + "es", base + other)
    elif len(bare) > 2 and bare[-1] == bare[-2] and bare[-1] not in _VOWELS:
        yield from (bare, bare[:-1], bare + other, bare[:-1] + "s", bare + "s")
    else:
        yield from (bare, bare + "e", bare + other, _plural(bare, _SOFT))
        if suffix == "ing":
            yield bare + "ings"


def _of_base(base: str) -> Iterator[str]:
    """Forms of a dictionary form: `charge`, `stop`, `walk`, `retry`."""
    yield base
    yield _plural(base, _SIBILANTS)
    if base.endswith("y") and base[-2] not in _VOWELS:
        yield from (base + "ing", base[:-1] + "ied")
        return
    bare = base.removesuffix("e")
    stem = _doubled(bare) if bare == base else bare
    yield from (stem + "ing", stem + "ed", stem + "er")


def _plural(base: str, hissing: tuple[str, ...]) -> str:
    if base.endswith("y") and base[-2:-1] not in _VOWELS:
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(hissing) else "s")


def _doubled(base: str) -> str:
    """`stop` to `stopp`: a short last syllable doubles its consonant before -ing and -ed."""
    if base[-1] in _VOWELS or base[-1] in "wxy" or base[-2] not in _VOWELS or base[-3:-2] in _VOWELS:
        return base
    return base + base[-1]


def _is_stem(bare: str) -> bool:
    """`str` is what is left of `string`, not a stem: it has no vowel."""
    return len(bare) >= WORD_CHARS_MIN and any(letter in _VOWELS or letter == "y" for letter in bare)

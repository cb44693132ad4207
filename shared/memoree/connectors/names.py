"""The external ids of things that have paths, and which paths are wanted.

Two spellings of one name are one item: external ids are in Unicode's normal form C, as names of files are on some
systems and not on others. Bytes that are not UTF-8 stand as `%` and two hex digits; only in names that have such bytes
does `%` itself stand as `%25`. Content is never normalised.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from memoree import limits
from memoree.errors import invalid, shown

TWIN_REASON: Final = "another spelling of the same name was delivered"
INCLUDE_DEFAULT: Final = (
    *("*.md", "*.markdown", "*.mdown", "*.mdx"),
    *("*.txt", "*.text", "*.rst", "*.adoc", "*.asciidoc", "*.org", "*.textile", "*.wiki", "*.tex"),
)
_UNDECODED = re.compile("[\udc80-\udcff]")
_UNDECODED_BASE = 0xDC00
_UNDECODED_PATH, _UNDECODED_ID = "\udc80", "%80"
_FLAGS: Final = re.IGNORECASE | re.DOTALL
_SPECIAL_IN_SET = re.compile(r"[\\\[&|~]")
"""What a shell takes for itself within brackets, and `re` does not, or will not one day."""
_PARTS_OF_PATTERN = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^]/]+\]|.", re.DOTALL)


def external_id_of(path: str) -> str:
    """The id of a relative path with `/` between its parts, as `os.fsdecode` gives it."""
    if _UNDECODED.search(path):
        path = _UNDECODED.sub(lambda found: f"%{ord(found[0]) - _UNDECODED_BASE:02X}", path.replace("%", "%25"))
    return unicodedata.normalize("NFC", path)


def prefixes_of(directory: str) -> tuple[str, str]:
    """What external ids below a directory begin with, its path ending with `/`: those of names that are UTF-8, and
    those of others, where `%` is spelled otherwise."""
    return external_id_of(directory), external_id_of(directory + _UNDECODED_PATH).removesuffix(_UNDECODED_ID)


def fault_of(external_id: str) -> str | None:
    """Why no item can have this id, or `None`."""
    if not external_id.strip():
        return "its name is blank"
    if (size := len(external_id.encode())) > limits.EXTERNAL_ID_BYTES_MAX:
        return f"its name has {size} bytes; the limit is {limits.EXTERNAL_ID_BYTES_MAX}"
    return None


class Wanted:
    """Which external ids are delivered: those that match a pattern of `include` and none of `exclude`, and have no
    hidden part.

    Patterns are shell globs that know no case. Without `/` one is about the last part of the path, otherwise about all
    of it: `*` and `?` stay within a part, `**/` is any number of parts.
    """

    def __init__(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        self._include = _any_of(include or INCLUDE_DEFAULT)
        self._exclude = _any_of(exclude)

    def __contains__(self, external_id: str) -> bool:
        if any(map(is_hidden, external_id.split("/"))) or not self._include.fullmatch(external_id):
            return False
        return not self._exclude.fullmatch(external_id)


def is_hidden(name: str) -> bool:
    return name.startswith(".")


def name_of(external_id: str) -> str:
    """The last part of a path."""
    return external_id.rpartition("/")[2]


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    """Matches nothing when there are none. Raises `INVALID_REQUEST` for a pattern that is none."""
    for pattern in patterns:
        _check(pattern)
    return re.compile("|".join(map(_expression, patterns)) or r"(?!)", _FLAGS)


def _check(pattern: str) -> None:
    try:
        re.compile(_expression(pattern), _FLAGS)
    except re.error as error:
        raise invalid(f"{shown(pattern)} is no pattern: {error.msg}") from None


def _expression(pattern: str) -> str:
    pattern = external_id_of(pattern)
    whole = pattern if "/" in pattern else f"**/{pattern}"
    return "".join(_pieces(whole.removeprefix("/")))


def _pieces(pattern: str) -> Iterator[str]:
    for found in _PARTS_OF_PATTERN.finditer(pattern):
        match found[0]:
            case "**/":
                yield "(?:.*/)?"
            case "**":
                yield ".*"
            case "*":
                yield "[^/]*"
            case "?":
                yield "[^/]"
            case one_of if len(one_of) > 1:
                inner = _SPECIAL_IN_SET.sub(r"\\\g<0>", one_of[1:-1])
                yield f"(?!/)[{'^' + inner[1:] if inner.startswith('!') else inner}]"
            case character:
                yield re.escape(character)

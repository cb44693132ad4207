"""Front matter: the fields between two lines of three hyphens at the beginning of a file (OKF contract §1.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from memoree.okf.dialect import Dialect

Entry: TypeAlias = str | list[str]
Map: TypeAlias = dict[str, Entry]
Fields: TypeAlias = dict[str, Entry | Map]
"""Every scalar is text; below the top there is one level of maps."""

FRONT_MATTER_CHARS_MAX = 64 * 1024
VISIBILITY = "visibility"
_BLOCKS = ("relations", "metadata")
_LISTED = "relations"
"""The block whose members may have lists below them."""
_ITEM = "    - "

_COMPAT = re.compile(r"---\n(.*?)\n---\n?", re.DOTALL)
_SERVICE = re.compile(r"---[ \t]*\n(?:(.*?)\n)?---[ \t]*(?:\n|$)", re.DOTALL)
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):(.*)", re.DOTALL)
_MEMBER = re.compile(r"  ([A-Za-z_][A-Za-z0-9_-]*):(.*)", re.DOTALL)
_MEANT = re.compile(r"""(?mi)(?:^|[\r\x0b\x0c\x85\u2028\u2029])[^\w\n]*visibility["']?[ \t]*[:=][ \t]*["']?secret""")
"""Fields without the lines of hyphens around them: no front matter, and still somebody's word for what it is."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """`fields` are `None` where there is no block at all; `problem` says why a block could not be read."""

    fields: Fields | None
    body: str
    problem: str | None = None


def normalised(data: bytes) -> str:
    """The text of a file for reading: without a byte order mark, with line feeds only. Bytes that are no UTF-8 become
    replacement characters; the file itself is kept as it is."""
    return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def read(text: str, dialect: Dialect) -> FrontMatter:
    """The front matter and body of a file's text; never raises."""
    if dialect is Dialect.COMPAT:
        match = _COMPAT.match(text)
        return FrontMatter(None, text) if match is None else FrontMatter(parse_lines(match[1]), text[match.end() :])
    match = _SERVICE.match(text)
    if match is None and "\0" in text:
        return FrontMatter(None, text, "the file is no text in UTF-8")
    if match is None:
        first, _, _ = text.lstrip().partition("\n")
        is_meant = first.rstrip() == "---" or _MEANT.search(text[:FRONT_MATTER_CHARS_MAX]) is not None
        return FrontMatter(None, text, "the front matter does not begin or end" if is_meant else None)
    front, body = match[1] or "", text[match.end() :]
    if len(front) > FRONT_MATTER_CHARS_MAX:
        return FrontMatter({}, body, f"the front matter has more than {FRONT_MATTER_CHARS_MAX} characters")
    from memoree.okf.yaml_fields import parse_yaml  # what reads no files starts without YAML

    try:
        return FrontMatter(parse_yaml(front), body)
    except ValueError as error:
        fields, unread = _lines(front, Dialect.SERVICE)
        return FrontMatter(fields, body, f"the front matter cannot be read: {error}" if unread else None)


def body_of(text: str) -> str:
    """What stands behind the front matter, as the service reads it, without reading that."""
    match = _SERVICE.match(text)
    return text if match is None else text[match.end() :]


def parse_lines(front: str) -> Fields:
    """The reference program's line dialect, which is no YAML; lines it does not know are passed over."""
    return _lines(front, Dialect.COMPAT)[0]


def put_field(fields: Fields, key: str, value: Entry, dialect: Dialect) -> None:
    """The last of repeated fields wins; but who says `secret` anywhere means it, so all visibilities are kept."""
    before = fields.get(key)
    if dialect is Dialect.SERVICE and key.strip().lower() == VISIBILITY and isinstance(before, str) and before != value:
        fields[key] = [before, str(value)]
    else:
        fields[key] = value


def _lines(front: str, dialect: Dialect) -> tuple[Fields, int]:
    """The fields, and how many lines are neither blank, comments nor understood."""
    fields: Fields = {}
    block: Map | None = None
    has_lists = False
    listed: list[str] | None = None
    unread = 0
    for line in front.split("\n"):
        if block is not None:
            if not line.strip():
                continue
            if listed is not None and line.startswith(_ITEM):
                listed.append(_unquoted(line[len(_ITEM) :].strip()))
                continue
            if (match := _MEMBER.fullmatch(line)) is not None:
                value = _value(match[2])
                listed = [] if has_lists and value in ("", []) else None
                block[match[1]] = value if listed is None else listed
                continue
            block = listed = None
        match = _KEY.fullmatch(line)
        if match is None:
            unread += bool(line.strip()) and not line.lstrip().startswith("#")
            continue
        key, written = match[1], match[2].strip()
        if key in _BLOCKS and written in ("", "{}"):
            block, has_lists = {}, key == _LISTED
            fields[key] = block
        else:
            put_field(fields, key, _value(written), dialect)
    return fields, unread


def _value(written: str) -> Entry:
    text = written.strip()
    if text.startswith("[") and text.endswith("]"):
        items = (_unquoted(item.strip()) for item in text[1:-1].split(","))
        return [item for item in items if item]
    return _unquoted(text)


def _unquoted(text: str) -> str:
    """Without one quote at the beginning and one at the end."""
    start = 1 if text[:1] in ('"', "'") else 0
    end = len(text) - 1 if len(text) > start and text[-1:] in ('"', "'") else len(text)
    return text[start:end]

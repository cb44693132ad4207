"""Front matter: the fields between two lines of three hyphens at the beginning of a file (OKF contract §1.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import yaml

from memoree.okf.dialect import Dialect

Entry: TypeAlias = str | list[str]
Map: TypeAlias = dict[str, Entry]
Fields: TypeAlias = dict[str, Entry | Map]
"""Every scalar is text; below the top there is one level of maps."""

FRONT_MATTER_CHARS_MAX = 64 * 1024
FIELDS_MAX = 512
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
_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


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
    try:
        return FrontMatter(parse_yaml(front), body)
    except ValueError as error:
        fields, unread = _lines(front, Dialect.SERVICE)
        return FrontMatter(fields, body, f"the front matter cannot be read: {error}" if unread else None)


def body_of(text: str) -> str:
    """What stands behind the front matter, as the service reads it, without reading that."""
    match = _SERVICE.match(text)
    return text if match is None else text[match.end() :]


def parse_yaml(front: str) -> Fields:
    """Text, lists of text, and one level of maps of these. Raises `ValueError` for anything else YAML can say."""
    events = _events(front)
    first = next(events, None)
    if first is None:
        return {}
    if not isinstance(first, yaml.MappingStartEvent):
        raise ValueError("it is no map")
    found = _mapping(events, nested=False)
    if next(events, None) is not None:
        raise ValueError("it has more than one document")
    return found


def parse_lines(front: str) -> Fields:
    """The reference program's line dialect, which is no YAML; lines it does not know are passed over."""
    return _lines(front, Dialect.COMPAT)[0]


def _events(front: str) -> Iterator[yaml.Event]:
    structural = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)
    try:
        for event in yaml.parse(front, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise ValueError("anchors are not read")
            if not isinstance(event, structural):
                yield event
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        raise ValueError(f"{getattr(error, 'problem', None) or 'it is no YAML'}{where}") from None


def _mapping(events: Iterator[yaml.Event], *, nested: bool) -> Fields:
    found: Fields = {}
    for key in events:
        if isinstance(key, yaml.MappingEndEvent):
            return found
        if not isinstance(key, yaml.ScalarEvent):
            raise ValueError("a key is no text")
        if len(found) == FIELDS_MAX:
            raise ValueError(f"it has more than {FIELDS_MAX} fields")
        value = next(events)
        if isinstance(value, yaml.ScalarEvent):
            _set(found, key.value, value.value, Dialect.SERVICE)
        elif isinstance(value, yaml.SequenceStartEvent):
            found[key.value] = _sequence(events)
        elif nested:
            raise ValueError(f"the map at {key.value!r} lies too deep")
        else:
            found[key.value] = _mapping(events, nested=True)  # type: ignore[assignment]  # the inner one has no maps
    raise ValueError("it ends early")


def _set(fields: Fields, key: str, value: Entry, dialect: Dialect) -> None:
    """The last of repeated fields wins; but who says `secret` anywhere means it, so all visibilities are kept."""
    before = fields.get(key)
    if dialect is Dialect.SERVICE and key.strip().lower() == VISIBILITY and isinstance(before, str) and before != value:
        fields[key] = [before, str(value)]
    else:
        fields[key] = value


def _sequence(events: Iterator[yaml.Event]) -> list[str]:
    found: list[str] = []
    for item in events:
        if isinstance(item, yaml.SequenceEndEvent):
            return found
        if not isinstance(item, yaml.ScalarEvent):
            raise ValueError("a list holds more than text")
        if item.value:
            found.append(item.value)
    raise ValueError("it ends early")


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
            _set(fields, key, _value(written), dialect)
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

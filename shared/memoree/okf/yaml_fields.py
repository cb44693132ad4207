"""The part of YAML that front matter is read as: text, lists of it, and one level of maps (OKF contract §1.2)."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from memoree.okf.dialect import Dialect
from memoree.okf.frontmatter import Fields, put_field

FIELDS_MAX = 512
_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


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
            put_field(found, key.value, value.value, Dialect.SERVICE)
        elif isinstance(value, yaml.SequenceStartEvent):
            found[key.value] = _sequence(events)
        elif nested:
            raise ValueError(f"the map at {key.value!r} lies too deep")
        else:
            found[key.value] = _mapping(events, nested=True)  # type: ignore[assignment]  # the inner one has no maps
    raise ValueError("it ends early")


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

"""The filter language of MemoryProtocol (§7): one field, held against one value.

`field = 'value'` is equality, `field LIKE 'prefix%'` begins with. The field is read first and ends at the first
separator, so that a value may hold whatever it likes but a quote.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NoReturn

from memoree.envelope import WireModel
from memoree.errors import invalid, shown

METADATA_PREFIX: Final = "metadata."
_SEPARATOR = re.compile(" (=|LIKE) ")
_QUOTE = "'"
_WILDCARD = "%"


class Filter(WireModel):
    """What is to be found: `field` is any text, also one that nothing has."""

    field: str
    comparison: Literal["equals", "begins_with"]
    value: str

    @property
    def metadata_key(self) -> str | None:
        """The member of an episode's metadata that is meant, if one is."""
        return self.field.removeprefix(METADATA_PREFIX) if self.field.startswith(METADATA_PREFIX) else None


def parse_filter(text: str) -> Filter:
    """Raises `INVALID_REQUEST` for everything that is none, also where it only goes on after its end."""
    separator = _SEPARATOR.search(text)
    field = text[: separator.start()].strip() if separator is not None else ""
    if separator is None or not field:
        _no_filter(f"expected field = 'value' or field LIKE 'prefix%', got {shown(text)}")
    value = _quoted(text[separator.end() :].strip())
    if separator[1] == "=":
        return Filter(field=field, comparison="equals", value=value)
    prefix, wildcard, rest = value.partition(_WILDCARD)
    if not wildcard or rest:
        _no_filter(f"a pattern ends with {_WILDCARD} and has no other, got {shown(value)}")
    return Filter(field=field, comparison="begins_with", value=prefix)


def _quoted(text: str) -> str:
    """What stands between two quotes, of a text that is nothing else."""
    if not text.startswith(_QUOTE):
        _no_filter(f"the value stands in single quotes, got {shown(text)}")
    value, closing, rest = text[1:].partition(_QUOTE)
    if not closing:
        _no_filter("the closing quote of the value is missing")
    if rest:
        _no_filter(f"nothing may follow the value, got {shown(rest)}")
    return value


def _no_filter(why: str) -> NoReturn:
    invalid(f"filter: {why}")

"""A filter of MemoryProtocol (§7) as a condition on the rows of a search: a chunk `c`, its revision `r`, and the
version of an episode `p` that it is. Values are compared as text, byte by byte; none of them is ever a pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from memoree.episodes.filter import Filter
from memoree.retrieval.outlines import FUNCTION

CHUNK_TEXT = "coalesce(c.text, CAST(substr(r.body, c.start_byte + 1, c.end_byte - c.start_byte) AS TEXT), '')"

_COMPARISONS = {
    "equals": "{value} = :value",
    "begins_with": "({value} >= :value AND (:after IS NULL OR {value} < :after))",
}
_COLUMNS = {
    "source": "p.source",
    "episode_id": "p.episode_id",
    "text": CHUNK_TEXT,
    "offset": "CAST(c.start_byte AS TEXT)",
}
_IN_METADATA = """
    EXISTS (SELECT 1 FROM json_each(p.metadata) AS m WHERE m.key = :key AND m.type = 'text' AND {compared})
"""
_IN_HEADINGS = f"EXISTS (SELECT 1 FROM json_each({FUNCTION}(c.revision_row, c.start_byte)) AS h WHERE {{compared}})"  # noqa: S608
_LAST = "\U0010ffff"
_SURROGATES = range(0xD800, 0xE000)


class Condition(NamedTuple):
    """`reads_headings` where it needs `Outlines.in_sql`."""

    sql: str
    bindings: Mapping[str, Any]
    reads_headings: bool = False


EVERYTHING = Condition("TRUE", {})


def condition_of(filter: Filter | None) -> Condition | None:
    """`None` for a field that nothing has."""
    if filter is None:
        return EVERYTHING
    compared = _COMPARISONS[filter.comparison]
    value = filter.value.upper() if filter.field == "episode_id" else filter.value
    bindings = {"value": value, "after": first_after(value), "key": filter.metadata_key}
    if filter.metadata_key is not None:
        return Condition(_IN_METADATA.format(compared=compared.format(value="m.value")), bindings)
    if filter.field == "heading_path":
        sql = _IN_HEADINGS.format(compared=compared.format(value="h.value"))
        return Condition(sql, bindings, reads_headings=True)
    column = _COLUMNS.get(filter.field)
    return Condition(compared.format(value=column), bindings) if column is not None else None


def first_after(prefix: str) -> str | None:
    """The first text that stands behind all those which begin so; `None` where there is none."""
    if not (counted := prefix.rstrip(_LAST)):
        return None
    following = ord(counted[-1]) + 1
    return counted[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)

"""What a caller accepts, by weight (RFC 9110 §12.4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def weights(values: Iterable[bytes]) -> Mapping[bytes, float]:
    """Lower-case names in the values of a header such as `Accept`, and how much each is wanted: from 0, not at all, to
    1. A weight that is no number is 0."""
    found: dict[bytes, float] = {}
    for value in values:
        for choice in value.lower().split(b","):
            wanted, *parameters = (part.strip() for part in choice.split(b";"))
            weight = next((each[2:] for each in parameters if each.startswith(b"q=")), b"1")
            found[wanted] = max(found.get(wanted, 0.0), _number(weight))
    return found


def _number(weight: bytes) -> float:
    try:
        number = float(weight)
    except ValueError:
        return 0.0
    return number if 0.0 <= number <= 1.0 else 0.0

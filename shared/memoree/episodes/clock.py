"""Positions in a tenant's history as MemoryProtocol tells them (§4): readings of its hybrid logical clock."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn, Self

from pydantic import Field

from memoree.envelope import WireModel
from memoree.errors import invalid

U16_MAX, U32_MAX, U64_MAX = 2**16 - 1, 2**32 - 1, 2**64 - 1
COUNTER_BITS = 16
"""Of the counter within one stored reading; the wire has room for more."""
READING_MAX = 2**63 - 1
_DECIMAL = re.compile(r"0*([0-9]{1,20})")
_PARTS = (("wall_ms", "u64", U64_MAX), ("counter", "u32", U32_MAX), ("node_id", "u16", U16_MAX))


class Hlc(WireModel):
    """`{"wall_ms", "counter", "node_id"}`. A single node issues all of a tenant's, and is number 0."""

    wall_ms: int = Field(ge=0, le=U64_MAX)
    counter: int = Field(ge=0, le=U32_MAX)
    node_id: int = Field(default=0, ge=0, le=U16_MAX)

    @classmethod
    def of(cls, reading: int) -> Hlc:
        """Of a stored reading, see `memoree.clock.next_hlc`."""
        return Hlc.model_construct(wall_ms=reading >> COUNTER_BITS, counter=reading & U16_MAX, node_id=0)

    @property
    def reading(self) -> int:
        """The last stored reading that is no later: counters and nodes that none has stand after all that one has."""
        return min(self.wall_ms << COUNTER_BITS | min(self.counter, U16_MAX), READING_MAX)


def validity(reading: int) -> dict[str, Any]:
    """`bt` of what was made at that reading and is visible: to its reader nothing has ended it (§4)."""
    since = {"wall_ms": reading >> COUNTER_BITS, "counter": reading & U16_MAX, "node_id": 0}
    return {"valid": [since, None], "sys": [since, None]}


class Lsn(NamedTuple):
    """A commit's reading, without the node."""

    wall_ms: int
    counter: int

    @classmethod
    def of(cls, reading: int) -> Self:
        return cls(reading >> COUNTER_BITS, reading & U16_MAX)

    @property
    def reading(self) -> int:
        return Hlc(wall_ms=self.wall_ms, counter=self.counter).reading

    def to_wire(self) -> dict[str, Any]:
        return {"wall_ms": self.wall_ms, "counter": self.counter}


def parse_position(text: str) -> Hlc:
    """`<wall_ms>.<counter>` or `<wall_ms>.<counter>.<node_id>`, in ASCII digits (§9.1). Raises `INVALID_REQUEST`."""
    parts = text.split(".")
    if len(parts) not in (2, 3):
        _no_position("expected 2 or 3 dot-separated decimal components")
    values = {}
    for part, (name, kind, most) in zip(parts, _PARTS, strict=False):
        if (digits := _DECIMAL.fullmatch(part)) is None or int(digits[1]) > most:
            _no_position(f"{name} not a {kind}")
        values[name] = int(digits[1])
    return Hlc(**values)


def _no_position(why: str) -> NoReturn:
    invalid(f"expected wall_ms.counter[.node_id]; {why}")

"""Positions in a history as a path tells them (contract §9.1), and as readings of the clock (§4)."""

from __future__ import annotations

import pytest

from memoree.episodes.clock import READING_MAX, Hlc, Lsn, parse_position
from memoree.errors import Code, MemoreeError


@pytest.mark.proves("memoryprotocol-80")
@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("1.2", (1, 2, 0)),
        ("1.2.3", (1, 2, 3)),
        ("0.0", (0, 0, 0)),
        ("0001.0", (1, 0, 0)),
        (f"{2**64 - 1}.{2**32 - 1}.{2**16 - 1}", (2**64 - 1, 2**32 - 1, 2**16 - 1)),
    ],
)
def test_a_position_is_two_or_three_numbers(text: str, position: tuple[int, int, int]) -> None:
    found = parse_position(text)
    assert (found.wall_ms, found.counter, found.node_id) == position


@pytest.mark.proves("memoryprotocol-80")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1", "expected 2 or 3"),
        ("", "expected 2 or 3"),
        ("1.2.3.4", "expected 2 or 3"),
        ("1.", "counter not a u32"),
        (".1", "wall_ms not a u64"),
        ("a.1", "wall_ms not a u64"),
        ("-1.0", "wall_ms not a u64"),
        ("+1.0", "wall_ms not a u64"),
        ("1_0.0", "wall_ms not a u64"),
        ("1. 0", "counter not a u32"),
        ("0x1.0", "wall_ms not a u64"),
        ("\u0661.0", "wall_ms not a u64"),
        ("1.0\n", "counter not a u32"),
        (f"{2**64}.0", "wall_ms not a u64"),
        ("9" * 5000 + ".0", "wall_ms not a u64"),
        (f"1.{2**32}", "counter not a u32"),
        (f"1.0.{2**16}", "node_id not a u16"),
        ("1.0.", "node_id not a u16"),
    ],
)
def test_anything_else_is_none(text: str, why: str) -> None:
    with pytest.raises(MemoreeError, match=rf"^expected wall_ms\.counter\[\.node_id\]; {why}") as refused:
        parse_position(text)
    assert refused.value.code is Code.INVALID_REQUEST


@pytest.mark.parametrize("reading", [0, 1, 2**16 - 1, 2**16, 1776767400123 << 16 | 7, READING_MAX])
def test_a_reading_is_its_position_and_its_lsn(reading: int) -> None:
    assert Hlc.of(reading).reading == Lsn.of(reading).reading == reading
    assert Lsn.of(reading).to_wire() == {"wall_ms": reading >> 16, "counter": reading & 0xFFFF}


def test_what_no_reading_is_stands_after_all_that_are_before_it() -> None:
    """The wire has more counters and nodes than a stored reading has, and later milliseconds."""
    assert Hlc(wall_ms=5, counter=2**16 - 1).reading == Hlc(wall_ms=5, counter=2**32 - 1).reading == (6 << 16) - 1
    assert Hlc(wall_ms=5, counter=3, node_id=9).reading == 5 << 16 | 3
    assert Hlc(wall_ms=2**64 - 1, counter=0).reading == READING_MAX

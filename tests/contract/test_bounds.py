"""Every bound of every member is enforced to the byte (machine protocol §4.0.6, §8). Generated from the tables."""

from __future__ import annotations

from typing import Any

import pytest

from .door import Door, Json
from .fields import INPUTS
from .protocol import COMPLETE_INPUTS, FREE_FORM, KIB, OPERATIONS

TEXTS = [
    (op, name, member.bytes_max)
    for op in OPERATIONS
    for name, member in INPUTS.get(op, {}).items()
    if member.bytes_max is not None
]
LISTS = [
    ("claim.assert", "evidence", 128),
    ("claim.revise", "evidence", 128),
    ("projection.put", "evidence_spans", 64),
    ("feedback.record", "citations", 128),
]
PAGES = [op for op in OPERATIONS if "limit" in INPUTS.get(op, {})]
MAPS = [(op, name) for op in OPERATIONS for name in FREE_FORM if name in INPUTS.get(op, {})]
SPAN_BYTES_MAX = 1024
PREFIX = {"media_type": "a/"}
"""What a text must begin with to be one of its kind."""


def longest(name: str, bytes_max: int, unit: str) -> str:
    prefix = PREFIX.get(name, "")
    whole, rest = divmod(bytes_max - len(prefix), len(unit.encode()))
    return prefix + unit * whole + "x" * rest


def is_refused_for_its_form(door: Door, op: str, input: Json) -> bool:
    """Whether the input itself is refused. A well-formed one may still name what does not exist."""
    answer = door.call(op, input)
    return not answer["ok"] and answer["error"]["code"] == "INVALID_REQUEST"


@pytest.mark.proves("machine-30")
@pytest.mark.parametrize(("op", "member", "bytes_max"), TEXTS)
def test_a_text_is_measured_in_bytes(
    door: Door, specimen_inputs: dict[str, Json], op: str, member: str, bytes_max: int
) -> None:
    valid = specimen_inputs[op]
    with door.nothing_written():
        for unit in ("x", "é", "漢", "👩"):
            assert is_refused_for_its_form(door, op, valid | {member: longest(member, bytes_max, unit) + "x"})
        for blank in ("", " ", "\t\r\n", "\u3000"):
            assert is_refused_for_its_form(door, op, valid | {member: blank})
    text = longest(member, bytes_max, "👩")
    assert len(text.encode()) == bytes_max
    assert not is_refused_for_its_form(door, op, valid | {member: text})


@pytest.mark.proves("machine-30")
@pytest.mark.parametrize(("op", "member", "items_max"), LISTS)
def test_a_list_has_at_most_as_many_items(
    door: Door, specimen_inputs: dict[str, Json], op: str, member: str, items_max: int
) -> None:
    valid = specimen_inputs[op]
    items = [valid[member][0]] * (items_max + 1)
    if member == "evidence_spans":
        body = "x" * len(items)
        put = COMPLETE_INPUTS["artifact.put"] | {"content": {"type": "text", "data": body}}
        artifact = door.ok("artifact.put", put)
        valid |= {name: artifact[name] for name in ("artifact_id", "revision_id")}
        items = [{"start_byte": at, "end_byte": at + 1} for at in range(len(items))]
    assert is_refused_for_its_form(door, op, valid | {member: items})
    assert door.ok(op, valid | {member: items[1:]})[member] == items[1:]


@pytest.mark.proves("machine-30")
@pytest.mark.parametrize(("op", "member"), MAPS)
def test_a_map_is_measured_as_compact_json(door: Door, specimen_inputs: dict[str, Json], op: str, member: str) -> None:
    frame = len('{"é":""}'.encode())
    room = 60 * KIB if op == "source.ingest" else 64 * KIB  # an item's provenance must also hold where it comes from
    valid = specimen_inputs[op]
    assert is_refused_for_its_form(door, op, valid | {member: {"é": "x" * (64 * KIB - frame + 1)}})
    door.ok(op, valid | {member: {"é": "x" * (room - frame)}})


@pytest.mark.proves("machine-30")
@pytest.mark.parametrize("limit", [0, 101, -1, 1.0, "1", None, True, 2**64])
@pytest.mark.parametrize("op", PAGES)
def test_a_page_has_1_to_100_items(door: Door, specimen_inputs: dict[str, Json], op: str, limit: Any) -> None:
    assert is_refused_for_its_form(door, op, specimen_inputs[op] | {"limit": limit})


@pytest.mark.proves("machine-30")
@pytest.mark.parametrize("op", PAGES)
def test_a_page_of_1_and_of_100_can_be_asked_for(door: Door, specimen_inputs: dict[str, Json], op: str) -> None:
    for fits in (1, 100):
        door.ok(op, specimen_inputs[op] | {"limit": fits})


def test_a_span_of_a_projection_is_at_most_a_kibibyte(door: Door) -> None:
    put = COMPLETE_INPUTS["artifact.put"] | {"content": {"type": "text", "data": "x" * 2 * SPAN_BYTES_MAX}}
    artifact = door.ok("artifact.put", put)
    revision = {name: artifact[name] for name in ("artifact_id", "revision_id")}
    projection = COMPLETE_INPUTS["projection.put"] | revision
    fits = [{"start_byte": 0, "end_byte": SPAN_BYTES_MAX}, {"start_byte": 1024, "end_byte": 2 * SPAN_BYTES_MAX}]
    assert door.ok("projection.put", projection | {"evidence_spans": fits})["evidence_spans"] == fits
    too_long = [{"start_byte": 0, "end_byte": SPAN_BYTES_MAX + 1}]
    door.refused("INVALID_REQUEST", "projection.put", projection | {"evidence_spans": too_long})


@pytest.mark.parametrize("entry", ["c" * 513, "é" * 256 + "c", "", " ", None, 7])
def test_a_citation_of_feedback_is_a_text_of_1_to_512_bytes(door: Door, entry: Any) -> None:
    given = {"query": "cone", "outcome": "miss"}
    door.refused("INVALID_REQUEST", "feedback.record", given | {"citations": ["fits", entry]})
    longest_one = ["é" * 256]
    assert door.ok("feedback.record", given | {"citations": longest_one})["citations"] == longest_one


def test_the_tables_know_every_operation_with_members() -> None:
    """All but those of discovery and administration, which other tests are about."""
    plain = {op for op, input in COMPLETE_INPUTS.items() if not input} | {"instructions", "backup.create"}
    assert set(OPERATIONS) - set(INPUTS) == plain
    for op in INPUTS:
        assert INPUTS[op].keys() == COMPLETE_INPUTS[op].keys(), op

"""Ambient context: what it must look like and how it is echoed (machine protocol §2.1–2.3, §4.4)."""

from __future__ import annotations

from typing import Any

import pytest

from .door import OMIT, Door, Json
from .protocol import CONTEXT_FREE, HORIZON, NEEDS_CONTEXT
from .workbench import Workbench

ID_MEMBERS = ["workspace_id", "project_id", "task_id", "component"]
FULL: Json = {
    "workspace_id": "wsp_lab",
    "project_id": "prj_kiln",
    "task_id": "tsk_glaze",
    "component": "sensors",
    "pins": ["art_A", "memoree://artifact/art_A@arev_B"],
}


@pytest.mark.proves("machine-31")
@pytest.mark.parametrize("op", NEEDS_CONTEXT)
def test_an_operation_in_a_context_refuses_to_work_without_one(
    door: Door, specimen_inputs: dict[str, Any], op: str
) -> None:
    with door.nothing_written():
        error = door.refused("NO_AMBIENT_CONTEXT", op, specimen_inputs[op], context=None)
    assert error["retryable"] is False
    assert error["hint"]


@pytest.mark.proves("machine-32")
@pytest.mark.parametrize("op", [op for op in NEEDS_CONTEXT if op not in HORIZON])
def test_an_operation_in_a_context_echoes_it(door: Door, specimen_inputs: dict[str, Any], op: str) -> None:
    context = door.here(task_id="tsk_glaze", component="sensors", pins=FULL["pins"])
    answer = door.succeeded(op, specimen_inputs[op], context=context)
    assert answer["context"] == context | {"resolved_from": "none", "horizon": "ambient", "broadened": False}


@pytest.mark.proves("machine-32")
@pytest.mark.parametrize("horizon", ["ambient", "workspace", "personal"])
def test_search_echoes_its_horizon(door: Door, horizon: str) -> None:
    answer = door.succeeded("search", {"query": "cone", "horizon": horizon, "reason": "compare"})
    assert answer["context"] == door.context | {
        "pins": [],
        "resolved_from": "none",
        "horizon": horizon,
        "broadened": horizon != "ambient",
    }


@pytest.mark.proves("machine-32")
def test_optional_ids_are_left_out_and_pins_always_present(door: Door) -> None:
    context = door.succeeded("context.resolve", context=door.here(task_id=None, pins=None))["context"]
    assert "task_id" not in context and "component" not in context
    assert context["pins"] == []
    spelt_as_null = door.context | {"task_id": None, "component": None}
    assert door.succeeded("context.resolve", context=spelt_as_null)["context"] == context


@pytest.mark.proves("machine-33")
@pytest.mark.parametrize("source", ["explicit", "session", "marker", "personal", "none"])
def test_the_source_of_the_context_is_echoed_as_labelled(door: Door, source: str) -> None:
    assert door.succeeded("context.resolve", context_source=source)["context"]["resolved_from"] == source


@pytest.mark.proves("machine-33")
def test_the_raw_transport_adds_no_label_of_its_own(door: Door) -> None:
    assert door.succeeded("context.resolve", context_source=OMIT)["context"]["resolved_from"] == "none"


@pytest.mark.proves("machine-34")
@pytest.mark.parametrize("op", CONTEXT_FREE)
def test_a_context_free_operation_echoes_only_a_context_it_was_given(
    door: Door, specimen_inputs: dict[str, Any], op: str
) -> None:
    assert "context" not in door.succeeded(op, specimen_inputs[op], context=None)
    given = door.succeeded(op, specimen_inputs[op], context_source="marker")
    assert given["context"] == door.context | {
        "pins": [],
        "resolved_from": "marker",
        "horizon": "ambient",
        "broadened": False,
    }


def test_context_resolve_answers_the_echoed_context(door: Door) -> None:
    answer = door.succeeded("context.resolve", context=door.here(task_id="tsk_glaze"))
    assert answer["result"] == {"resolved": True, "context": answer["context"]}


@pytest.mark.proves("machine-35")
@pytest.mark.parametrize("op", ["doctor", "context.resolve", "artifact.put", "search"])
@pytest.mark.parametrize("member", ID_MEMBERS)
@pytest.mark.parametrize(
    "value", ["", "   ", "\t\n", "w" * 257, "é" * 128 + "w", 7, ["wsp"], {"$ne": ""}, True], ids=repr
)
def test_a_context_id_is_a_string_of_1_to_256_bytes(
    door: Door, specimen_inputs: dict[str, Any], op: str, member: str, value: Any
) -> None:
    door.refused("INVALID_REQUEST", op, specimen_inputs[op], context=door.context | {member: value})


@pytest.mark.proves("machine-35")
@pytest.mark.parametrize("member", ID_MEMBERS)
@pytest.mark.parametrize("longest", ["w" * 256, "é" * 128, "👩" * 64])
def test_a_context_id_of_256_bytes_is_accepted(door: Door, member: str, longest: str) -> None:
    answer = door.succeeded("context.resolve", context=door.context | {member: longest})
    assert answer["context"][member] == longest


@pytest.mark.proves("machine-35")
@pytest.mark.parametrize("member", ["workspace_id", "project_id"])
def test_workspace_and_project_are_required(door: Door, member: str) -> None:
    door.refused("INVALID_REQUEST", "doctor", context=door.here(**{member: None}))
    door.refused("INVALID_REQUEST", "doctor", context=door.context | {member: None})


@pytest.mark.proves("machine-35")
@pytest.mark.parametrize(
    "pins",
    [
        ["p"] * 129,
        [""],
        ["  "],
        ["p" * 513],
        ["é" * 256 + "p"],
        "art_A",
        [7],
        [None],
        [["art_A"]],
        {"0": "art_A"},
        None,
    ],
    ids=lambda pins: repr(pins)[:20],
)
def test_pins_are_at_most_128_strings_of_1_to_512_bytes(door: Door, pins: Any) -> None:
    door.refused("INVALID_REQUEST", "context.resolve", context=door.context | {"pins": pins})


@pytest.mark.proves("machine-35")
def test_the_largest_set_of_pins_is_accepted_and_echoed(door: Door, bench: Workbench) -> None:
    pins = ["p" * 512, "é" * 256, *(f"art_{number}" for number in range(126))]
    assert door.succeeded("context.resolve", context=door.here(pins=pins))["context"]["pins"] == pins
    assert bench.search("cone", how={"context": door.here(pins=pins)})["hits"] == []


def test_a_context_that_is_no_object_is_malformed(door: Door) -> None:
    values: list[Any] = ["wsp_lab", [], 1, True]
    for value in values:
        assert door.failed("INVALID_REQUEST", "doctor", context=value)["request_id"] == "req_transport"


def test_ids_are_opaque_and_need_no_registration(door: Door, bench: Workbench) -> None:
    odd = door.here(project_id="no prefix / ünïcode 👩‍🚀 %_*'\"")
    artifact = bench.put("opaque words", how={"context": odd})
    assert artifact["context"] == odd | {"pins": []}
    assert bench.found("opaque", how={"context": odd}) == [artifact["artifact_id"]]

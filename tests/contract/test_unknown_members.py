"""No typed object of any operation takes a member it does not know. Generated from complete inputs, and held against
the service's own JSON Schemas so that no nested object is overlooked."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from .door import Door
from .protocol import COMPLETE_INPUTS, FREE_FORM, OPERATIONS

Path = tuple[str | int, ...]


def typed_objects(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where the objects with a fixed set of members stand in an input, itself included."""
    if isinstance(value, dict):
        yield path
        for name, member in value.items():
            if name not in FREE_FORM:
                yield from typed_objects(member, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from typed_objects(item, (*path, index))


def at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


PLACES = [
    pytest.param(op, path, id=".".join(map(str, (op, *path))))
    for op, valid in COMPLETE_INPUTS.items()
    for path in typed_objects(valid)
]


@pytest.mark.proves("machine-9", "machine-10")
@pytest.mark.parametrize(("op", "path"), PLACES)
def test_an_unknown_input_member_is_refused_everywhere(
    door: Door, specimen_inputs: dict[str, Any], op: str, path: Path
) -> None:
    with door.nothing_written():
        for name, value in (("surplus", 1), ("", None), ("surplus", {"nested": []})):
            spoilt = copy.deepcopy(specimen_inputs[op])
            at(spoilt, path)[name] = value
            door.refused("INVALID_REQUEST", op, spoilt)


@pytest.mark.proves("machine-10")
def test_an_unknown_context_member_is_refused(door: Door) -> None:
    for op in ("doctor", "context.resolve", "search"):
        door.refused("INVALID_REQUEST", op, {"query": "cone"} if op == "search" else {}, context=door.here(team="x"))


@pytest.mark.proves("machine-9")
@pytest.mark.parametrize("op", OPERATIONS)
def test_a_member_of_the_right_name_and_the_wrong_type_is_refused(
    door: Door, specimen_inputs: dict[str, Any], op: str
) -> None:
    with door.nothing_written():
        for name in specimen_inputs[op]:
            for wrong in (object_for(specimen_inputs[op][name]), [["nested"]], {"$ne": ""}):
                if name in FREE_FORM and isinstance(wrong, dict):
                    continue
                door.refused("INVALID_REQUEST", op, specimen_inputs[op] | {name: wrong})


def object_for(value: Any) -> Any:
    """A value of another JSON type."""
    return 7 if isinstance(value, str | dict | list | bool) else "seven"


@pytest.mark.parametrize("free_form", [{}, {"surplus": None}, {"a": {"b": [1, 2.5, "c", None, True, {"": []}]}}])
def test_a_free_form_map_takes_any_members_and_gives_them_back(door: Door, free_form: dict[str, Any]) -> None:
    put = {"kind": "note", "title": "t", "content": {"type": "text", "data": "x"}, "provenance": free_form}
    stored = door.ok("artifact.put", put)
    assert stored["provenance"] == free_form
    assert door.ok("artifact.get", {"artifact_id": stored["artifact_id"]})["provenance"] == free_form


@pytest.mark.proves("machine-218")
@pytest.mark.parametrize("op", OPERATIONS)
def test_the_published_schema_closes_every_typed_object_and_knows_every_member(door: Door, op: str) -> None:
    schema = door.ok("schema")["operation_inputs"][op]
    complete = COMPLETE_INPUTS[op]
    for path in typed_objects(complete):
        node = node_at(schema, schema, path, complete)
        assert node.get("additionalProperties") is False, f"{op} {path} is open"
        assert set(node.get("properties", {})) == set(at(complete, path)), f"{op} {path}"


@pytest.mark.proves("machine-9", "machine-10")
@pytest.mark.parametrize("op", OPERATIONS)
def test_the_published_schema_has_no_open_object_but_the_free_form_maps(door: Door, op: str) -> None:
    """Also inside of alternatives that no complete input takes."""
    schema = door.ok("schema")["operation_inputs"][op]
    open_objects = {name for name, node in objects_in(schema, "input") if node.get("additionalProperties") is not False}
    assert open_objects <= set(FREE_FORM)


def objects_in(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every schema of an object inside a schema, with the name of the member or definition it stands under."""
    if isinstance(node, list):
        for item in node:
            yield from objects_in(item, name)
    elif isinstance(node, dict):
        if node.get("type") == "object":
            yield name, node
        for keyword, inner in node.items():
            if keyword in ("properties", "$defs"):
                for inner_name, inner_node in inner.items():
                    yield from objects_in(inner_node, inner_name)
            elif keyword in ("items", "anyOf", "oneOf", "allOf"):
                yield from objects_in(inner, name)


def node_at(root: Any, schema: Any, path: Path, instance: Any) -> Any:
    """The object schema that governs `instance` at `path`."""
    schema = object_branch(root, schema, instance)
    if not path:
        return schema
    step, rest = path[0], path[1:]
    inner = schema["items"] if isinstance(step, int) else schema["properties"][step]
    return node_at(root, inner, rest, instance[step])


def object_branch(root: Any, schema: Any, instance: Any) -> Any:
    """Follow `$ref`, and pick the branch of a union that fits the instance's JSON type and tag."""
    while True:
        if "$ref" in schema:
            schema = at(root, tuple(schema["$ref"].removeprefix("#/").split("/")))
            continue
        branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if not branches:
            return schema
        schema = next(branch for branch in branches if fits(root, branch, instance))


def fits(root: Any, branch: Any, instance: Any) -> bool:
    resolved = object_branch(root, branch, instance)
    wanted = "object" if isinstance(instance, dict) else "array"
    if resolved.get("type") != wanted:
        return False
    tag = resolved.get("properties", {}).get("type", {})
    return "const" not in tag or tag["const"] == instance["type"]

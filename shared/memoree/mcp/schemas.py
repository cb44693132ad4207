"""JSON Schemas that every client digests: a plain object at the top, nothing by reference (field fault 58)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from memoree.operations.schema import result_schema

Schema = dict[str, Any]

_REFERENCE = "#/$defs/"
_DROPPED = frozenset({"$defs", "$schema", "title", "discriminator"})
"""Titles are the names of our classes and members, which tell a model nothing; discriminators refer to `$defs`."""
_MAPS = frozenset({"properties", "patternProperties"})
"""Whose members are names of the schema's subject, not words of JSON Schema."""


class _Arguments(GenerateJsonSchema):
    """An argument that may be left out is described by what it holds when it is not."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        document = super().default_schema(schema)
        if document.get("default", document) is None:
            del document["default"]
        return document


class _Payload(GenerateJsonSchema):
    """A member that may be null has two types: `anyOf` is more than some clients read."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        if isinstance(inner.get("type"), str):
            return {**inner, "type": [inner["type"], "null"]}
        return {"anyOf": [inner, {"type": "null"}]}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        document = super().default_schema(schema)
        document.pop("default", None)
        return document


def arguments_schema(model: type[BaseModel]) -> Schema:
    """What a tool takes. Members that are not in it are refused, and it says so."""
    document = _plain(model.model_json_schema(mode="validation", schema_generator=_Arguments))
    return {"type": "object", "properties": {}, "additionalProperties": False, **document}


def payload_schema(model: type[BaseModel]) -> Schema:
    """What a tool's answer holds, of a payload that is described in this package."""
    return _plain(model.model_json_schema(mode="validation", schema_generator=_Payload))


def operation_schema(model: type[BaseModel]) -> Schema:
    """What a tool's answer holds that is an operation's result as it stands."""
    return _plain(result_schema(model))


def _plain(document: Mapping[str, Any]) -> Schema:
    plain: Schema = _inlined(document, document.get("$defs", {}), ())
    assert plain["type"] == "object", "a tool's schema is one of an object"
    return plain


def _inlined(node: Any, definitions: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    """The node with every definition where it is used. What a class says of itself is for programmers, and is left out
    with it."""
    if isinstance(node, list):
        return [_inlined(item, definitions, within) for item in node]
    if not isinstance(node, Mapping):
        return node
    if isinstance(reference := node.get("$ref"), str):
        name = reference.removeprefix(_REFERENCE)
        assert name not in within, f"{name} refers to itself"
        own = {word: value for word, value in definitions[name].items() if word != "description"}
        beside = {word: value for word, value in node.items() if word != "$ref"}
        return _inlined({**own, **beside}, definitions, (*within, name))
    plain: Schema = {}
    for word, value in node.items():
        if word in _MAPS and isinstance(value, Mapping):
            plain[word] = {name: _inlined(item, definitions, within) for name, item in value.items()}
        elif word not in _DROPPED:
            plain[word] = _inlined(value, definitions, within)
    return plain

"""`schema`: the JSON Schemas of the envelopes, and of every operation's input and result (machine protocol §4.3).

Each one is a root of dialect 2020-12 that stands alone: its references point into itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from memoree.envelope import PROTOCOL_VERSION, AmbientContext, Envelope
from memoree.errors import Code
from memoree.operations.call import Call
from memoree.operations.context import ResolvedContext
from memoree.operations.registry import catalogue, read
from memoree.operations.shapes import EmptyInput, EvidenceLocator
from memoree.operations.view import View

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_BUNDLE_VERSION = 1


class SchemaBundle(BaseModel):
    schema_bundle_version: int
    protocol_version: int
    request: dict[str, Any]
    response: dict[str, Any]
    operation_inputs: dict[str, dict[str, Any]]
    result_types: dict[str, dict[str, Any]]
    supporting_types: dict[str, dict[str, Any]]


class Warning(BaseModel):
    code: str
    message: str


class ErrorBody(BaseModel):
    """`details` is null for codes that define none."""

    code: Code
    message: str
    retryable: bool
    hint: str | None = None
    details: dict[str, Any]


class Response(BaseModel):
    """A success has `result`, a failure `error`; `context` and `commit_seq` come with successes that have them."""

    v: int
    request_id: str
    ok: bool
    context: ResolvedContext | None = None
    commit_seq: int | None = None
    result: dict[str, Any] | None = None
    error: ErrorBody | None = None
    warnings: list[Warning]


@read("schema", position=4, input=EmptyInput, result=SchemaBundle, needs_context=False)
def schema(view: View, call: Call[EmptyInput]) -> SchemaBundle:
    return bundle()


@cache
def bundle() -> SchemaBundle:
    """The result of the operation, which depends on nothing but this program."""
    operations = catalogue()
    return SchemaBundle(
        schema_bundle_version=SCHEMA_BUNDLE_VERSION,
        protocol_version=PROTOCOL_VERSION,
        request=_request(list(operations)),
        response=_response(),
        operation_inputs={name: input_schema(operation.input) for name, operation in operations.items()},
        result_types={name: result_schema(operation.result) for name, operation in operations.items()},
        supporting_types={"evidence_locator": input_schema(EvidenceLocator)},
    )


class _ResultSchema(GenerateJsonSchema):
    """Results omit members without a value; null is never one."""

    def field_is_required(
        self,
        field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField,
        total: bool,
    ) -> bool:
        return field["schema"]["type"] != "nullable" and super().field_is_required(field, total)

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        document = super().default_schema(schema)
        if document.get("default", document) is None:
            del document["default"]
        return document


def input_schema(model: type[BaseModel]) -> dict[str, Any]:
    """What a caller sends."""
    return _root(model.model_json_schema(mode="validation"))


def result_schema(model: type[BaseModel]) -> dict[str, Any]:
    """What an answer holds: members without a value are absent, never null."""
    return _root(model.model_json_schema(mode="serialization", schema_generator=_ResultSchema))


def _request(operations: list[str]) -> dict[str, Any]:
    """The envelope, with the types its context and input have once they are judged."""
    typed = create_model(
        "Request", __base__=Envelope, context=(AmbientContext | None, None), input=(dict[str, Any], ...)
    )
    document = input_schema(typed)
    document["properties"]["v"] |= {"const": PROTOCOL_VERSION}
    document["properties"]["op"] |= {"enum": operations}
    # An input that is missing is refused by the operation, so the envelope itself names only these two.
    document["required"] = ["request_id", "op"]
    return document


def _response() -> dict[str, Any]:
    document = result_schema(Response)
    details = document["$defs"][ErrorBody.__name__]["properties"]["details"]
    details["type"] = [details["type"], "null"]
    return document


def _root(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"$schema": DIALECT, **document}

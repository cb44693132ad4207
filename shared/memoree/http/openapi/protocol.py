"""The machine protocol over HTTP: single calls, many of them, and what became of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from memoree import limits
from memoree.errors import HTTP_STATUS
from memoree.http.openapi.components import Components, Json, ref
from memoree.http.openapi.examples import ATTEMPT_ID, call_examples
from memoree.http.openapi.parts import ADMISSION, FAILURES, PREFER, STRONG, answer, refusals, text_of
from memoree.ids import ATTEMPT_PATTERN
from memoree.operations.registry import Operation, catalogue
from memoree.operations.schema import SchemaBundle

NDJSON = "application/x-ndjson"


def call(components: Components, schemas: SchemaBundle) -> Json:
    operations = catalogue()
    envelope = schemas.request
    components.sent("Request", envelope)
    requests = [
        _request(components, envelope, operation, schemas.operation_inputs[name])
        for name, operation in operations.items()
    ]
    results = [components.answered(f"{name}.result", schema) for name, schema in schemas.result_types.items()]
    _response_envelopes(components, schemas.response, results)
    examples = {name: {"summary": name, "value": value} for name, value in call_examples(operations).items()}
    return {
        "operationId": "call",
        "summary": "Run one operation of the machine protocol",
        "description": "`op` decides what `input` holds and what the answer's `result` does. A mutation needs an "
        "`idempotency_key`, here or in the header: the identical request with the same key is always a safe retry.",
        "parameters": [
            STRONG,
            PREFER,
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "Stands in for the envelope's `idempotency_key`; two different keys are refused.",
                "schema": text_of(limits.IDEMPOTENCY_KEY_BYTES_MAX),
            },
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"oneOf": requests}, "examples": examples}},
        },
        "responses": {
            "200": answer("The operation's result", ref("Success"), "Memoree-Commit-Seq"),
            **refusals({*HTTP_STATUS.values(), 415}),
        },
    }


def _request(components: Components, envelope: Mapping[str, Any], operation: Operation, input: Json) -> Json:
    """The envelope as this operation wants it."""
    members = {name: value for name, value in envelope["properties"].items() if name not in ("op", "input")}
    required = ["request_id", "op", "input"]
    members["request_id"] = text_of(limits.REQUEST_ID_BYTES_MAX)
    if operation.mutating:
        required.append("idempotency_key")
        members["idempotency_key"] = text_of(limits.IDEMPOTENCY_KEY_BYTES_MAX)
    if operation.needs_context:
        required.append("context")
        members["context"] = {"$ref": "#/$defs/AmbientContext"}
    wanted = {
        "type": "object",
        "title": operation.name,
        "additionalProperties": False,
        "properties": {
            **members,
            "op": {"const": operation.name},
            "input": components.sent(f"{operation.name}.input", input),
        },
        "required": required,
    }
    return components.sent(f"{operation.name}.request", {**wanted, "$defs": envelope["$defs"]})


def _response_envelopes(components: Components, response: Mapping[str, Any], results: list[Json]) -> None:
    """`Success` and `Failure`: the two forms of the response envelope."""
    members = {**response["properties"], "v": {"const": 1}}
    common = ["v", "request_id", "ok", "warnings"]
    for name, ok, own, absent in (
        ("Success", True, "result", ("error",)),
        ("Failure", False, "error", ("result", "context", "commit_seq")),
    ):
        properties = {key: value for key, value in members.items() if key not in absent} | {"ok": {"const": ok}}
        form = {"type": "object", "properties": properties, "required": [*common, own], "additionalProperties": False}
        components.answered(name, {**form, "$defs": response["$defs"]})
    components.schemas["Success"]["properties"]["result"] = {"anyOf": results}


def bulk(components: Components) -> Json:
    examples = call_examples(catalogue())
    lines = b"".join(orjson.dumps(examples[name]) + b"\n" for name in ("artifact.put", "claim.assert", "search"))
    return {
        "operationId": "bulk",
        "summary": "Run many operations, one envelope a line",
        "description": "Answers come line for line in the order of the requests. Mutations run together; a read waits "
        "for every line before it. A line that cannot be read is answered with the request id `req_transport`.",
        "parameters": [STRONG, PREFER],
        "requestBody": {
            "required": True,
            "content": {NDJSON: {"schema": {"type": "string"}, "examples": {"three lines": {"value": lines.decode()}}}},
        },
        "responses": {
            "200": {
                "description": "One response envelope a line, whatever became of each request",
                "content": {NDJSON: {"schema": {"type": "string"}}},
            },
            **refusals({*ADMISSION, 415, *FAILURES}),
        },
    }


def attempt(components: Components) -> Json:
    status = {
        "type": "object",
        "required": ["attempt_id", "state"],
        "additionalProperties": False,
        "properties": {
            "attempt_id": {"type": "string"},
            "state": {"type": "string", "enum": ["pending", "applied", "refused", "expired", "unknown"]},
            "commit_seq": {"type": "integer"},
            "result": {"type": "object"},
            "error": ref("ErrorBody"),
        },
    }
    components.schemas["AttemptStatus"] = status
    return {
        "operationId": "attempt",
        "summary": "What became of a write that was answered WRITE_PENDING",
        "parameters": [
            {
                "name": "attempt_id",
                "in": "path",
                "required": True,
                "schema": {"type": "string", "pattern": f"^{ATTEMPT_PATTERN}$"},
                "example": ATTEMPT_ID,
            }
        ],
        "responses": {
            "200": answer("What is known of it", ref("AttemptStatus")),
            **refusals({*ADMISSION, *FAILURES}),
        },
    }

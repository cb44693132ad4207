"""Large content: uploads that are named by a request afterwards, and the bytes of a revision."""

from __future__ import annotations

from memoree.http.openapi.components import Components, Json, ref
from memoree.http.openapi.parts import ADMISSION, FAILURES, HEADERS, IF_NONE_MATCH, REASONS, STRONG, answer, refusals
from memoree.ids import UPLOAD_PATTERN
from memoree.operations.schema import input_schema
from memoree.uploads import UploadDeclaration

_BYTES: Json = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_ANY_TYPE: Json = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
_SMALL_FILE: Json = {
    "size_bytes": 3,
    "blob_hash": "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
}


def declare(components: Components) -> Json:
    components.schemas["UploadTicket"] = {
        "type": "object",
        "required": ["upload_id", "method", "url", "headers", "expires_at"],
        "additionalProperties": False,
        "properties": {
            "upload_id": {"type": "string"},
            "method": {"const": "PUT"},
            "url": {"type": "string", "description": "Absolute where the store takes the bytes itself."},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "expires_at": {"type": "string", "format": "date-time"},
        },
    }
    body = components.sent("UploadDeclaration", input_schema(UploadDeclaration))
    example = {"three bytes": {"summary": "Three bytes", "value": _SMALL_FILE}}
    return {
        "operationId": "declare_upload",
        "summary": "Declare content that is too large for a request",
        "description": "Send the bytes to the `url` of the answer, then name the upload as an artifact's content.",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": body, "examples": example}},
        },
        "responses": {
            "201": answer("Where and how to send the bytes", ref("UploadTicket")),
            **refusals({*ADMISSION, 413, 415, *FAILURES}),
        },
    }


def receive() -> Json:
    return {
        "operationId": "send_upload",
        "summary": "Send the bytes of an upload to this service",
        "description": "Only where the ticket's `url` leads here. Sending them again replaces them.",
        "parameters": [_path("upload_id", {"type": "string", "pattern": f"^{UPLOAD_PATTERN}$"})],
        "requestBody": {"required": True, "content": _BYTES},
        "responses": {
            "204": {"description": "Stored"},
            **refusals({*ADMISSION, 404, 411, 415, *FAILURES}),
        },
    }


def fetch() -> Json:
    headers = {name: HEADERS[name] for name in ("ETag", "Memoree-Commit-Seq")}
    return {
        "operationId": "content",
        "summary": "The bytes of a revision",
        "description": "Streamed, under the revision's own media type. Its `ETag` is the digest of the bytes.",
        "parameters": [
            _path("artifact_id", {"type": "string", "minLength": 1}),
            _path("revision_id", {"type": "string", "minLength": 1}),
            _header("Range", "`bytes=FROM-TO`, one range; others are answered with everything."),
            _header("If-Range", "The `ETag` that the range belongs to."),
            IF_NONE_MATCH,
            STRONG,
        ],
        "responses": {
            "200": {"description": "All of them", "content": _ANY_TYPE, "headers": headers},
            "206": {"description": "The range that was asked for", "content": _ANY_TYPE, "headers": headers},
            "304": {"description": REASONS[304]},
            **refusals({*ADMISSION, 404, 416, *FAILURES}),
        },
    }


def _path(name: str, schema: Json) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _header(name: str, description: str) -> Json:
    return {"name": name, "in": "header", "description": description, "schema": {"type": "string"}}

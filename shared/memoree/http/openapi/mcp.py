"""`/mcp`, of which this document tells the outside: what is said there is JSON-RPC (`docs/mcp.md`)."""

from __future__ import annotations

from memoree.http.openapi.components import Json
from memoree.http.openapi.parts import ADMISSION, FAILURES, answer, refusals

_MESSAGE: Json = {
    "type": "object",
    "required": ["jsonrpc", "method"],
    "properties": {"jsonrpc": {"const": "2.0"}, "method": {"type": "string", "minLength": 1}},
}
_ANSWER: Json = {"type": "object", "required": ["jsonrpc"], "properties": {"jsonrpc": {"const": "2.0"}}}
_REFUSAL: Json = {"type": "object", "required": ["error"]}
"""JSON-RPC's of what came as far as the protocol, an envelope's of what did not."""


def post() -> Json:
    told = refusals({*ADMISSION, 404, 406, 408, 413, 415, *FAILURES})
    for status in ("400", "404", "406"):
        told[status] = {
            "description": told[status]["description"],
            "content": {name: {"schema": _REFUSAL} for name in ("application/json", "application/problem+json")},
        }
    return {
        "operationId": "mcp",
        "summary": "The Model Context Protocol, for the host of a model",
        "description": "One JSON-RPC message of streamable HTTP, without sessions and event streams. "
        "`Accept` must name `application/json`.",
        "parameters": [
            {
                "name": "profile",
                "in": "query",
                "description": "Which tools: all of them, or the ten of the OKF memory protocol.",
                "schema": {"type": "string", "enum": ["agent", "okf"]},
            },
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _MESSAGE}}},
        "responses": {
            "200": answer("The answer to a request", _ANSWER),
            "202": {"description": "A notification was taken"},
            **told,
        },
    }

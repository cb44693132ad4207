"""The routes that need no token."""

from __future__ import annotations

from memoree.http.openapi.components import Json
from memoree.http.openapi.parts import IF_NONE_MATCH, REASONS, answer, plain_refusals


def open_paths(*, metrics: bool) -> dict[str, Json]:
    document = {"type": "object"}
    paths = {
        "/v1/schema": _open("schema", "JSON Schemas of every envelope, input and result", document, kept=True),
        "/openapi.json": _open("openapi", "This document", document, kept=True),
        "/docs": _open("docs", "This document, to be read", {"type": "string"}, kept=True, media_type="text/html"),
        "/livez": _open("livez", "Is the process alive?", document),
        "/readyz": _open("readyz", "Would a write work right now?", document),
        "/healthz": _open("healthz", "Which service is this, and which version?", document),
    }
    paths["/readyz"]["get"]["responses"]["503"] = answer("It would not", document)
    if metrics:
        text = {"type": "string"}
        paths["/metrics"] = _open("metrics", "Measurements", text, media_type="text/plain")
        off = answer("They were switched off at the start", text, media_type="text/plain")
        paths["/metrics"]["get"]["responses"]["404"] = off
    return paths


def _open(name: str, summary: str, schema: Json, *, kept: bool = False, media_type: str = "application/json") -> Json:
    """A GET that needs no token. `kept`: it has an ETag."""
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "security": [],
            "parameters": [IF_NONE_MATCH] if kept else [],
            "responses": {
                "200": answer(summary, schema, *(("ETag",) if kept else ()), media_type=media_type),
                **({"304": {"description": REASONS[304]}} if kept else {}),
                **plain_refusals(403, 500),
            },
        }
    }

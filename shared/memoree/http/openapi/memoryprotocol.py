"""The routes of MemoryProtocol (`docs/memoryprotocol.md`)."""

from __future__ import annotations

from memoree.http.memoryprotocol.forget import ForgetBody
from memoree.http.memoryprotocol.ingest import IngestBody
from memoree.http.memoryprotocol.recall import RecallBody
from memoree.http.openapi.components import Components, Json, ref
from memoree.http.openapi.parts import ADMISSION, FAILURES, answer, plain_refusals
from memoree.operations.schema import input_schema

_ULID: Json = {"type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$"}
_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The identical request with the same key is answered again and not done again.",
    "schema": {"type": "string", "minLength": 1},
}
_LSN: Json = {
    "type": "object",
    "required": ["wall_ms", "counter"],
    "additionalProperties": False,
    "properties": {name: {"type": "integer", "minimum": 0} for name in ("wall_ms", "counter")},
}
_HLC: Json = {
    "type": "object",
    "required": ["wall_ms", "counter", "node_id"],
    "additionalProperties": False,
    "properties": {name: {"type": "integer", "minimum": 0} for name in ("wall_ms", "counter", "node_id")},
}
_INTERVAL: Json = {
    "type": "array",
    "description": "Half-open; null is an end that has not come.",
    "prefixItems": [ref("Hlc"), {"anyOf": [ref("Hlc"), {"type": "null"}]}],
    "minItems": 2,
    "maxItems": 2,
}
_EXAMPLE: Json = {"source": "kiln:log/2026-03-02", "content": "# Firing 12\n\nCone 6 reached at 21:40."}


def _json_body(schema: Json, **examples: tuple[str, Json]) -> Json:
    """A request body; of each example, by its name, what it shows and the body itself."""
    content: Json = {"schema": schema}
    if examples:
        content["examples"] = {name: {"summary": told, "value": body} for name, (told, body) in examples.items()}
    return {"required": True, "content": {"application/json": content}}


def ingest(components: Components) -> Json:
    components.schemas["Ingested"] = {
        "type": "object",
        "required": ["lsn", "queue_lag_warn"],
        "additionalProperties": False,
        "properties": {
            "lsn": _LSN,
            "queue_lag_warn": {"type": "boolean", "description": "Many writes of the tenant wait for their turn."},
        },
    }
    body = components.sent("IngestBody", input_schema(IngestBody))
    return {
        "operationId": "ingest",
        "summary": "Store one episode",
        "description": "An episode of the same `id` is replaced; one that is the same already is left as it is.",
        "parameters": [_KEY],
        "requestBody": _json_body(body, minimal=("A source and a content", _EXAMPLE)),
        "responses": {
            "200": answer("Stored: every read sees it", ref("Ingested"), "Memoree-Commit-Seq"),
            **plain_refusals(*ADMISSION, 413, 415, 422, *FAILURES),
        },
    }


def recall(components: Components) -> Json:
    components.schemas["EpisodeHits"] = {
        "type": "array",
        "items": {"type": "object", "required": ["id", "score", "source", "degraded"]},
    }
    body = components.sent("RecallBody", input_schema(RecallBody))
    found = answer("Chunks of episodes, best first", ref("EpisodeHits"), "Memoree-Commit-Seq")
    found["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return {
        "operationId": "recall_episodes",
        "summary": "Find chunks of episodes",
        "description": "Who accepts `text/event-stream` gets one event a hit.",
        "requestBody": _json_body(body),
        "responses": {"200": found, **plain_refusals(*ADMISSION, 413, 415, 422, 501, *FAILURES)},
    }


def forget(components: Components) -> Json:
    components.schemas["ForgetReceipt"] = {
        "type": "object",
        "required": ["target", "indices_affected", "matched", "rows_written", "rows_deleted", "audit_lsn", "preview"],
        "properties": {
            "target": {"type": "object"},
            "indices_affected": {"type": "array", "items": {"type": "string"}},
            **{name: {"type": "integer", "minimum": 0} for name in ("matched", "rows_written", "rows_deleted")},
            "audit_lsn": _LSN,
            "preview": {"type": "boolean"},
            "erasure": {"type": "object", "description": "Of a deletion: its id, when it was, and the artifacts."},
            "stores": {
                "type": "object",
                "description": "Of a deletion: by store, `erased`, or `retained_until` and an instant.",
                "additionalProperties": {"type": "string"},
            },
            "recorded_in_second_bucket_by": {"type": "string", "format": "date-time"},
        },
    }
    body = components.sent("ForgetBody", input_schema(ForgetBody))
    preview = {"target": {"Scope": {"BySource": "kiln:"}}, "dry_run": True}
    return {
        "operationId": "forget",
        "summary": "Forget episodes",
        "description": "`hard` deletes for good, and needs the receipt of a dry run as `confirmation_token`.",
        "parameters": [_KEY],
        "requestBody": _json_body(body, preview=("A dry run", preview)),
        "responses": {
            "200": answer("What matched, and what became of it", ref("ForgetReceipt"), "Memoree-Commit-Seq"),
            **plain_refusals(*ADMISSION, 404, 413, 415, 422, 428, *FAILURES),
        },
    }


def snapshot() -> Json:
    position = {"type": "string", "pattern": r"^[0-9]+\.[0-9]+(\.[0-9]+)?$"}
    return {
        "operationId": "snapshot",
        "summary": "All that was visible at a position",
        "description": "A line of JSON each, with a key and a value.",
        "parameters": [{"name": "lsn", "in": "path", "required": True, "schema": position, "example": "0.0"}],
        "responses": {
            "200": answer("The lines", {"type": "string"}, "Memoree-Commit-Seq", media_type="application/x-ndjson"),
            **plain_refusals(*ADMISSION, 404, *FAILURES),
        },
    }


def episode(components: Components) -> Json:
    components.schemas["Hlc"] = _HLC
    components.schemas["Episode"] = {
        "type": "object",
        "required": ["id", "scope", "source", "content", "t_ref", "metadata", "bt"],
        "additionalProperties": False,
        "properties": {
            "id": _ULID,
            "scope": {"type": "string", "description": "The tenant."},
            "source": {"type": "string"},
            "content": {"type": "string"},
            "t_ref": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "metadata": {"type": "object"},
            "bt": {
                "type": "object",
                "required": ["valid", "sys"],
                "additionalProperties": False,
                "properties": {"valid": _INTERVAL, "sys": _INTERVAL},
            },
        },
    }
    return {
        "operationId": "episode",
        "summary": "One episode as it is now",
        "parameters": [{"name": "episode_id", "in": "path", "required": True, "schema": _ULID}],
        "responses": {
            "200": answer("The episode", ref("Episode"), "Memoree-Commit-Seq"),
            **plain_refusals(*ADMISSION, 404, *FAILURES),
        },
    }

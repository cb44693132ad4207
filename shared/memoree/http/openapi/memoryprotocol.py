"""The routes of MemoryProtocol (`docs/memoryprotocol.md`)."""

from __future__ import annotations

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


def ingest(components: Components) -> Json:
    components.schemas["Ingested"] = {
        "type": "object",
        "required": ["lsn", "queue_lag_warn"],
        "additionalProperties": False,
        "properties": {
            "lsn": {
                "type": "object",
                "required": ["wall_ms", "counter"],
                "additionalProperties": False,
                "properties": {name: {"type": "integer", "minimum": 0} for name in ("wall_ms", "counter")},
            },
            "queue_lag_warn": {"type": "boolean", "description": "Many writes of the tenant wait for their turn."},
        },
    }
    body = components.sent("IngestBody", input_schema(IngestBody))
    return {
        "operationId": "ingest",
        "summary": "Store one episode",
        "description": "An episode of the same `id` is replaced; one that is the same already is left as it is.",
        "parameters": [_KEY],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": body,
                    "examples": {"minimal": {"summary": "A source and a content", "value": _EXAMPLE}},
                }
            },
        },
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
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": found, **plain_refusals(*ADMISSION, 413, 415, 422, 501, *FAILURES)},
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

"""The change feed."""

from __future__ import annotations

from memoree import limits
from memoree.http.openapi.components import Components, Json, ref
from memoree.http.openapi.parts import ADMISSION, FAILURES, STRONG, answer, refusals
from memoree.operations.feed import EventRecord
from memoree.operations.schema import result_schema

_FROM_0: Json = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_FROM_1: Json = {**_FROM_0, "minimum": 1}


def feed(components: Components) -> Json:
    event = components.answered("AuditEvent", result_schema(EventRecord))
    components.schemas["EventPage"] = {
        "type": "object",
        "required": ["events", "next_after", "next_event_id", "commit_seq"],
        "additionalProperties": False,
        "properties": {
            "events": {"type": "array", "maxItems": limits.FEED_EVENTS_MAX, "items": event},
            "next_after": {"type": "integer"},
            "next_event_id": {"type": ["string", "null"]},
            "commit_seq": {"type": "integer"},
        },
    }
    return {
        "operationId": "events",
        "summary": "Follow what is committed",
        "description": "Audit events after a commit number, in order. Without any it waits for the first. "
        "410 says that the number is none of this store's; `details.resume_after` is where to go on.",
        "parameters": [
            _query("after", "The `next_after` of the page before; without it, everything.", _FROM_0, 0),
            _query("after_event_id", "Its `next_event_id`, which proves that it is this store's.", {"type": "string"}),
            _query("wait", f"Seconds; over {limits.FEED_WAIT_SECONDS_MAX:g} counts as that many.", _FROM_0, 0),
            _query("limit", f"Events of one page; over {limits.FEED_EVENTS_MAX} counts as that many.", _FROM_1, 10),
            STRONG,
        ],
        "responses": {
            "200": answer("One page, which has none when the time was over", ref("EventPage"), "Memoree-Commit-Seq"),
            **refusals({*ADMISSION, 410, *FAILURES}),
        },
    }


def _query(name: str, description: str, schema: Json, example: int | None = None) -> Json:
    told = {"name": name, "in": "query", "description": description, "schema": schema}
    return told if example is None else {**told, "example": example}

"""Short ways to put entities into the store and to read search answers."""

from __future__ import annotations

import base64
import re
from typing import Any

from .door import Door, Json

_SPAN = re.compile(r"#(\d+)-(\d+)$")


def text(data: str) -> Json:
    return {"type": "text", "data": data}


def raw(data: bytes) -> Json:
    return {"type": "base64", "data": base64.b64encode(data).decode()}


def body_of(record: Json) -> bytes:
    """The bytes that an `artifact.get` result carries."""
    content = record["content"]
    if content["type"] == "text":
        return str(content["data"]).encode()
    return base64.b64decode(content["data"], validate=True)


def span_of(hit: Json) -> tuple[int, int] | None:
    """The byte span a hit's citation names, None for a citation of a whole revision."""
    match = _SPAN.search(hit["citation"])
    return (int(match[1]), int(match[2])) if match else None


def entity_ids(answer: Json) -> list[str]:
    return [hit["entity_id"] for hit in answer["hits"]]


class Workbench:
    def __init__(self, door: Door) -> None:
        self.door = door

    def put(self, body: str | bytes = "cone 6 reached at 21:40", *, how: Json | None = None, **fields: Any) -> Json:
        """The acknowledgement of a new artifact. `how` goes to the call, `fields` into the input."""
        content = text(body) if isinstance(body, str) else raw(body)
        defaults = {"kind": "note", "title": "Kiln firing 12", "content": content}
        return self.door.ok("artifact.put", defaults | fields, **(how or {}))

    def revise(self, artifact: Json, body: str = "revised", *, how: Json | None = None, **fields: Any) -> Json:
        defaults = {
            "artifact_id": artifact["artifact_id"],
            "if_revision": artifact["revision_id"],
            "content": text(body),
        }
        return self.door.ok("artifact.revise", defaults | fields, **(how or {}))

    def forget(self, artifact: Json, *, how: Json | None = None) -> Json:
        wanted = {"artifact_id": artifact["artifact_id"], "reason": "dropped"}
        return self.door.ok("artifact.forget", wanted, **(how or {}))

    def get(self, artifact_id: str, revision_id: str | None = None) -> Json:
        wanted = {"artifact_id": artifact_id}
        if revision_id is not None:
            wanted["revision_id"] = revision_id
        return self.door.ok("artifact.get", wanted, context=None)

    def claim(self, statement: str = "Firing 12 reached cone 6.", *, how: Json | None = None, **fields: Any) -> Json:
        defaults = {"claim_type": "fact", "statement": statement}
        return self.door.ok("claim.assert", defaults | fields, **(how or {}))

    def revise_claim(self, claim: Json, statement: str = "It was cone 5.5.", **fields: Any) -> Json:
        defaults = {
            "claim_id": claim["claim_id"],
            "if_revision": claim["revision_id"],
            "statement": statement,
        }
        return self.door.ok("claim.revise", defaults | fields)

    def retract(self, claim: Json, reason: str = "the thermocouple was faulty") -> Json:
        return self.door.ok("claim.retract", {"claim_id": claim["claim_id"], "reason": reason})

    def search(self, query: str, *, how: Json | None = None, **fields: Any) -> Json:
        return self.door.ok("search", {"query": query} | fields, **(how or {}))

    def found(self, query: str, *, how: Json | None = None, **fields: Any) -> list[str]:
        """The ids of the hits of a search, in order."""
        return entity_ids(self.search(query, how=how, **fields))

    def bytes_at(self, hit: Json) -> bytes:
        """The bytes that the citation of an artifact hit names."""
        span = span_of(hit)
        assert span is not None, f"{hit['citation']} names no span"
        return body_of(self.get(hit["entity_id"], hit["revision_id"]))[span[0] : span[1]]

"""Short ways to put entities into the store and to read search answers."""

from __future__ import annotations

import base64
import re
from pathlib import Path
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


def entity_of(record: Json) -> tuple[str, str]:
    """The type and id by which relations name an artifact or a claim."""
    return ("claim", record["claim_id"]) if "claim_id" in record else ("artifact", record["artifact_id"])


def edge_input(source: Json, relation: str, target: Json) -> Json:
    (source_type, source_id), (target_type, target_id) = entity_of(source), entity_of(target)
    return {
        "source_type": source_type,
        "source_id": source_id,
        "relation": relation,
        "target_type": target_type,
        "target_id": target_id,
    }


def projection_input(artifact: Json) -> Json:
    return {
        "artifact_id": artifact["artifact_id"],
        "revision_id": artifact["revision_id"],
        "projection_key": "summary",
        "kind": "summary",
        "text": "green iron glaze",
        "evidence_spans": [{"start_byte": 0, "end_byte": 4}],
        "generator": "acme-summariser",
        "generator_version": "3",
        "generator_digest": "sha256:00ff",
    }


def delivery_input(
    source: Json, external_id: str = "page-4", external_revision: str = "v9", body: str = "Celadon: 2% iron oxide"
) -> Json:
    return {
        "source_id": source["source_id"],
        "external_id": external_id,
        "external_revision": external_revision,
        "kind": "wiki_page",
        "title": "Glaze recipes",
        "content": text(body),
    }


class Specimens(dict[str, str]):
    """What complete inputs name in braces, made when it is first asked for."""

    def __init__(self, bench: Workbench, destination: Path) -> None:
        super().__init__(destination=str(destination))
        self._bench = bench

    def __missing__(self, name: str) -> str:
        self.update(self._made_for(name))
        return self[name]

    def _made_for(self, name: str) -> dict[str, str]:
        bench = self._bench
        match name:
            case "artifact" | "artifact_revision":
                artifact = bench.put()
                return {"artifact": artifact["artifact_id"], "artifact_revision": artifact["revision_id"]}
            case "claim" | "claim_revision":
                claim = bench.claim()
                return {"claim": claim["claim_id"], "claim_revision": claim["revision_id"]}
            case "other_claim":
                return {name: bench.claim("Firing 12 reached cone 5.")["claim_id"]}
            case "source":
                return {name: bench.source()["source_id"]}
            case "source_of_item":
                source = bench.source()
                bench.ingest(source)
                return {name: source["source_id"]}
            case "projection":
                return {name: bench.project(bench.put())["projection_id"]}
            case "feedback":
                return {name: bench.feedback()["feedback_id"]}
        raise KeyError(name)

    def filled(self, value: Any) -> Any:
        """The value with every name in braces replaced, at any depth."""
        if isinstance(value, dict):
            return {name: self.filled(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        return value.format_map(self) if isinstance(value, str) else value


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

    def revise_claim(
        self, claim: Json, statement: str = "It was cone 5.5.", *, how: Json | None = None, **fields: Any
    ) -> Json:
        defaults = {
            "claim_id": claim["claim_id"],
            "if_revision": claim["revision_id"],
            "statement": statement,
        }
        return self.door.ok("claim.revise", defaults | fields, **(how or {}))

    def retract(self, claim: Json, reason: str = "the thermocouple was faulty", *, how: Json | None = None) -> Json:
        return self.door.ok("claim.retract", {"claim_id": claim["claim_id"], "reason": reason}, **(how or {}))

    def relate(
        self, source: Json, relation: str, target: Json, *, metadata: Json | None = None, how: Json | None = None
    ) -> Json:
        """The acknowledgement of an edge between two records of artifacts or claims."""
        edge = edge_input(source, relation, target) | ({} if metadata is None else {"metadata": metadata})
        return self.door.ok("relation.put", edge, **(how or {}))

    def contradiction(self, *, how: Json | None = None) -> tuple[Json, Json, Json]:
        """Two new claims, and the edge by which the first contradicts the second."""
        source, target = self.claim("It reached cone 6.", how=how), self.claim("It reached cone 5.", how=how)
        return source, target, self.relate(source, "contradicts", target, how=how)

    def relations(self, anchor: Json, *, how: Json | None = None, **fields: Any) -> list[str]:
        """The ids of the first page of edges around an artifact or a claim."""
        entity_type, entity_id = entity_of(anchor)
        wanted = {"entity_type": entity_type, "entity_id": entity_id}
        page = self.door.ok("relation.list", wanted | fields, **(how or {}))
        return [edge["relation_id"] for edge in page["relations"]]

    def conflicts(self, *, how: Json | None = None, **fields: Any) -> list[Json]:
        """The cases of the first page of conflicts."""
        cases: list[Json] = self.door.ok("conflict.list", fields, **(how or {}))["conflicts"]
        return cases

    def status(self, claim: Json) -> str:
        current: str = self.door.ok("claim.get", {"claim_id": claim["claim_id"]}, context=None)["status"]
        return current

    def source(self, *, how: Json | None = None, **fields: Any) -> Json:
        return self.door.ok("source.register", {"name": "Studio wiki", "kind": "wiki_adapter"} | fields, **(how or {}))

    def ingest(
        self,
        source: Json,
        external_id: str = "page-4",
        external_revision: str = "v9",
        body: str = "Celadon: 2% iron oxide",
        *,
        how: Json | None = None,
        **fields: Any,
    ) -> Json:
        delivery = delivery_input(source, external_id, external_revision, body)
        return self.door.ok("source.ingest", delivery | fields, **(how or {}))

    def withdraw(self, source: Json, external_id: str = "page-4", *, how: Json | None = None) -> Json:
        wanted = {"source_id": source["source_id"], "external_id": external_id, "reason": "page deleted in the wiki"}
        return self.door.ok("source.withdraw", wanted, **(how or {}))

    def project(self, artifact: Json, *, how: Json | None = None, **fields: Any) -> Json:
        """The acknowledgement of a projection over the first four bytes of an artifact's current revision."""
        return self.door.ok("projection.put", projection_input(artifact) | fields, **(how or {}))

    def feedback(self, *, how: Json | None = None, **fields: Any) -> Json:
        wanted = {"query": "which cone did firing 12 reach", "outcome": "useful"}
        return self.door.ok("feedback.record", wanted | fields, **(how or {}))

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

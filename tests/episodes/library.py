"""Episodes in a store of their own, written and recalled as the doors do it, at instants that a test chooses."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from memoree import clock
from memoree.envelope import Envelope
from memoree.episodes.clock import Hlc
from memoree.episodes.filter import parse_filter
from memoree.operations.call import Call, validate
from memoree.operations.episodes import INGEST
from memoree.operations.recall_episodes import RECALL
from operations.bench import LAB, Bench, Json, text


class Library(Bench):
    """Every write is a millisecond after the one before it."""

    def request(
        self,
        op: str,
        input: Mapping[str, Any] | None = None,
        *,
        context: Mapping[str, Any] | None = LAB,
        key: str | None = None,
    ) -> Call[Any]:
        number = next(_numbers)
        return validate(
            Envelope(
                request_id=f"req_{number}",
                op=op,
                idempotency_key=key or f"key/{number}",
                context=dict(context) if context is not None else None,
                input=dict(input or {}),
            )
        )

    def ingest(self, content: str, source: str = "shelf", **fields: Any) -> Json:
        self.clock.advance(milliseconds=1)
        return self.write(INGEST, {"source": source, "content": text(content), **fields})

    def forget(self, episode: Json) -> None:
        self.clock.advance(milliseconds=1)
        self.write("artifact.forget", {"artifact_id": episode["artifact_id"], "reason": "no longer wanted"})

    def erase(self, episode: Json) -> None:
        self.clock.advance(milliseconds=1)
        self.write("store.erase", {"entities": [episode["artifact_id"]], "reason": "the author asked"})

    def now(self) -> Hlc:
        """What an `as_of` of this instant is. The next write is later."""
        self.clock.advance(milliseconds=1)
        return Hlc(wall_ms=clock.milliseconds(self.clock()), counter=0)

    def recall(
        self,
        query: str,
        *,
        k: int = 10,
        as_of: Hlc | None = None,
        filter: str | None = None,
        mode: str = "semantic",
    ) -> list[Json]:
        wanted = {
            "mode": mode,
            "query": query,
            "k": k,
            "as_of": as_of.model_dump() if as_of is not None else None,
            "filter": parse_filter(filter).model_dump() if filter is not None else None,
        }
        hits: list[Json] = self.read(RECALL, wanted)["hits"]
        return hits

    def relate(self, source: Json, target: Json, relation: str = "references") -> None:
        """Artifacts or claims, by their acknowledgements."""
        self.clock.advance(milliseconds=1)
        self.write("relation.put", {**_end("source", source), "relation": relation, **_end("target", target)})

    def cite(self, statement: str, *episodes: Json) -> Json:
        """A claim with these as its evidence."""
        self.clock.advance(milliseconds=1)
        evidence = [{"artifact_id": each["artifact_id"], "revision_id": each["revision_id"]} for each in episodes]
        return self.claim(statement, evidence=evidence)

    def texts(self, query: str, **how: Any) -> list[str]:
        return [hit["text"] for hit in self.recall(query, **how)]

    def sources(self, query: str, **how: Any) -> list[str]:
        return [hit["source"] for hit in self.recall(query, **how)]


def _end(side: str, entity: Json) -> Json:
    entity_type = "claim" if "claim_id" in entity else "artifact"
    return {f"{side}_type": entity_type, f"{side}_id": entity[f"{entity_type}_id"]}


_numbers = itertools.count(1)

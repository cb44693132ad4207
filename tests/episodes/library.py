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

    def recall(self, query: str, *, k: int = 10, as_of: Hlc | None = None, filter: str | None = None) -> list[Json]:
        wanted = {
            "query": query,
            "k": k,
            "as_of": as_of.model_dump() if as_of is not None else None,
            "filter": parse_filter(filter).model_dump() if filter is not None else None,
        }
        hits: list[Json] = self.read(RECALL, wanted)["hits"]
        return hits

    def texts(self, query: str, **how: Any) -> list[str]:
        return [hit["text"] for hit in self.recall(query, **how)]

    def sources(self, query: str, **how: Any) -> list[str]:
        return [hit["source"] for hit in self.recall(query, **how)]


_numbers = itertools.count(1)

"""Inputs about sources, projections and feedback (machine protocol §4.19 to §4.29)."""

from __future__ import annotations

import base64
from collections.abc import Callable

from contract.door import Json

from .choices import TIMES, WORDS, Choices, Written, unknown_if_lost
from .entities import Projection, Source


class SourceInputs(Choices):
    def _source(self) -> Source | None:
        return self._some(self.model.sources.values())

    def _source_register(self, twist: str) -> Written:
        named = {"name": self._fresh("kiln wiki"), "kind": "wiki"}
        rest = self._maybe(locator="https://wiki.example", metadata={"shelf": 1}, actor="agent/kiln")
        if twist == "same name":
            source = self._source()
            return None if source is None else (named | rest | {"name": source.name}, source.owner)
        return named | rest, self._place(None, twist)

    def _source_get(self, twist: str) -> Written:
        source = self._source()
        if source is None:
            return None
        return {"source_id": unknown_if_lost(source.id, twist)}, self._place(source.owner, twist)

    def _source_ingest(self, twist: str) -> Written:
        source = self._source()
        if source is None:
            return None
        place = self._place(source.owner, twist)
        delivery: Json = {
            "source_id": unknown_if_lost(source.id, twist),
            "external_id": f"page-{self._one('123')}",
            "external_revision": f"v{self._one('1234')}",
            "kind": "page",
        }
        delivery |= self._described() | self._maybe(cursor=self._one(["c-1", "c-2"]), observed_at=self._one(TIMES))
        live = [each for each in source.items.values() if each.is_live]
        if twist not in ("again", "clash", "orphaned", "other kind"):
            return delivery, place
        item = self._some(each for each in live if each.artifact.is_forgotten is (twist == "orphaned"))
        if item is None:
            return None
        delivery |= {"external_id": item.external_id}
        if twist == "other kind":
            return delivery | {"kind": "another", "external_revision": f"w{self._one('12')}"}, place
        payload = item.payload
        delivery |= {
            "external_revision": item.external_revision,
            "kind": payload["kind"],
            "title": payload["title"] if twist == "again" else "kiln, another title",
            "media_type": payload["media_type"],
            "content": item.revision.content() if item.revision.is_text else _base64(payload["body"]),
            "provenance": payload["provenance"],
        }
        return delivery, self._place(item.artifact.owner, "again")

    def _source_checkpoint(self, twist: str) -> Written:
        source = self._source()
        if source is None:
            return None
        told = {
            "source_id": unknown_if_lost(source.id, twist),
            "health": self._one(["healthy", "degraded", "error", "unknown"]),
        }
        rest = self._maybe(cursor="c-9", message="2 pages skipped", observed_at=self._one(TIMES), actor="agent/kiln")
        return told | rest, self._place(source.owner, twist)

    def _source_withdraw(self, twist: str) -> Written:
        items = [
            (source, item)
            for source in self.model.sources.values()
            for item in source.items.values()
            if item.is_live is (twist != "again")
        ]
        found = self._some(items)
        if found is None:
            return None
        source, item = found
        gone = {
            "source_id": unknown_if_lost(source.id, twist),
            "external_id": "page-0" if twist == "lost item" else item.external_id,
            "reason": self._one(["deleted", "moved"]),
        }
        return gone | self._maybe(observed_at=self._one(TIMES)), self._place(item.artifact.owner, twist)

    def _projection_put(self, twist: str) -> Written:
        if twist == "again":
            return self._projection_again()
        artifact = self._some(
            each
            for each in self.model.artifacts.values()
            if each.is_forgotten is (twist == "spent") and each.head.body and (twist != "stale" or each.head.number > 1)
        )
        if artifact is None:
            return None
        revision = self._one(artifact.revisions[:-1]) if twist == "stale" else artifact.head
        size = len(artifact.head.body)
        cut = self.pick.randint(1, size)
        spans = [{"start_byte": 0, "end_byte": cut}] + ([{"start_byte": cut, "end_byte": size}] if cut < size else [])
        if twist == "bad span":
            spans = self._one(
                [spans[::-1] + spans, [{"start_byte": 0, "end_byte": size + 1}], [{"start_byte": 1, "end_byte": 1}]]
            )
        derived = {
            "artifact_id": unknown_if_lost(artifact.id, twist),
            "revision_id": "arev_0" if twist == "lost revision" else revision.id,
            "projection_key": self._one(["summary", "alias"]),
            "kind": "summary",
            "text": f"a kiln, {self._one(['glazed', 'bare'])}",
            "evidence_spans": spans,
            "generator": "acme",
            "generator_version": "3",
            "generator_digest": "00ff",
        }
        return derived | self._maybe(metadata={"t": 0}, actor="agent/kiln"), self._place(artifact.owner, twist)

    def _projection_again(self) -> Written:
        projection = self._projection(
            lambda each: each.revision is each.artifact.head and not each.artifact.is_forgotten
        )
        if projection is None:
            return None
        bound = {"artifact_id": projection.artifact.id, "revision_id": projection.revision.id}
        return bound | projection.content | self._maybe(actor="agent/kiln"), self._place(projection.artifact.owner, "")

    def _projection(self, fit: Callable[[Projection], bool]) -> Projection | None:
        return self._some(each for each in self.model.projections.values() if fit(each))

    def _projection_list(self, twist: str) -> Written:
        projection = self._projection(lambda _: True)
        artifact = projection.artifact if projection is not None else self._any_artifact()
        if artifact is None:
            return None
        asked = self._maybe(limit=self._one([1, 100]), revision_id=self._one(artifact.revisions).id)
        return {"artifact_id": unknown_if_lost(artifact.id, twist)} | asked, self._place(artifact.owner, twist)

    def _projection_drop(self, twist: str) -> Written:
        projection = self._projection(lambda each: (each.dropped_reason is not None) is (twist == "again"))
        if projection is None:
            return None
        dropped = {"projection_id": unknown_if_lost(projection.id, twist), "reason": self._one(["withdrawn", "wrong"])}
        return dropped | self._maybe(actor="agent/kiln"), self._place(projection.artifact.owner, twist)

    def _feedback_record(self, twist: str) -> Written:
        query = self._one(["", "?!", "kiln " * 49]) if twist == "bad query" else self._one(WORDS)
        given = {"query": query, "outcome": self._one(["miss", "useful", "incorrect", "stale"])}
        rest = self._maybe(
            retain_query=self._one([True, False]), note="seen", citations=["anything"], actor="agent/kiln"
        )
        return given | rest, self._place(None, twist)

    def _feedback_get(self, twist: str) -> Written:
        given = self._some(self.model.feedback)
        if given is None:
            return None
        return {"feedback_id": unknown_if_lost(given.id, twist)}, self._place(given.owner, twist)

    def _feedback_list(self, twist: str) -> Written:
        return self._page("before_commit_seq", -1, self.model.commit_seq + 1), self._place(None, twist)

    _feedback_export = _feedback_list


def _base64(body: bytes) -> Json:
    return {"type": "base64", "data": base64.b64encode(body).decode()}

"""Inputs about artifacts and citations (machine protocol §4.5 to §4.10)."""

from __future__ import annotations

from contract.door import Json

from .choices import BODIES, LAB, Choices, Written, unknown_if_lost


class ArtifactInputs(Choices):
    def _artifact_put(self, twist: str) -> Written:
        content: Json = {"content": {"type": "base64", "data": "!"}} if twist == "bad content" else {}
        if twist == "in many scripts":
            content = {"content": {"type": "text", "data": BODIES[1]}, "media_type": "text/plain"}
        if twist == "of no text":
            content = {"content": {"type": "text", "data": BODIES[0]}, "media_type": "image/png"}
        return {"kind": self._one(["log", "note"])} | self._described() | content, self._place(None, twist)

    def _artifact_revise(self, twist: str) -> Written:
        artifact = self._artifact(forgotten=twist == "spent")
        if artifact is None:
            return None
        seen = artifact.head.id
        if twist == "stale":
            seen = self._one([each.id for each in artifact.revisions[:-1]] or ["arev_0"])
        described = self._described()
        if self.pick.random() < 0.5:
            del described["title"]
        target = {"artifact_id": unknown_if_lost(artifact.id, twist), "if_revision": seen}
        return target | described, self._place(artifact.owner, twist)

    def _artifact_forget(self, twist: str) -> Written:
        artifact = self._artifact(forgotten=twist == "spent")
        if twist == "delivered":
            live = [each for source in self.model.sources.values() for each in source.items.values() if each.is_live]
            artifact = self._some(each.artifact for each in live if not each.artifact.is_forgotten)
        if artifact is None:
            return None
        return {"artifact_id": unknown_if_lost(artifact.id, twist), "reason": "dropped"}, self._place(
            artifact.owner, twist
        )

    def _artifact_get(self, twist: str) -> Written:
        artifact = self._any_artifact()
        if artifact is None:
            return None
        revision = "arev_0" if twist == "lost revision" else self._one(artifact.revisions).id
        asked = self._maybe(include_content=self._one([True, False]))
        if twist == "lost revision" or self.pick.random() < 0.5:
            asked["revision_id"] = revision
        return {"artifact_id": unknown_if_lost(artifact.id, twist)} | asked, LAB

    def _artifact_history(self, twist: str) -> Written:
        artifact = self._any_artifact()
        if artifact is None:
            return None
        return {"artifact_id": unknown_if_lost(artifact.id, twist)} | self._page("before_revision_number", -1, 4), LAB

    def _citation_get(self, twist: str) -> Written:
        revisions = [(each, revision) for each in self.model.artifacts.values() for revision in each.revisions]
        if twist == "of no text":
            revisions = [(each, revision) for each, revision in revisions if not revision.is_citable]
        if twist == "inside a character":
            revisions = [(each, revision) for each, revision in revisions if revision.is_cuttable]
        if not revisions:
            return None
        artifact, revision = self._one(revisions)
        size = len(revision.body)
        start, end = sorted((self.pick.randint(0, size), self.pick.randint(0, size + 1)))
        if twist == "inside a character":
            start, end = 0, self._one([at for at, byte in enumerate(revision.body) if byte & 0xC0 == 0x80])
        ends: Json = {"a": artifact.id, "r": revision.id, "s": start, "e": end}
        form = {
            "empty": "memoree://artifact/{a}@{r}#3-3",
            "outside": "memoree://artifact/{a}@{r}#0-4096",
            "whole": "memoree://artifact/{a}@{r}",
            "garbled": self._one(["memoree://claim/{a}@{r}#0-1", "memoree://artifact/{a}#0-1", "", "{a}@{r}#0-1"]),
            "lost": "memoree://artifact/art_0@{r}#0-1",
            "lost revision": "memoree://artifact/{a}@arev_0#0-1",
        }.get(twist, "memoree://artifact/{a}@{r}#{s}-{e}")
        limit = {"max_bytes": self._one([0, 3, 8193])} if twist == "bad limit" else self._maybe(max_bytes=5)
        return {"citation": form.format(**ends)} | limit, LAB

"""Inputs about claims, edges and conflict cases, and searches (machine protocol §4.11 to §4.18, §4.30)."""

from __future__ import annotations

from contract.door import Json

from .choices import LAB, RELATIONS, TIMES, WEB_CLAIMS, Choices, Written, unknown_if_lost
from .entities import Artifact, Claim, Relation


class ClaimInputs(Choices):
    def _claim_assert(self, twist: str) -> Written:
        claim = {
            "claim_type": self._one(["fact", "decision"]),
            "statement": f"The kiln reached cone {self._one('567')}.",
        }
        window = self._maybe(valid_from=self._one(TIMES), valid_until=self._one(TIMES))
        rest = self._maybe(confidence=self._one([0, 0.5, 1]), actor="agent/kiln")
        return claim | window | rest | self._evidence(twist), self._place(None, twist)

    def _claim_revise(self, twist: str) -> Written:
        claim = self._claim(twist)
        if claim is None:
            return None
        seen = claim.head.id
        if twist == "stale":
            seen = self._one([each.id for each in claim.revisions[:-1]] or ["crev_0"])
        change = {
            "claim_id": unknown_if_lost(claim.id, twist),
            "if_revision": seen,
            "statement": f"The kiln reached cone {self._one('567')}.",
        }
        return change | self._maybe(confidence=0.25) | self._evidence(twist), self._place(claim.owner, twist)

    def _claim_retract(self, twist: str) -> Written:
        claims = self.model.claims.values()
        claim = self._some(each for each in claims if (each.ended == "retracted") is (twist == "spent"))
        if claim is None:
            return None
        return {"claim_id": unknown_if_lost(claim.id, twist), "reason": "faulty"}, self._place(claim.owner, twist)

    def _claim_get(self, twist: str) -> Written:
        claim = self._some(self.model.claims.values())
        if claim is None:
            return None
        revision = "crev_0" if twist == "lost revision" else self._one(claim.revisions).id
        asked = {"revision_id": revision} if twist == "lost revision" else self._maybe(revision_id=revision)
        return {"claim_id": unknown_if_lost(claim.id, twist)} | asked, LAB

    def _claim_history(self, twist: str) -> Written:
        claim = self._some(self.model.claims.values())
        if claim is None:
            return None
        return {"claim_id": unknown_if_lost(claim.id, twist)} | self._page("before_revision_number", -1, 4), LAB

    def _relation_put(self, twist: str) -> Written:
        if twist in ("again", "clash"):
            return self._edge_again(twist)
        owner = self._place(None, "plain")
        near = [claim for claim in self.model.claims.values() if owner.same_scope(claim.owner)]
        live, ended = [each for each in near if each.is_live], [each for each in near if not each.is_live]
        if len(live) < 2:
            return None
        source, target = self.pick.sample(live[:WEB_CLAIMS] if self.pick.random() < 0.6 else live, 2)
        kind = self._one(("contradicts", "contradicts", "contradicts", "supersedes", *RELATIONS))
        edge: Json = {"source_type": "claim", "source_id": source.id, "target_type": "claim", "target_id": target.id}
        if twist == "spent":
            kind = self._one(["contradicts", "supersedes"])
            edge["target_id"] = self._one(ended or [source]).id
        if twist == "with an artifact" and (artifact := self._any_artifact()) is not None:
            end = self._one(["source", "target"])
            edge |= {f"{end}_type": "artifact", f"{end}_id": artifact.id}
        edge[self._one(["source_id", "target_id"])] += "_0" if twist == "lost" else ""
        edge |= {"relation": kind} | self._maybe(metadata={"by": self._one("ab")})
        return edge, self._place(target.owner, twist)

    def _edge_again(self, twist: str) -> Written:
        relation: Relation | None = self._some(self.model.relations)
        if relation is None:
            return None
        (source_type, source_id), (target_type, target_id) = relation.source, relation.target
        metadata = {"by": "another"} if twist == "clash" else relation.metadata
        edge = {
            "source_type": source_type,
            "source_id": source_id,
            "relation": relation.type,
            "target_type": target_type,
            "target_id": target_id,
            "metadata": metadata,
        }
        return edge, self._place(relation.owner, twist)

    def _relation_list(self, twist: str) -> Written:
        anchors: list[tuple[str, Artifact | Claim]] = [
            *(("artifact", each) for each in self.model.artifacts.values()),
            *(("claim", each) for each in self.model.claims.values()),
        ]
        related = {end for relation in self.model.relations for end in (relation.source, relation.target)}
        anchor = self._some([each for each in anchors if (each[0], each[1].id) in related] or anchors)
        if anchor is None:
            return None
        kind, entity = anchor
        asked = {"entity_type": kind, "entity_id": unknown_if_lost(entity.id, twist)} | self._maybe(
            direction=self._one(["incoming", "outgoing", "both"]), relation=self._one(["contradicts", "supports"])
        )
        page = self._page("before_commit_seq", 1, self.model.commit_seq)
        return asked | self._horizon(twist) | page, self._place(entity.owner, twist)

    def _conflict_list(self, twist: str) -> Written:
        asked = self._maybe(include_stale=self._one([True, False]), limit=self._one([1, 2, 100]))
        case = self._some(self.model.cases)
        if case is not None and self.pick.random() < 0.3:
            asked["before_case_sequence"] = case.sequence
        return asked | self._horizon(twist), self._place(None, twist)

    def _search(self, twist: str) -> Written:
        ahead = {"min_commit_seq": self.model.commit_seq + 1} if twist == "ahead" else {}
        historical = self._maybe(include_historical=self._one([True, False]))
        return {"query": "kiln", "limit": 100} | historical | ahead | self._horizon(twist), self._place(None, twist)

"""Hard forget: what an artifact or a claim said goes from every row that holds it (design §8, `docs/erasure.md`).

In one commit. What is left are ids, owners, order, instants and sizes: others rest on these, and an id answers
`erased` for ever. Nobody but an operator asks for it, through `memoree erase`; by exact ids only (field fault 17).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, BaseModel, Field

from memoree import limits
from memoree.database import (
    artifacts,
    attempts,
    claims,
    condemned,
    episodes,
    erasures,
    events,
    feedback,
    idempotency,
    index,
    ledger,
    okf,
    projections,
    relations,
    sources,
)
from memoree.database.artifacts import Artifact
from memoree.database.claims import Claim
from memoree.database.entry import ERASED, erased_entry
from memoree.database.events import Change
from memoree.envelope import WireModel
from memoree.erasures import Erasure
from memoree.errors import not_found, shown
from memoree.okf.ids import SUFFIX
from memoree.operations import okf_nodes
from memoree.operations.call import Call
from memoree.operations.contradictions import RETRACTED, ended
from memoree.operations.registry import INTERNAL, mutation
from memoree.operations.shapes import EntityId, Reason
from memoree.operations.sources import existing as existing_source
from memoree.operations.sources import update as update_source
from memoree.operations.view import Applied, Transaction, View

OPERATION = "store.erase"
ARTIFACT_PREFIX, CLAIM_PREFIX = "art_", "clm_"
_KEPT_OF_DELIVERIES = ("status", "also", events.BEGAN)
ERASED_REFUSAL = "the write was refused; its explanation went with an erasure"


def _typed(entity_id: str) -> str:
    """Field fault 18: ids tell what they are of."""
    if not entity_id.startswith((ARTIFACT_PREFIX, CLAIM_PREFIX)):
        raise ValueError(f"expected {ARTIFACT_PREFIX} or {CLAIM_PREFIX}, got {shown(entity_id)}")
    return entity_id


class StoreErase(WireModel):
    entities: Annotated[
        list[Annotated[EntityId, AfterValidator(_typed)]],
        Field(min_length=1, max_length=limits.ERASE_ENTITIES_MAX),
    ]
    reason: Annotated[Reason, Field(description="why, in words that may stay: the audit log keeps them")]


class Erased(BaseModel):
    """`erasure_id` and `entities` are of what this commit erased, none of it erased before; the counts are rows that
    were emptied or removed. `blobs` were condemned; `derived` revisions quote what was erased and stay as they are."""

    erasure_id: str | None = None
    entities: list[str]
    revisions: int = 0
    chunks: int = 0
    evidence: int = 0
    relations: int = 0
    projections: int = 0
    feedback: int = 0
    source_items: int = 0
    words: int = 0
    merged_indexes: list[str] = Field(default_factory=list)
    blobs: int = 0
    events: int = 0
    idempotency_results: int = 0
    refusals: int = 0
    derived: list[str] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Doomed:
    """What is to be erased and was not yet."""

    artifacts: Sequence[Artifact] = ()
    claims: Sequence[Claim] = ()

    @property
    def ids(self) -> list[str]:
        return [*(each.artifact_id for each in self.artifacts), *(each.claim_id for each in self.claims)]


def _all_exist(view: View, call: Call[StoreErase]) -> None:
    for entity_id in call.input.entities:
        is_artifact = entity_id.startswith(ARTIFACT_PREFIX)
        if (artifacts if is_artifact else claims).find(view.db, entity_id) is None:
            not_found("artifact" if is_artifact else "claim", entity_id)


@mutation(OPERATION, position=INTERNAL, input=StoreErase, result=Erased, scope="admin", before_replay=_all_exist)
def erase(tx: Transaction, call: Call[StoreErase]) -> Applied:
    """What was erased before is left as it is."""
    doomed = _doomed(tx, call.input.entities)
    if not doomed.ids:
        return Applied(Erased(entities=[]), tx.meta.commit_seq, created=False)
    erased = _erase(tx, doomed, {"reason": call.input.reason})
    return Applied(erased, tx.meta.commit_seq)


def erase_again(tx: Transaction, recorded: Sequence[Erasure]) -> int:
    """Apply recorded erasures to a database from elsewhere, after whatever event tells where it is from; returns how
    many artifacts and claims that were. Takes one commit number if there are any, and none otherwise."""
    doomed = _doomed(tx, (entity_id for erasure in recorded for entity_id in erasure.entities))
    if doomed.ids:
        _erase(tx, doomed, {"again": [erasure.erasure_id for erasure in recorded]})
    return len(doomed.ids)


def erase_artifacts(tx: Transaction, doomed: Sequence[Artifact], told: dict[str, Any], *, operation: str) -> Erased:
    """As `erase`, of artifacts that were not erased yet, for another operation; `told` is what its event says."""
    return _erase(tx, Doomed(doomed), told, operation)


def _doomed(view: View, entity_ids: Iterable[str]) -> Doomed:
    wanted = list(dict.fromkeys(entity_ids))
    found_artifacts = [artifacts.find(view.db, each) for each in wanted if each.startswith(ARTIFACT_PREFIX)]
    found_claims = [claims.find(view.db, each) for each in wanted if each.startswith(CLAIM_PREFIX)]
    return Doomed(
        [each for each in found_artifacts if each is not None and each.erasure_row is None],
        [each for each in found_claims if each is not None and each.erasure_row is None],
    )


def _erase(tx: Transaction, doomed: Doomed, told: dict[str, Any], operation: str = OPERATION) -> Erased:
    """All of it, in the commit that the caller is in."""
    erasure = erasures.Erasure(tx.commit_seq, tx.new_id("ers"), tx.now)
    erasures.insert(tx.db, erasure)
    tx.sum.add(erasures.entry(erasure))
    erased = Erased(erasure_id=erasure.erasure_id, entities=doomed.ids)
    work = _Work(tx, doomed, erased)
    erasures.permit(tx.db, allowed=True)
    work.find_commits()
    changes = [*work.erase_artifacts(), *work.erase_claims()]
    work.erase_relations()
    work.erase_feedback()
    work.erase_log()
    erasures.permit(tx.db, allowed=False)
    erased.refusals = attempts.erase_errors(tx.db, ERASED_REFUSAL)
    erased.words = index.forget_words(tx.db, work.words)
    erased.merged_indexes = index.merge_away_remnants(tx.db)
    erased.derived = erasures.derived_from(tx.db, doomed.ids)
    tx.record_event(operation, "erasure", erasure.erasure_id, payload=told, also=changes)
    return erased


@dataclass(slots=True)
class _Work:
    """One erasure under way. Rows that tell of what is erased are found before anything of it is gone."""

    tx: Transaction
    doomed: Doomed
    erased: Erased
    commits: set[int] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    items: dict[str, str] = field(default_factory=dict)
    """New names of source items, by the old ones."""
    former_items: list[tuple[str, int, str]] = field(default_factory=list)
    """The same of names that items had until a commit."""
    topics: dict[int, str] = field(default_factory=dict)
    """New names of topics, by the commits of the events about them."""

    def find_commits(self) -> None:
        """Of the entities, and of the projections and items that exist because of them: one look through the log."""
        ids = self.doomed.ids
        for artifact in self.doomed.artifacts:
            ids += [each.projection_id for each in projections.every_of_artifact(self.tx.db, artifact)]
            ids += [f"{source_id}:{item.external_id}" for source_id, item in self._items(artifact)]
        self.commits.update(erasures.commits_telling(self.tx.db, ids))

    def erase_artifacts(self) -> list[Change]:
        return [self._erase_artifact(artifact) for artifact in self.doomed.artifacts]

    def erase_claims(self) -> list[Change]:
        """With the claims that are no longer in conflict because of it, in the order in which it happens: one of them
        may be erased next."""
        changes = []
        for claim in self.doomed.claims:
            changes += [Change("claim", claim.claim_id, None, "retracted"), *self._erase_claim(claim)]
        return changes

    def _erase_artifact(self, artifact: Artifact) -> Change:
        tx, db = self.tx, self.tx.db
        before = artifacts.revisions(db, artifact)
        blobs = {revision.blob_hash for revision in before if artifacts.body(db, revision) is None}
        for projection in projections.every_of_artifact(db, artifact):
            self._erase_projection(projection)
        for revision in before:
            if (chunks := index.chunk_count(db, revision.row_id)) > 0:
                self.erased.chunks += chunks
                self.words |= index.unindex_artifact_revision(db, revision_row=revision.row_id)
        okf.delete(db, artifact.row_id)
        for source_id, item in self._items(artifact):
            self._erase_item(source_id, item)
        for episode in episodes.remove(db, artifact.row_id):
            tx.sum.remove(episodes.entry(episode))
        artifacts.erase(db, artifact, tx.commit_seq)
        after = artifacts.find(db, artifact.artifact_id)
        assert after is not None, "an erased artifact keeps its row"
        for old, new in zip(before, artifacts.revisions(db, after), strict=True):
            tx.sum.replace(artifacts.revision_entry(artifact, old), artifacts.revision_entry(after, new))
        if artifact.forgotten_reason is not None:
            tx.sum.remove(artifacts.forgotten_entry(artifact.artifact_id, artifact.forgotten_reason))
        tx.sum.add(artifacts.forgotten_entry(artifact.artifact_id, ERASED))
        tx.sum.add(erased_entry("artifacts", artifact.artifact_id, tx.commit_seq))
        for digest in sorted(blobs):
            if not condemned.is_cited(db, digest):
                condemned.condemn_erased(tx, digest)
                self.erased.blobs += 1
        self.erased.revisions += len(before)
        return Change("artifact", artifact.artifact_id, None, "forgotten")

    def _erase_claim(self, claim: Claim) -> list[Change]:
        tx, db = self.tx, self.tx.db
        claim = claims.by_row(db, claim.row_id)  # erasing another one may have ended a conflict with it
        before = claims.revisions(db, claim)
        cited = claims.evidence(db, [revision.row_id for revision in before])
        for revision in before:
            self.words |= index.unindex_claim_revision(db, revision_row=revision.row_id)
        self.erased.evidence += claims.erase(db, claim, tx.commit_seq)
        after = claims.by_row(db, claim.row_id)
        for old, new in zip(before, claims.revisions(db, after), strict=True):
            evidence = cited.get(old.row_id, ())
            tx.sum.replace(claims.revision_entry(claim, old, evidence), claims.revision_entry(after, new, ()))
        if claim.retraction_reason is not None:
            tx.sum.remove(claims.retraction_entry(claim.claim_id, claim.retraction_reason))
        tx.sum.add(claims.retraction_entry(claim.claim_id, ERASED))
        tx.sum.add(erased_entry("claims", claim.claim_id, tx.commit_seq))
        self.erased.revisions += len(before)
        return ended(tx, claim, RETRACTED)

    def _erase_projection(self, projection: projections.Projection) -> None:
        tx = self.tx
        if projection.status == "active":
            index.unindex_projection(tx.db, projection_row=projection.row_id)
        after = projections.erase(tx.db, projection, updated_at=tx.now, commit_seq=tx.commit_seq)
        tx.sum.replace(projections.entry(projection), projections.entry(after))
        self.erased.projections += 1

    def _items(self, artifact: Artifact) -> list[tuple[str, sources.Item]]:
        return sources.items_of_artifact(self.tx.db, artifact.row_id)

    def _erase_item(self, source_id: str, item: sources.Item) -> None:
        tx = self.tx
        source = existing_source(tx, source_id)
        after = sources.erase_item(tx.db, item, at=tx.now, commit_seq=tx.commit_seq)
        tx.sum.replace(sources.item_entry(source, item), sources.item_entry(source, after))
        update_source(tx, source)
        item_id, erased_id = f"{source_id}:{item.external_id}", f"{source_id}:{after.external_id}"
        self.items[item_id] = erased_id
        former = erasures.former_names(tx.db, item_id)
        self.former_items += [(name, until, erased_id) for name, until in former]
        if source.kind == okf_nodes.BUNDLE_KIND:
            names = [(item_id, tx.commit_seq), *former]
            self._find_topics(source, [(name.partition(":")[2], until) for name, until in names], after.external_id)
        self.erased.source_items += 1

    def _find_topics(self, bundle: sources.Source, paths: Sequence[tuple[str, int]], erased_name: str) -> None:
        """Events of the ledger about a node, which is what its path says: under each path until it had another one."""
        for path, until in paths:
            told = ledger.commits_of_topic(self.tx.db, bundle.owner, path.removesuffix(SUFFIX))
            self.topics |= {commit: erased_name for commit in told if commit < until}
        self.commits.update(self.topics)

    def erase_relations(self) -> None:
        """The edges stay, without what was said about them."""
        for relation in {each for entity_id in self.doomed.ids for each in relations.about(self.tx.db, entity_id)}:
            after = relations.erase_metadata(self.tx.db, relation)
            self.tx.sum.replace(relations.entry(relation), relations.entry(after))
            self.commits.add(relation.row_id)
            self.erased.relations += 1

    def erase_feedback(self) -> None:
        for record in feedback.naming(self.tx.db, self.doomed.ids):
            after = feedback.erase(self.tx.db, record)
            self.tx.sum.replace(feedback.entry(record), feedback.entry(after))
            self.commits.add(record.row_id)
            self.erased.feedback += 1

    def erase_log(self) -> None:
        """Events keep what changed and lose who changed it and how the source called it; acknowledgements go."""
        tx = self.tx
        for commit in sorted(self.commits):
            event = events.at(tx.db, commit)
            after = self._emptied(event)
            events.replace_content(tx.db, after)
            tx.sum.replace(events.entry(event), events.entry(after))
        for record in idempotency.of_commits(tx.db, events.with_rest_of_requests(tx.db, sorted(self.commits))):
            tx.sum.replace(idempotency.entry(record), idempotency.entry(idempotency.erase(tx.db, record)))
            self.erased.idempotency_results += 1
        self.erased.events = len(self.commits)

    def _emptied(self, event: events.Event) -> events.Event:
        if event.entity_type == "relation":
            return event._replace(actor=None, payload=self._emptied_edge(event))
        if (name := self.topics.get(event.commit_seq)) is not None:
            return event._replace(entity_id=name, actor=None, payload=ledger.without_name(event.payload, name))
        if event.entity_type != "source_item":
            return event._replace(actor=None)
        payload = orjson.loads(event.payload)
        return event._replace(
            entity_id=self._erased_item(event.entity_id, event.commit_seq),
            revision_id=ERASED,
            actor=None,
            payload=orjson.dumps({name: payload[name] for name in _KEPT_OF_DELIVERIES if name in payload}).decode(),
        )

    def _emptied_edge(self, event: events.Event) -> str:
        """An edge's two ends, without what else was said. Where its commit delivered an item too, that has its new
        name."""
        payload = orjson.loads(event.payload)
        kept = {name: payload[name] for name in relations.Edge._fields}
        if events.BEGAN in payload:
            kept[events.BEGAN] = payload[events.BEGAN]
        if "also" in payload:
            kept["also"] = [
                [kind, self._erased_item(entity_id, event.commit_seq) if kind == "source_item" else entity_id, *rest]
                for kind, entity_id, *rest in payload["also"]
            ]
        return orjson.dumps(kept).decode()

    def _erased_item(self, item_id: str, commit_seq: int) -> str:
        for name, until, erased_id in self.former_items:
            if item_id == name and commit_seq < until:
                return erased_id
        return self.items.get(item_id, item_id)

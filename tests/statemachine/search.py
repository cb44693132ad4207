"""Which entities a search may show (machine protocol §4.30.1, §4.30.3): the set of hits, not their order or scores.

Everything the programs write holds the word they search for, so every visible entity is a hit.
"""

from __future__ import annotations

from datetime import UTC, datetime

from contract.door import Json

from . import claims
from .entities import Artifact, ArtifactRevision, Claim, ClaimRevision
from .model import Call, Including, Refused, Unordered, instant, operation

WORD = "kiln"


@operation("search")
def search(call: Call) -> Json:
    wanted, current = call.input.get("min_commit_seq", 0), call.model.commit_seq
    if wanted > current:
        raise Refused("INDEX_NOT_READY", {"requested_commit_seq": wanted, "current_commit_seq": current})
    horizon = call.input.get("horizon", "ambient")
    hits = [
        *(_artifact_hit(artifact, revision) for artifact, revision in _artifacts(call, horizon)),
        *(_claim_hit(call, claim, revision) for claim, revision in _claims(call, horizon)),
    ]
    shown = {"query": call.input["query"], "horizon": horizon}
    if len(hits) > call.input.get("limit", 10):
        return Including(shown | {"truncated": True})
    return Including(shown | {"truncated": False, "hits": Unordered(hits)})


def _artifacts(call: Call, horizon: str) -> list[tuple[Artifact, ArtifactRevision]]:
    historical, pins = call.input.get("include_historical", False), call.context.pinned()
    found = []
    for artifact in call.model.artifacts.values():
        visible, pinned_to = call.context.sees(artifact.owner, horizon), pins.get(artifact.id, "")
        for revision in artifact.revisions:
            is_head, is_current = revision is artifact.head, revision is artifact.head and not artifact.is_forgotten
            is_pinned = pinned_to == revision.id or (pinned_to is None and is_head)
            shown = visible and (historical or is_current)
            if shown or (is_pinned and (historical or not artifact.is_forgotten)):
                found.append((artifact, revision))
    return found


def _claims(call: Call, horizon: str) -> list[tuple[Claim, ClaimRevision]]:
    historical, now = call.input.get("include_historical", False), call.now or datetime.now(UTC)
    return [
        (claim, revision)
        for claim in call.model.claims.values()
        if call.context.sees(claim.owner, horizon)
        for revision in claim.revisions
        if historical or (claim.is_live and revision is claim.head and is_current(claim, now))
    ]


def is_current(claim: Claim, now: datetime) -> bool:
    """Inclusive start, exclusive end (§5.3)."""
    started = claim.valid_from is None or instant(claim.valid_from) <= now
    return started and (claim.valid_until is None or now < instant(claim.valid_until))


def _artifact_hit(artifact: Artifact, revision: ArtifactRevision) -> Json:
    return Including(
        entity_type="artifact",
        entity_id=artifact.id,
        revision_id=revision.id,
        status="forgotten" if artifact.is_forgotten else "active",
        context=artifact.owner.to_wire(),
    )


def _claim_hit(call: Call, claim: Claim, revision: ClaimRevision) -> Json:
    return Including(
        entity_type="claim",
        entity_id=claim.id,
        revision_id=revision.id,
        status=claims.status(call.model, claim),
        excerpt=revision.statement,
        context=claim.owner.to_wire(),
    )

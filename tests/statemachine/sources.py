"""Sources and their items, and projections of artifacts (machine protocol §4.19 to §4.26)."""

from __future__ import annotations

from contract.door import Json

from .artifacts import DEFAULT_MEDIA_TYPE, add_revision, decoded, find_revision, new_artifact, revision_conflict
from .artifacts import existing as existing_artifact
from .entities import Artifact, ArtifactRevision, Context, Item, Projection, Source
from .model import Call, Commit, Done, Ranked, Refused, instant, invalid, not_found, operation, wire

SPAN_BYTES_MAX = 1024


def existing(call: Call, source_id: str) -> Source:
    return call.model.sources.get(source_id) or not_found()


def _observed(call: Call) -> str | None:
    return wire(instant(call.input["observed_at"])) if "observed_at" in call.input else None


@operation("source.register")
def register(call: Call) -> Done:
    call.replay_or_go_on()
    if (_place(call.owner), call.input["name"]) in {(_place(s.owner), s.name) for s in call.model.sources.values()}:
        invalid()  # the contract leaves it open (§11, 5); docs/decisions/0008 does not
    commit = call.commit()
    source = Source(
        call.model.named("src"),
        call.input["name"],
        call.input["kind"],
        call.input.get("locator"),
        call.input.get("metadata", {}),
        call.owner,
        commit.at,
        commit.at,
        commit.seq,
    )
    call.model.sources[source.id] = source
    return Done(source.record(), commit.seq)


def _place(owner: Context) -> tuple[str, str, str | None]:
    return owner.workspace, owner.project, owner.task


@operation("source.get")
def get(call: Call) -> Json:
    source = existing(call, call.input["source_id"])
    call.must_own(source.owner)
    return source.record()


@operation("source.ingest")
def ingest(call: Call) -> Done:
    body, observed = decoded(call.input["content"]), _observed(call)
    source = existing(call, call.input["source_id"])
    call.must_own(source.owner)
    item = source.items.get(call.input["external_id"])
    if item is not None and item.is_live:
        call.must_own(item.artifact.owner)
    call.replay_or_go_on()
    payload = {
        "kind": call.input["kind"],
        "title": call.input["title"],
        "media_type": call.input.get("media_type", DEFAULT_MEDIA_TYPE),
        "body": body,
        "provenance": call.input.get("provenance", {}),
    }
    if item is None or not item.is_live:
        return _ingested(call, source, None, payload, observed)
    if item.artifact.is_forgotten:
        raise Refused("INTEGRITY_ERROR")
    external_revision = call.input["external_revision"]
    if external_revision != item.external_revision:
        if payload["kind"] != item.artifact.kind:
            invalid()
        return _ingested(call, source, item, payload, observed)
    if payload != item.payload:
        entity = f"{source.id}:{item.external_id}"
        raise revision_conflict("source_item", entity, external_revision, external_revision)
    return Done(_outcome(source, item), item.commit_seq, created=False)


def _ingested(call: Call, source: Source, item: Item | None, payload: Json, observed: str | None) -> Done:
    """A new artifact, or a new revision of the live item's."""
    commit = call.commit()
    seen = observed or commit.at
    origin = {
        "source_id": source.id,
        "external_id": call.input["external_id"],
        "external_revision": call.input["external_revision"],
        "observed_at": seen,
    }
    artifact = item.artifact if item is not None else new_artifact(call, kind=payload["kind"], at=commit.at)
    revision = add_revision(
        call,
        artifact,
        title=payload["title"],
        media_type=payload["media_type"],
        body=payload["body"],
        provenance=payload["provenance"] | {"memoree_source": origin},
        at=commit.at,
        seq=commit.seq,
    )
    stored = Item(
        call.input["external_id"],
        call.input["external_revision"],
        artifact,
        revision,
        payload,
        seen,
        commit.at,
        commit.seq,
    )
    source.items[stored.external_id] = stored
    source.health, source.health_message = "healthy", None
    source.cursor = call.input.get("cursor", source.cursor)
    _touch(source, commit, seen)
    return Done(_outcome(source, stored), commit.seq, created=item is None)


def _touch(source: Source, commit: Commit, observed_at: str) -> None:
    source.last_observed_at, source.updated_at, source.commit_seq = observed_at, commit.at, commit.seq


def _outcome(source: Source, item: Item) -> Json:
    """The artifact at the revision that was delivered."""
    artifact = item.artifact.record(item.revision)
    return {"source": source.record(), "item": item.record(source), "artifact": artifact}


@operation("source.checkpoint")
def checkpoint(call: Call) -> Done:
    observed = _observed(call)
    source = existing(call, call.input["source_id"])
    call.must_own(source.owner)
    call.replay_or_go_on()
    commit = call.commit()
    source.health, source.health_message = call.input["health"], call.input.get("message")
    source.cursor = call.input.get("cursor", source.cursor)
    _touch(source, commit, observed or commit.at)
    return Done(source.record(), commit.seq)


@operation("source.withdraw")
def withdraw(call: Call) -> Done:
    observed = _observed(call)
    source = existing(call, call.input["source_id"])
    call.must_own(source.owner)
    item = source.items.get(call.input["external_id"]) or not_found()
    call.must_own(item.artifact.owner)
    call.replay_or_go_on()
    if not item.is_live:
        return Done(_withdrawn(source, item), item.commit_seq, created=False)
    commit = call.commit()
    item.withdrawn_at, item.withdrawal_reason = observed or commit.at, call.input["reason"]
    item.updated_at, item.commit_seq = commit.at, commit.seq
    if not item.artifact.is_forgotten:  # forgotten is final, and keeps its reason (§6.5)
        item.artifact.forgotten_reason = call.input["reason"]
    _touch(source, commit, observed or commit.at)
    return Done(_withdrawn(source, item), commit.seq)


def _withdrawn(source: Source, item: Item) -> Json:
    """The artifact as `artifact.forget` acknowledges it: at its current revision (§4.10)."""
    artifact = item.artifact.record(item.artifact.head)
    return {
        "source": source.record(),
        "item": item.record(source),
        "artifact": artifact,
        "erasure_performed": False,
    }


# --- projections ------------------------------------------------------------------------------------------------


@operation("projection.put")
def project(call: Call) -> Done:
    artifact, revision = _projectable(call)
    _check_spans(call.input["evidence_spans"], len(revision.body))
    call.replay_or_go_on()
    bound = ("artifact_id", "revision_id", "actor")
    content = {"metadata": {}} | {name: value for name, value in call.input.items() if name not in bound}
    existing_one = next(
        (
            each
            for each in call.model.projections.values()
            if each.revision is revision and each.content["projection_key"] == content["projection_key"]
        ),
        None,
    )
    if existing_one is None:
        commit = call.commit()
        made = Projection(
            call.model.named("proj"),
            artifact,
            revision,
            content,
            call.input.get("actor"),
            commit.at,
            commit.at,
            commit.seq,
        )
        call.model.projections[made.id] = made
        return Done(made.record(), commit.seq)
    if existing_one.content == content and existing_one.dropped_reason is None:
        return Done(existing_one.record(), existing_one.commit_seq, created=False)
    commit = call.commit()
    existing_one.content, existing_one.actor, existing_one.dropped_reason = content, call.input.get("actor"), None
    existing_one.updated_at, existing_one.commit_seq = commit.at, commit.seq
    return Done(existing_one.record(), commit.seq, created=False)


def _projectable(call: Call) -> tuple[Artifact, ArtifactRevision]:
    """An active artifact of this scope and its current revision; all of it judged before the key (§4.24)."""
    artifact = existing_artifact(call, call.input["artifact_id"])
    revision = find_revision(call, artifact.id, call.input["revision_id"])
    call.must_own(artifact.owner)
    if artifact.is_forgotten:
        invalid()
    if revision is not artifact.head:
        raise revision_conflict("artifact", artifact.id, artifact.head.id, revision.id)
    return artifact, revision


def _check_spans(spans: list[Json], size: int) -> None:
    reached = 0
    for span in spans:
        start, end = span["start_byte"], span["end_byte"]
        if not reached <= start < end <= size or end - start > SPAN_BYTES_MAX:
            invalid()
        reached = end


@operation("projection.list")
def list_projections(call: Call) -> Json:
    artifact = existing_artifact(call, call.input["artifact_id"])
    call.must_own(artifact.owner)
    wanted = call.input.get("revision_id")
    found = [
        each
        for each in call.model.projections.values()
        if each.artifact is artifact and wanted in (None, each.revision.id)
    ]
    limit = call.input.get("limit", 100)
    named = {} if wanted is None else {"revision_id": wanted}
    return {
        "artifact_id": artifact.id,
        **named,
        "projections": Ranked([each.record() for each in found], "updated_at", "projection_id", limit),
        "truncated": len(found) > limit,
    }


@operation("projection.drop")
def drop(call: Call) -> Done:
    projection = call.model.projections.get(call.input["projection_id"]) or not_found()
    call.must_own(projection.artifact.owner)
    call.replay_or_go_on()
    if projection.dropped_reason is not None:
        return Done(projection.record(), projection.commit_seq, created=False)
    commit = call.commit()
    projection.dropped_reason, projection.actor = call.input["reason"], call.input.get("actor")
    projection.updated_at, projection.commit_seq = commit.at, commit.seq
    return Done(projection.record(), commit.seq)

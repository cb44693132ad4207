"""Artifacts and citations (machine protocol §4.5 to §4.10)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from contract.door import Json

from .entities import Artifact, ArtifactRevision, is_utf8
from .model import TEXT, Call, Done, Refused, invalid, not_found, operation

DEFAULT_MEDIA_TYPE = "text/plain; charset=utf-8"
CITATION = re.compile(r"memoree://artifact/([^@#]+)@([^@#]+)(?:#([0-9]+)-([0-9]+))?")
CITATION_BYTES_MAX, ID_BYTES_MAX = 1024, 256


def decoded(content: Json) -> bytes:
    data: str = content["data"]
    if content["type"] == "text":
        return data.encode()
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        invalid()


def existing(call: Call, artifact_id: str) -> Artifact:
    return call.model.artifacts.get(artifact_id) or not_found()


def existing_revision(artifact: Artifact, revision_id: str) -> ArtifactRevision:
    return next((each for each in artifact.revisions if each.id == revision_id), None) or not_found()


def find_revision(call: Call, artifact_id: str, revision_id: str) -> ArtifactRevision:
    return existing_revision(existing(call, artifact_id), revision_id)


def revision_conflict(entity_type: str, entity_id: str, current: str, requested: str) -> Refused:
    return Refused(
        "REVISION_CONFLICT",
        {
            "entity_type": entity_type,
            "entity_id": entity_id,
            "current_revision": current,
            "requested_revision": requested,
        },
    )


def new_artifact(call: Call, *, kind: str, at: str) -> Artifact:
    artifact = Artifact(call.model.named("art"), kind, call.owner, at)
    call.model.artifacts[artifact.id] = artifact
    return artifact


def add_revision(
    call: Call, artifact: Artifact, *, title: str, media_type: str, body: bytes, provenance: Json, at: str, seq: int
) -> ArtifactRevision:
    revision = ArtifactRevision(
        call.model.named("arev"),
        len(artifact.revisions) + 1,
        title,
        media_type,
        body,
        provenance,
        call.input.get("actor"),
        at,
        seq,
    )
    artifact.revisions.append(revision)
    return revision


@operation("artifact.put")
def put(call: Call) -> Done:
    body = decoded(call.input["content"])
    call.replay_or_go_on()
    commit = call.commit()
    artifact = new_artifact(call, kind=call.input["kind"], at=commit.at)
    revision = add_revision(
        call,
        artifact,
        title=call.input["title"],
        media_type=call.input.get("media_type", DEFAULT_MEDIA_TYPE),
        body=body,
        provenance=call.input.get("provenance", {}),
        at=commit.at,
        seq=commit.seq,
    )
    return Done(artifact.record(revision), commit.seq)


@operation("artifact.revise")
def revise(call: Call) -> Done:
    body = decoded(call.input["content"])
    artifact = existing(call, call.input["artifact_id"])
    call.must_own(artifact.owner)
    call.replay_or_go_on()
    if artifact.is_forgotten:
        invalid()
    previous = artifact.head
    if call.input["if_revision"] != previous.id:
        raise revision_conflict("artifact", artifact.id, previous.id, call.input["if_revision"])
    commit = call.commit()
    revision = add_revision(
        call,
        artifact,
        title=call.input.get("title", previous.title),
        media_type=call.input.get("media_type", previous.media_type),
        body=body,
        provenance=call.input.get("provenance", {}),
        at=commit.at,
        seq=commit.seq,
    )
    return Done(artifact.record(revision), commit.seq)


@operation("artifact.forget")
def forget(call: Call) -> Done:
    artifact = existing(call, call.input["artifact_id"])
    call.must_own(artifact.owner)
    call.replay_or_go_on()
    if artifact.is_forgotten:
        invalid()
    commit = call.commit()
    artifact.forgotten_reason = call.input["reason"]
    notice = {"physically_erased": False, "retention_notice": TEXT}
    return Done(artifact.record(artifact.head) | notice, commit.seq)


@operation("artifact.get")
def get(call: Call) -> Json:
    artifact = existing(call, call.input["artifact_id"])
    wanted = call.input.get("revision_id")
    revision = artifact.head if wanted is None else existing_revision(artifact, wanted)
    shown = {"content": revision.content()} if call.input.get("include_content", True) else {}
    return artifact.record(revision) | shown


@operation("artifact.history")
def history(call: Call) -> Json:
    artifact = existing(call, call.input["artifact_id"])
    newest_first = artifact.revisions[::-1]
    revisions, closing = call.page(newest_first, "before_revision_number", lambda revision: revision.number, limit=50)
    return {"revisions": [artifact.record(revision) for revision in revisions]} | closing


@operation("citation.get")
def cite(call: Call) -> Json:
    max_bytes = call.input.get("max_bytes", 8192)
    if not 4 <= max_bytes <= 8192:
        raise _unusable("invalid_output_limit")
    citation: str = call.input["citation"]
    match = CITATION.fullmatch(citation)
    if match is None or len(citation.encode()) > CITATION_BYTES_MAX:
        raise _unusable("malformed_citation")
    artifact_id, revision_id, *offsets = match.groups()
    if max(len(artifact_id.encode()), len(revision_id.encode())) > ID_BYTES_MAX:
        raise _unusable("malformed_citation")
    if offsets[0] is None:
        revision = _cited(call, artifact_id, revision_id)
        raise _unusable("range_required", **_described(citation, revision))
    start, end = map(int, offsets)
    if start >= end:
        raise _unusable("span_out_of_range", start_byte=start, end_byte=end)
    revision = _cited(call, artifact_id, revision_id)
    if not revision.is_citable:
        raise _unusable("non_text_content", **_described(citation, revision))
    total = len(revision.body)
    if end > total:
        raise _unusable("span_out_of_range", start_byte=start, end_byte=end, total_byte_count=total)
    if not is_utf8(revision.body[:start]) or not is_utf8(revision.body[:end]):
        raise _unusable("utf8_boundary", start_byte=start, end_byte=end)
    shown = revision.body[start : min(end, start + max_bytes)].decode(errors="ignore").encode()
    result = {
        "content_is_untrusted": True,
        "citation": f"memoree://artifact/{artifact_id}@{revision_id}#{start}-{start + len(shown)}",
        "content": shown.decode(),
        "byte_count": len(shown),
        "media_type": revision.media_type,
        "truncated": start + len(shown) < end,
    }
    return result | ({"remaining_bytes": end - start - len(shown)} if result["truncated"] else {})


def _cited(call: Call, artifact_id: str, revision_id: str) -> ArtifactRevision:
    named = {"artifact_id": artifact_id, "revision_id": revision_id}
    if artifact_id not in call.model.artifacts:
        raise _unusable("unknown_artifact", **named)
    for revision in call.model.artifacts[artifact_id].revisions:
        if revision.id == revision_id:
            return revision
    raise _unusable("unknown_revision", **named)


def _described(citation: str, revision: ArtifactRevision) -> Json:
    return {"citation": citation, "media_type": revision.media_type, "total_byte_count": len(revision.body)}


def _unusable(kind: str, **details: Any) -> Refused:
    return Refused("CITATION_ERROR", {"citation_error": kind, "next_action": TEXT} | details, kind)

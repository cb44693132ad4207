"""Episodes as MemoryProtocol stores and reads them (§5, §10.1). No door but that protocol's own asks for these.

An episode is an artifact of kind `episode` behind an episode id, see `memoree.database.episodes`: what the other
protocols do to the artifact, they do to the episode.
"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, BaseModel, Field

from memoree import clock, limits
from memoree.database import artifacts, episodes
from memoree.database.episodes import Episode
from memoree.envelope import WireModel
from memoree.episodes.clock import Lsn, validity
from memoree.episodes.ids import EpisodeId
from memoree.errors import not_found
from memoree.ids import new_ulid
from memoree.operations.artifacts import Draft, EpisodeDraft, add_revision, create, read_body, staged
from memoree.operations.call import Call
from memoree.operations.content import ArtifactContent
from memoree.operations.registry import INTERNAL, mutation, read
from memoree.operations.shapes import Actor, Metadata
from memoree.operations.view import Applied, Transaction, View

MEDIA_TYPE = "text/markdown; charset=utf-8"
INGEST, GET = "episode.ingest", "episode.get"
_CUT = "…"


def _instant(text: str) -> str:
    clock.parse_timestamp(text)
    return text


def _source_size(text: str) -> str:
    if (size := len(text.encode())) > limits.EPISODE_SOURCE_BYTES_MAX:
        raise ValueError(f"must be at most {limits.EPISODE_SOURCE_BYTES_MAX} bytes, got {size}")
    return text


class EpisodeIngest(WireModel):
    """`content` is text; without an id a new one is made."""

    id: EpisodeId | None = None
    source: Annotated[str, AfterValidator(_source_size)]
    content: ArtifactContent
    t_ref: Annotated[str, AfterValidator(_instant)] | None = None
    metadata: Metadata = Field(default_factory=dict)
    actor: Actor | None = None


class EpisodeGet(WireModel):
    id: EpisodeId


class Ingested(BaseModel):
    """`lsn` is the commit's that made the version; a snapshot at it has the episode."""

    episode_id: str
    artifact_id: str
    revision_id: str
    lsn: dict[str, int]


class EpisodeRecord(BaseModel):
    """An episode as the protocol tells it, but for its tenant; `bt` as it is known at the commit that was read."""

    id: str
    source: str
    content: str
    t_ref: str | None
    metadata: dict[str, Any]
    bt: dict[str, Any]


@mutation(INGEST, position=INTERNAL, input=EpisodeIngest, result=Ingested, content=lambda input: input.content)
def ingest(tx: Transaction, call: Call[EpisodeIngest]) -> Applied:
    """A repeat of what is there already changes nothing; anything else under a known id replaces it, all at once."""
    wanted = call.input
    metadata = orjson.dumps(wanted.metadata).decode()
    before = episodes.current(tx.db, wanted.id) if wanted.id is not None else None
    said = EpisodeDraft(
        episode_id=wanted.id or new_ulid(clock.hlc_milliseconds(tx.meta.hlc)),
        source=wanted.source,
        t_ref=wanted.t_ref,
        metadata=metadata,
    )
    draft = Draft(_title(wanted.source), MEDIA_TYPE, staged(call), {}, wanted.actor, said)
    if before is None:
        artifact, revision = create(tx, call.owner, episodes.KIND, draft)
    else:
        artifact = artifacts.by_row(tx.db, before.artifact_row)
        current = artifacts.head_revision(tx.db, artifact)
        if _same(before, said) and current.blob_hash == staged(call).digest:
            return Applied(
                _ingested(tx, before, artifact.artifact_id, current.revision_id), before.row_id, created=False
            )
        revision = add_revision(tx, artifact, current, draft)
    commit_seq = tx.record_event(
        call.operation.name,
        "artifact",
        artifact.artifact_id,
        revision_id=revision.revision_id,
        actor=wanted.actor,
        payload={"status": artifact.status},
    )
    stored = episodes.current(tx.db, said.episode_id)
    assert stored is not None, "what was stored just now is the truth"
    return Applied(_ingested(tx, stored, artifact.artifact_id, revision.revision_id), commit_seq)


@read(GET, position=INTERNAL, input=EpisodeGet, result=EpisodeRecord, needs_context=False)
def get(view: View, call: Call[EpisodeGet]) -> EpisodeRecord:
    """Raises `NOT_FOUND`, also for an episode that was forgotten."""
    found = episodes.current(view.db, call.input.id)
    if found is None:
        not_found("episode", call.input.id)
    return record_of(view, found)


def record_of(view: View, episode: Episode) -> EpisodeRecord:
    """Raises what reading the content raises."""
    revision = artifacts.revision_by_row(view.db, episode.row_id)
    content = read_body(view, revision).decode("utf-8", errors="replace")
    return EpisodeRecord(
        id=episode.episode_id,
        source=episode.source,
        content=content,
        t_ref=episode.t_ref,
        metadata=orjson.loads(episode.metadata),
        bt=validity(episodes.clock_of(view.db, episode.row_id)),
    )


def _same(before: Episode, said: EpisodeDraft) -> bool:
    """Whatever the order of the members in `metadata`."""
    return (before.source, before.t_ref, _canonical(before.metadata)) == (
        said.source,
        said.t_ref,
        _canonical(said.metadata),
    )


def _canonical(metadata: str) -> bytes:
    return orjson.dumps(orjson.loads(metadata), option=orjson.OPT_SORT_KEYS)


def _ingested(tx: Transaction, version: Episode, artifact_id: str, revision_id: str) -> Ingested:
    lsn = Lsn.of(episodes.clock_of(tx.db, version.row_id))
    return Ingested(episode_id=version.episode_id, artifact_id=artifact_id, revision_id=revision_id, lsn=lsn.to_wire())


def _title(source: str) -> str:
    """What the artifact is called in the other protocols: its source, cut to a title."""
    shown = " ".join(source.split()) or episodes.KIND
    if len(shown.encode()) > limits.TITLE_BYTES_MAX:
        shown = shown[: limits.TITLE_BYTES_MAX // 4 - 1] + _CUT
    return shown

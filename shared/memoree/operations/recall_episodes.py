"""Recall as MemoryProtocol asks for it (§6): chunks of episodes, at present or as of an instant."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from ulid import ULID

from memoree import limits
from memoree.database import episodes
from memoree.envelope import WireModel
from memoree.episodes.chunks import chunk_id
from memoree.episodes.clock import Hlc
from memoree.episodes.entities import entities
from memoree.episodes.filter import Filter
from memoree.operations.call import Call
from memoree.operations.registry import INTERNAL, read
from memoree.operations.view import View
from memoree.retrieval.episodes import EpisodeHit, find_episodes
from memoree.retrieval.query import analyze
from memoree.retrieval.text import fold
from memoree.retrieval.words import words

RECALL = "episode.recall"


class EpisodeRecall(WireModel):
    """`as_of` is the last position whose commits are seen; without one the newest is."""

    query: str
    k: Annotated[int, Field(ge=1, le=limits.EPISODE_HITS_MAX)]
    as_of: Hlc | None = None
    filter: Filter | None = None
    mode: Literal["semantic", "graph"] = "semantic"


class EpisodeHits(BaseModel):
    """Best first. Hits as they are on the wire, but for whether they are degraded: all of them are where the graph was
    to be walked and the query names nothing to begin at."""

    hits: list[dict[str, Any]]
    degraded: bool


@read(RECALL, position=INTERNAL, input=EpisodeRecall, result=EpisodeHits, needs_context=False)
def recall(view: View, call: Call[EpisodeRecall]) -> dict[str, Any]:
    """A query without a word finds nothing. Raises `INVALID_REQUEST` for one that is too long or takes too long."""
    wanted = call.input
    if not words(fold(wanted.query)):
        return {"hits": [], "degraded": False}
    named = entities(wanted.query) if wanted.mode == "graph" else []
    found = find_episodes(
        view.db,
        analyze(wanted.query),
        seen=view.meta.commit_seq if wanted.as_of is None else episodes.commit_at(view.db, wanted.as_of.reading),
        filter=wanted.filter,
        limit=wanted.k,
        state=(view.meta.history, view.meta.commit_seq),
        entities=named,
    )
    return {"hits": [_hit(view, hit) for hit in found], "degraded": wanted.mode == "graph" and not named}


def _hit(view: View, hit: EpisodeHit) -> dict[str, Any]:
    """Nothing ends the validity of what is visible: to its reader it still holds."""
    chunk = hit.chunk
    return {
        "id": list(ULID.from_str(chunk_id(chunk.revision_id, chunk.ordinal)).bytes),
        "score": hit.score,
        "text": chunk.text,
        "source": chunk.source,
        "heading_path": hit.heading_path,
        "valid_from": Hlc.of(episodes.clock_of(view.db, chunk.version_row)).model_dump(),
        "valid_to": None,
        "rerank_applied": False,
        "source_op": hit.source,
        "episode_id": chunk.episode_id,
    }

"""Everything of MemoryProtocol's that was visible at one position, page by page (§9).

A page is read from whatever state is current: versions tell from which commit until which they were visible, so all
pages of one position agree, whatever is written in between. What was erased meanwhile is in no later page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import apsw
import orjson
from pydantic import BaseModel, Field

from memoree import clock, limits
from memoree.database import artifacts, episodes
from memoree.envelope import WireModel
from memoree.episodes.chunks import chunk_id
from memoree.episodes.clock import COUNTER_BITS, U16_MAX, Hlc
from memoree.errors import MemoreeError, not_found
from memoree.operations.artifacts import read_body
from memoree.operations.call import Call
from memoree.operations.registry import INTERNAL, read
from memoree.operations.view import View
from memoree.retrieval.outlines import Outlines

SNAPSHOT = "episode.snapshot"
_json = orjson.dumps
SCAN_ERROR = "scan_error"
"""Of a line that stands for what cannot be read."""


class Place(WireModel):
    """After which row a page begins."""

    kind: Literal["chunk", "episode"] = "chunk"
    row: int = 0
    ordinal: int = -1
    episode_id: str = ""


Line = tuple[str, int, int, str]
"""JSON and its newline, put together by hand: a document per row would take as long as everything else. Then what the
place after it needs: the row and ordinal of a chunk, or 0, -1 and the id of an episode."""


class EpisodeSnapshot(WireModel):
    """`position` for the first page, and for those after it what that said of `seen` and `history`."""

    position: Hlc | None = None
    seen: int | None = None
    history: int | None = None
    after: Place = Field(default_factory=Place)


class SnapshotPage(BaseModel):
    """`lines` are JSON, each with its newline; `next` is where the next page begins, absent after the last one."""

    lines: str
    seen: int
    history: int
    next: dict[str, Any] | None = None


@read(SNAPSHOT, position=INTERNAL, input=EpisodeSnapshot, result=SnapshotPage, needs_context=False)
def page(view: View, call: Call[EpisodeSnapshot]) -> dict[str, Any]:
    """Raises `NOT_FOUND` for a position ahead of every clock, and for one in a past that a restore has replaced."""
    wanted = call.input
    if wanted.history is not None and wanted.history != view.meta.history:
        not_found("history", str(wanted.history))
    seen = _commit_at(view, wanted.position) if wanted.position is not None else wanted.seen
    assert seen is not None, "a page is at a position, or goes on from one"
    lines: list[str] = []
    characters = 0
    next_place: dict[str, Any] | None = None
    for line, row, ordinal, episode_id in _rows(view, seen, wanted.after):
        lines.append(line)
        characters += len(line)
        if characters >= limits.SNAPSHOT_PAGE_CHARACTERS:
            kind = "chunk" if row else "episode"
            next_place = {"kind": kind, "row": row, "ordinal": ordinal, "episode_id": episode_id}
            break
    return {"lines": "".join(lines), "seen": seen, "history": view.meta.history, "next": next_place}


def _commit_at(view: View, position: Hlc) -> int:
    newest_ms = max(
        clock.milliseconds(clock.from_stored(view.now)),
        clock.hlc_milliseconds(view.meta.hlc),
    )
    if position.wall_ms > newest_ms:
        not_found("position", f"{position.wall_ms}.{position.counter}")
    return episodes.commit_at(view.db, position.reading)


def _rows(view: View, seen: int, after: Place) -> Iterator[Line]:
    """Chunks in the order of commits, then episodes by their ids. Raises what the same request may not meet again."""
    if after.kind == "chunk":
        yield from _chunks(view.db, seen, after)
        after = Place(kind="episode")
    yield from _episodes(view, seen, after)


def _chunks(db: apsw.Connection, seen: int, after: Place) -> Iterator[Line]:
    outlines = Outlines(db)
    rows = episodes.chunks_at(db, seen=seen, row=after.row, ordinal=after.ordinal)
    for row, ordinal, start, kept, inline, revision_id, episode_id, source, hlc, is_whole in rows:
        chunk = chunk_id(revision_id, ordinal)
        text = inline.decode() if kept is None else kept
        has_no_headings = is_whole and "#" not in text and "=" not in text and "-" not in text
        headings = "[]" if has_no_headings else _json(outlines.path(row, start)).decode()
        line = (
            f'{{"key":"chunk:{chunk}","value":{{"id":"{chunk}","episode_id":"{episode_id}",'
            f'"source":{_json(source).decode()},"text":{_json(text).decode()},"offset":{start},'
            f'"heading_path":{headings},"bt":{_visible_since(hlc)}}}}}\n'
        )
        yield line, row, ordinal, ""


def _episodes(view: View, seen: int, after: Place) -> Iterator[Line]:
    rows = episodes.contents_at(view.db, seen=seen, episode_id=after.episode_id)
    for episode_id, row, source, t_ref, metadata, hlc, body, size in rows:
        try:
            content = _blob(view, row, size) if body is None else body
        except MemoreeError as error:
            if error.retryable:
                raise
            told = {"error": SCAN_ERROR, "message": f"episode {episode_id}: {error.message}"}
            line = f"{_json(told).decode()}\n"
        else:
            text = _json(content.decode(errors="replace")).decode()
            line = (
                f'{{"key":"episode:{episode_id}","value":{{"id":"{episode_id}","source":{_json(source).decode()},'
                f'"content":{text},"t_ref":{_json(t_ref).decode()},"metadata":{metadata},'
                f'"bt":{_visible_since(hlc)}}}}}\n'
            )
        yield line, 0, -1, episode_id


def _visible_since(hlc: int) -> str:
    """As `episodes.clock.validity`."""
    since = f'{{"wall_ms":{hlc >> COUNTER_BITS},"counter":{hlc & U16_MAX},"node_id":0}}'
    return f'{{"valid":[{since},null],"sys":[{since},null]}}'


def _blob(view: View, row: int, size: int) -> bytes:
    """Of a text that is a blob the index keeps the whole; a blob that is no text is read."""
    text = episodes.kept_text(view.db, row)
    return text if len(text) == size else read_body(view, artifacts.revision_by_row(view.db, row))

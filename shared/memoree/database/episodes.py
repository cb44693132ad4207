"""Episodes: what is behind an episode id, version by version (MemoryProtocol §5).

A version is one revision of an artifact of kind `episode`, and its row id is the commit that made both. It is visible
from that commit until before `sys_to`. Replaced and forgotten versions stay; erased ones are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apsw
import orjson
from blake3 import blake3

from memoree.database.connection import one, scalar
from memoree.database.entry import Entry

KIND = "episode"
"""Of artifacts that are episodes."""

VISIBLE_EPISODE = "(p.row_id <= :seen AND (p.sys_to IS NULL OR :seen < p.sys_to))"
"""Of a version `p`: whether it was the truth at the commit `:seen`."""

_COLUMNS = "p.episode_id, p.source, p.t_ref, p.metadata, p.artifact_row, p.row_id, p.sys_to"
_CURRENT = f"SELECT {_COLUMNS} FROM episodes p WHERE p.episode_id = ? AND p.sys_to IS NULL"  # noqa: S608 - constants
_OF_ARTIFACT = f"SELECT {_COLUMNS} FROM episodes p WHERE p.artifact_row = ? AND p.sys_to IS NULL"  # noqa: S608
_VISIBLE = f"""
    SELECT {_COLUMNS} FROM episodes p WHERE p.episode_id = :episode_id AND {VISIBLE_EPISODE}
"""  # noqa: S608
_EVERY_OF_ARTIFACT = f"SELECT {_COLUMNS} FROM episodes p WHERE p.artifact_row = ? ORDER BY p.row_id"  # noqa: S608
_ALL = f"SELECT {_COLUMNS} FROM episodes p ORDER BY p.row_id"  # noqa: S608
_MATCHING = f"""
    SELECT {_COLUMNS} FROM episodes p WHERE {{visible}} AND {{matches}} ORDER BY p.row_id LIMIT :most
"""  # noqa: S608
_BY_SOURCE = "p.source >= :prefix AND (:after IS NULL OR p.source < :after)"
_BY_METADATA = """EXISTS (
    SELECT 1 FROM json_each(p.metadata) AS m WHERE m.key = :key AND m.type = 'text' AND m.value = :value)"""
_BEFORE = "p.row_id <= (SELECT max(commit_seq) FROM events WHERE hlc < :reading)"
_ARTIFACTS = """
    SELECT DISTINCT p.artifact_row FROM json_each(?) AS i CROSS JOIN episodes AS p ON p.episode_id = i.value
    ORDER BY p.artifact_row
"""
_CHUNKS_AT = f"""
    SELECT p.row_id, c.ordinal, c.start_byte, c.text, substr(r.body, c.start_byte + 1, c.end_byte - c.start_byte),
        r.revision_id, p.episode_id, p.source, v.hlc, c.start_byte = 0 AND c.end_byte = r.size_bytes
    FROM episodes AS p
    CROSS JOIN artifact_chunks AS c ON c.revision_row = p.row_id
    CROSS JOIN artifact_revisions AS r ON r.row_id = p.row_id
    CROSS JOIN events AS v ON v.commit_seq = p.row_id
    WHERE {VISIBLE_EPISODE} AND p.row_id >= :row AND (p.row_id > :row OR c.ordinal > :ordinal)
        AND c.end_byte > c.start_byte
    ORDER BY p.row_id, c.ordinal
"""  # noqa: S608
_CONTENTS_AT = f"""
    SELECT p.episode_id, p.row_id, p.source, p.t_ref, p.metadata, v.hlc, r.body, r.size_bytes
    FROM episodes AS p
    CROSS JOIN artifact_revisions AS r ON r.row_id = p.row_id
    CROSS JOIN events AS v ON v.commit_seq = p.row_id
    WHERE {VISIBLE_EPISODE} AND p.episode_id > :episode_id
    ORDER BY p.episode_id
"""  # noqa: S608
_KEPT_TEXTS = "SELECT text FROM artifact_chunks WHERE revision_row = ? ORDER BY ordinal"
_INSERT = """
    INSERT INTO episodes (episode_id, source, t_ref, metadata, artifact_row, row_id, sys_to)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_CLOSE = "UPDATE episodes SET sys_to = ?2 WHERE row_id = ?1"
_REMOVE = "DELETE FROM episodes WHERE row_id = ?"
_EVENT_UP_TO = "SELECT commit_seq, hlc FROM events WHERE commit_seq <= ? ORDER BY commit_seq DESC LIMIT 1"
_NEWEST_EVENT = "SELECT max(commit_seq) FROM events"
_TOLD_OF_TARGET = """
    SELECT commit_seq FROM events WHERE operation = ? AND json(payload -> 'target') = json(?) ORDER BY commit_seq
"""
_CLOCK_OF = "SELECT hlc FROM events WHERE commit_seq = ?"

_PREVIEW_COLUMNS = "row_id, target, matched, created_at, used_by"
_INSERT_PREVIEW = f"INSERT INTO forget_previews ({_PREVIEW_COLUMNS}) VALUES (?, ?, ?, ?, ?)"  # noqa: S608
_FIND_PREVIEW = f"SELECT {_PREVIEW_COLUMNS} FROM forget_previews WHERE row_id = ?"  # noqa: S608
_ALL_PREVIEWS = f"SELECT {_PREVIEW_COLUMNS} FROM forget_previews ORDER BY row_id"  # noqa: S608
_SAME_PREVIEWS = f"SELECT {_PREVIEW_COLUMNS} FROM forget_previews WHERE target = ? ORDER BY row_id"  # noqa: S608
_USE_PREVIEW = "UPDATE forget_previews SET used_by = ?2 WHERE row_id = ?1"
_EMPTY_PREVIEW = "UPDATE forget_previews SET target = '' WHERE row_id = ?"


@dataclass(frozen=True, slots=True)
class Episode:
    """One version. `t_ref` is the text that was sent, `metadata` a JSON object as text."""

    episode_id: str
    source: str
    t_ref: str | None
    metadata: str
    artifact_row: int
    row_id: int
    sys_to: int | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """A dry run of forgetting, told in the commit `row_id`; `target` is canonical JSON, `used_by` the commit that
    deleted what it previewed."""

    row_id: int
    target: str
    matched: int
    created_at: str
    used_by: int | None = None


def current(db: apsw.Connection, episode_id: str) -> Episode | None:
    """The version that is the truth now."""
    row = one(db, _CURRENT, (episode_id,))
    return Episode(*row) if row else None


def current_of_artifact(db: apsw.Connection, artifact_row: int) -> Episode | None:
    row = one(db, _OF_ARTIFACT, (artifact_row,))
    return Episode(*row) if row else None


def visible(db: apsw.Connection, episode_id: str, *, seen: int) -> Episode | None:
    """The version that was the truth at the commit `seen`."""
    row = one(db, _VISIBLE, {"episode_id": episode_id, "seen": seen})
    return Episode(*row) if row else None


def by_source(
    db: apsw.Connection, prefix: str, after: str | None, *, seen: int | None = None, most: int
) -> list[Episode]:
    """The first that are the truth now, or were at the commit `seen`, and whose sources begin with `prefix`, which
    `after` is the end of."""
    return _found(db, _BY_SOURCE, seen, prefix=prefix, after=after, most=most)


def by_metadata(db: apsw.Connection, key: str, value: str, *, seen: int | None = None, most: int) -> list[Episode]:
    """As `by_source`, those whose metadata have that text there."""
    return _found(db, _BY_METADATA, seen, key=key, value=value, most=most)


def made_before(db: apsw.Connection, reading: int, *, seen: int | None = None, most: int) -> list[Episode]:
    """As `by_source`, those made before a reading of the hybrid clock."""
    return _found(db, _BEFORE, seen, reading=reading, most=most)


def _found(db: apsw.Connection, matches: str, seen: int | None, **bindings: Any) -> list[Episode]:
    visible = "p.sys_to IS NULL" if seen is None else VISIBLE_EPISODE
    statement = _MATCHING.format(visible=visible, matches=matches)
    return [Episode(*row) for row in _rows(db, statement, {"seen": seen, **bindings})]


def artifact_rows(db: apsw.Connection, versions: Iterable[Episode]) -> list[int]:
    """Of all the artifacts that were ever behind the ids of these, but for erased ones."""
    ids = orjson.dumps([version.episode_id for version in versions]).decode()
    return [int(row) for (row,) in _rows(db, _ARTIFACTS, (ids,))]


def _rows(db: apsw.Connection, statement: str, bindings: tuple[Any, ...] | dict[str, Any]) -> Iterable[tuple[Any, ...]]:
    return db.execute(statement, bindings)


def chunks_at(db: apsw.Connection, *, seen: int, row: int, ordinal: int) -> Iterable[tuple[Any, ...]]:
    """The chunks after a place of the versions that were the truth at the commit `seen`, in the order of commits: row,
    ordinal, first byte, text as the index keeps it, bytes of an inline body, revision, episode, source, clock, whether
    it is the whole text."""
    return _rows(db, _CHUNKS_AT, {"seen": seen, "row": row, "ordinal": ordinal})


def contents_at(db: apsw.Connection, *, seen: int, episode_id: str) -> Iterable[tuple[Any, ...]]:
    """The versions after an id that were the truth at the commit `seen`, in the order of ids: id, row, source, `t_ref`,
    metadata, clock, inline body, size."""
    return _rows(db, _CONTENTS_AT, {"seen": seen, "episode_id": episode_id})


def kept_text(db: apsw.Connection, row: int) -> bytes:
    """What the index keeps of a version's text: all of it where that is a blob."""
    return b"".join((text or "").encode() for (text,) in _rows(db, _KEPT_TEXTS, (row,)))


def insert(db: apsw.Connection, episode: Episode) -> None:
    """A new version; the one before it must be closed at the same commit."""
    row = (episode.episode_id, episode.source, episode.t_ref, episode.metadata, episode.artifact_row)
    db.execute(_INSERT, (*row, episode.row_id, episode.sys_to))


def close(db: apsw.Connection, episode: Episode, commit_seq: int) -> Episode:
    """The current version stops being the truth at this commit."""
    db.execute(_CLOSE, (episode.row_id, commit_seq))
    return replace(episode, sys_to=commit_seq)


def remove(db: apsw.Connection, artifact_row: int) -> list[Episode]:
    """For an erasure: every version that the artifact was. Returns what they were."""
    removed = [Episode(*row) for row in db.execute(_EVERY_OF_ARTIFACT, (artifact_row,))]
    for episode in removed:
        db.execute(_REMOVE, (episode.row_id,))
    return removed


def commit_at(db: apsw.Connection, hlc: int) -> int:
    """The newest commit that a reading of the hybrid clock has seen; 0 before the first. Readings rise with commits, so
    that it is found by halving."""
    newest, seen, unseen = 0, 0, (scalar(db, _NEWEST_EVENT) or 0) + 1
    while seen + 1 < unseen:
        middle = (seen + unseen) // 2
        commit_seq, reading = one(db, _EVENT_UP_TO, (middle,)) or (0, 0)
        if reading <= hlc:
            newest, seen = commit_seq, middle
        else:
            unseen = commit_seq
    return newest


def clock_of(db: apsw.Connection, commit_seq: int) -> int:
    """What the hybrid clock read at a commit that has an event."""
    return int(scalar(db, _CLOCK_OF, (commit_seq,)))


def insert_preview(db: apsw.Connection, preview: Preview) -> None:
    row = (preview.row_id, preview.target, preview.matched, preview.created_at, preview.used_by)
    db.execute(_INSERT_PREVIEW, row)


def find_preview(db: apsw.Connection, commit_seq: int) -> Preview | None:
    row = one(db, _FIND_PREVIEW, (commit_seq,))
    return Preview(*row) if row else None


def use_preview(db: apsw.Connection, preview: Preview, commit_seq: int) -> Preview:
    db.execute(_USE_PREVIEW, (preview.row_id, commit_seq))
    return replace(preview, used_by=commit_seq)


def previews_of(db: apsw.Connection, target: str) -> list[Preview]:
    """Every preview of a target."""
    return [Preview(*row) for row in db.execute(_SAME_PREVIEWS, (target,))]


def commits_told_of(db: apsw.Connection, operation: str, target: str) -> list[int]:
    """The commits of an operation whose events name a target."""
    return [int(commit) for (commit,) in _rows(db, _TOLD_OF_TARGET, (operation, target))]


def empty_preview(db: apsw.Connection, preview: Preview) -> Preview:
    """What it was about goes with what that was; it confirms nothing any more."""
    db.execute(_EMPTY_PREVIEW, (preview.row_id,))
    return replace(preview, target="")


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every version and every preview, as they are now."""
    for row in db.execute(_ALL):
        yield entry(Episode(*row))
    for row in db.execute(_ALL_PREVIEWS):
        yield preview_entry(Preview(*row))


def entry(episode: Episode) -> Entry:
    content = (episode.source, episode.t_ref, episode.metadata, episode.artifact_row, episode.sys_to)
    return Entry("episodes", episode.episode_id, str(episode.row_id), blake3(orjson.dumps(content)).digest())


def preview_entry(preview: Preview) -> Entry:
    content = (preview.target, preview.matched, preview.created_at, preview.used_by)
    return Entry("forget_previews", str(preview.row_id), "", blake3(orjson.dumps(content)).digest())

"""Chat turns in a JSONL file as a source: one episode per session, a new revision as turns are added.

A line is `{"session", "speaker", "text", "at"?, "id"?}`. The content of an episode is its turns in the order of the
file, each as `speaker: `, the text as it was said, and an empty line. Provenance says of every turn who spoke, when,
and which bytes of the content are its text.

A long session is told in parts, each an item of its own: `SESSION`, `SESSION#2` and so on. A part ends before the turn
that would exceed one of its bounds, so that turns that are added change the last part only.
"""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import apsw
import orjson
from blake3 import blake3
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from memoree import clock, limits
from memoree.connectors import Change, Item, Skipped, Unchanged
from memoree.connectors.media_types import as_title
from memoree.connectors.state import State
from memoree.connectors.threaded import in_thread
from memoree.envelope import bounded
from memoree.errors import Code, MemoreeError
from memoree.paths import open_regular_file

MEDIA_TYPE = "text/plain; charset=utf-8"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PREVIEW_CHARS_MAX = 80
_SCHEMA = """
    CREATE TABLE turns (session TEXT NOT NULL, turn_id TEXT, line INTEGER NOT NULL, turn BLOB NOT NULL) STRICT;
    CREATE INDEX turns_in_order ON turns (session, line);
    CREATE UNIQUE INDEX turns_by_id ON turns (session, turn_id) WHERE turn_id IS NOT NULL;
"""
_ADD = """
    INSERT INTO turns VALUES (?, ?, ?, ?)
    ON CONFLICT (session, turn_id) WHERE turn_id IS NOT NULL DO UPDATE SET turn = excluded.turn
"""
_SESSIONS = "SELECT session FROM turns GROUP BY session ORDER BY min(line)"
_TURNS = "SELECT turn FROM turns WHERE session = ? ORDER BY line"


def _named(speaker: str) -> str:
    name = as_title(speaker)
    if not name:
        raise ValueError("names nobody")
    return name


class Turn(BaseModel):
    """One line. Members it does not know are left alone. A turn whose `id` the session had before replaces it, where it
    stands."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    session: Annotated[str, bounded(limits.CONVERSATION_SESSION_BYTES_MAX)]
    speaker: Annotated[str, bounded(limits.TITLE_BYTES_MAX), AfterValidator(_named)]
    text: Annotated[str, bounded(limits.CONVERSATION_TEXT_BYTES_MAX)]
    at: Annotated[str, AfterValidator(clock.parse_timestamp)] | None = None
    id: str | int | None = None


@dataclass(frozen=True, slots=True)
class ConversationConnector:
    """The sessions of one file. Nothing is ever withdrawn: a session that is not in the file any more was moved away
    with an older file."""

    file: Path
    kind: str = "conversation"

    @property
    def locator(self) -> str:
        return self.file.absolute().as_uri()

    def changes(self, state: State) -> AsyncGenerator[Change, None]:
        """Raises `CONFIG_ERROR` for a file that cannot be read."""
        return in_thread(self._changes(state))

    def _changes(self, state: State) -> Generator[Change, None, None]:
        try:
            with open_regular_file(self.file) as opened:
                turns = apsw.Connection("")  # a temporary file: the whole of it need not fit into memory
                try:
                    turns.execute(_SCHEMA)
                    with turns:
                        yield from _read(opened, turns)
                    yield from _episodes(turns, state)
                finally:
                    turns.close()
        except OSError as error:
            raise MemoreeError(
                Code.CONFIG_ERROR, f"the conversation {self.file} cannot be read: {error.strerror or error}"
            ) from error


# --- lines to turns -------------------------------------------------------------------------------------------------


def _read(opened: IO[bytes], turns: apsw.Connection) -> Iterator[Skipped]:
    for number, line in _lines(opened):
        if not line.strip():
            continue
        try:
            turn = Turn.model_validate(orjson.loads(line))
            session = unicodedata.normalize("NFC", turn.session)
        except ValueError as error:
            ending = "" if line.endswith(b"\n") else "; it is the last one and may still be written"
            yield Skipped(f"line {number}", f"{_reason(error)}{ending}")
            continue
        turn_id = None if turn.id is None else str(turn.id)
        turns.execute(_ADD, (session, turn_id, number, orjson.dumps(_stored(turn))))


def _lines(opened: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Numbered from 1. A line longer than any turn is cut, which makes it malformed."""
    number = 0
    while line := opened.readline(limits.CONVERSATION_LINE_BYTES_MAX):
        number += 1
        piece = line
        while not piece.endswith(b"\n") and (piece := opened.readline(limits.CONVERSATION_LINE_BYTES_MAX)):
            line = b"{ longer than a line may be\n"
        yield number, line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line


def _reason(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the line"
        return f"{where}: {first['msg'].removeprefix('Value error, ')}"
    return f"not a turn: {error}"


def _stored(turn: Turn) -> Mapping[str, str]:
    """Without its session, whose spelling was settled."""
    told = {"speaker": turn.speaker, "text": turn.text}
    return {**told, **({} if turn.at is None else {"at": clock.wire(turn.at)})}


# --- turns to episodes ----------------------------------------------------------------------------------------------


def _episodes(turns: apsw.Connection, state: State) -> Iterator[Change]:
    for (session,) in turns.execute(_SESSIONS):
        told = (orjson.loads(turn) for (turn,) in turns.execute(_TURNS, (session,)))
        for number, part in enumerate(_parts(told), start=1):
            item = _episode(session, number, part)
            sent = state.sent(item.external_id)
            if sent is not None and sent.external_revision == item.external_revision:
                yield Unchanged(item.external_id, None)
            else:
                yield item


@dataclass(slots=True)
class _Part:
    content: bytearray
    spans: list[dict[str, Any]]
    spans_bytes: int = 0

    def add(self, turn: Mapping[str, str]) -> None:
        self.content += f"{turn['speaker']}: ".encode()
        start = len(self.content)
        self.content += turn["text"].encode()
        span = _span(turn, start, len(self.content))
        self.content += b"\n\n"
        self.spans.append(span)
        self.spans_bytes += len(orjson.dumps(span)) + 1

    def has_room_for(self, turn: Mapping[str, str]) -> bool:
        more = len(turn["speaker"].encode()) + len(turn["text"].encode())
        span = _span(turn, limits.ARTIFACT_BYTES_MAX, limits.ARTIFACT_BYTES_MAX)
        return (
            len(self.spans) < limits.CONVERSATION_TURNS_MAX
            and len(self.content) + more <= limits.CONVERSATION_PART_BYTES_MAX
            and self.spans_bytes + len(orjson.dumps(span)) <= limits.CONVERSATION_SPANS_BYTES_MAX
        )


def _parts(turns: Iterable[Mapping[str, str]]) -> Iterator[_Part]:
    part = _Part(bytearray(), [])
    for turn in turns:
        if part.spans and not part.has_room_for(turn):
            yield part
            part = _Part(bytearray(), [])
        part.add(turn)
    yield part


def _span(turn: Mapping[str, str], start: int, end: int) -> dict[str, Any]:
    at = {"at": turn["at"]} if "at" in turn else {}
    return {"speaker": turn["speaker"], **at, "start_byte": start, "end_byte": end}


def _episode(session: str, number: int, part: _Part) -> Item:
    first = part.spans[0]
    beginning = bytes(part.content[first["start_byte"] : first["end_byte"]]).decode()[:_PREVIEW_CHARS_MAX]
    numbered = f" (part {number})" if number > 1 else ""
    provenance = {"connector": "conversation", "session": session, "part": number, "turns": part.spans}
    title = as_title(f"{session[: limits.CONVERSATION_TITLE_CHARS_MAX]}{numbered}: {beginning}")
    content = bytes(part.content)
    # Speakers and instants are no part of the content, and may be corrected all the same.
    digest = blake3(orjson.dumps([title, provenance]) + content).hexdigest()
    return Item(
        external_id=_item_id(session, number),
        external_revision=f"blake3:{digest}",
        title=title,
        media_type=MEDIA_TYPE,
        content=content,
        provenance=provenance,
    )


def _item_id(session: str, number: int) -> str:
    """`%` and `#` of the session's own name stand as `%25` and `%23`."""
    escaped = session.replace("%", "%25").replace("#", "%23")
    return escaped if number == 1 else f"{escaped}#{number}"

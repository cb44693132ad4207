"""Messages that will never be applied as they are, each with what is wrong with it, until somebody decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from blake3 import blake3

from memoree import clock
from memoree.errors import Code, MemoreeError
from memoree.queue import (
    CommandQueue,
    DeadLetter,
    DeadLetterBox,
    Message,
    MessageTooLarge,
    OutgoingMessage,
)
from memoree.queue.checks import NAME_PATTERN

LETTER_VERSION = 1
REASON_CHARACTERS_MAX = 2000
TRIES_TOLD_MAX = 2**31 - 1
"""Of what a header says of itself: what claims more was not written here."""
CHANGED_AT_ONCE = 100
"""Letters that are in memory together while all of them are changed."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter. `letter_id` names it; instants are in wire form; `body` is the message as it was received.
    `tries` counts how often it was submitted in vain, over every time it was sent again by hand."""

    letter_id: str
    group: str
    code: str
    reason: str
    tries: int
    sent_at: str
    first_at: str
    last_at: str
    body: str

    @property
    def identity(self) -> tuple[str, bytes]:
        """What stays of a letter whose message is sent again and dies again, whatever the clocks of workers say."""
        return self.first_at, blake3(self.body.encode()).digest()

    def summary(self) -> dict[str, Any]:
        """What a list shows: the letter without the message, but with what that is about, as far as it can be read."""
        message = _object(self.body)
        source = message.get("source")
        about = {
            "type": message.get("type"),
            "tenant": message.get("tenant"),
            "source": source.get("name") if isinstance(source, dict) else None,
            "external_id": message.get("external_id"),
            "external_revision": message.get("external_revision"),
        }
        told = {name: value for name, value in about.items() if isinstance(value, str)}
        return {
            "letter_id": self.letter_id,
            "code": self.code,
            "reason": self.reason,
            "tries": self.tries,
            "sent_at": self.sent_at,
            "first_at": self.first_at,
            "last_at": self.last_at,
            **told,
        }

    def shown(self) -> dict[str, Any]:
        """The letter with the whole message: as an object where it is one, else as text."""
        return {**self.summary(), "message": _object(self.body) or self.body}


@dataclass(frozen=True, slots=True)
class Retried:
    """What is known of a message that comes out of the dead letters; for any other `tries` is 0."""

    body: str
    tries: int = 0
    first_at: str | None = None

    @property
    def by_hand(self) -> bool:
        return self.first_at is not None

    @classmethod
    def of(cls, body: str) -> Retried:
        """The message in a body, and its history where it has one; what only looks like a history is part of it."""
        header, message = _parted(body, _RETRIED_BEGINS)
        return cls(message, header["retried"], header["first_at"]) if _is_ours(header, _RETRIED) else cls(body)

    def to_body(self) -> str:
        return _joined({"retried": self.tries, "first_at": self.first_at}, self.body)


_RETRIED_BEGINS = '{"retried":'
_RETRIED: Mapping[str, type] = {"retried": int, "first_at": str}
_LETTER_BEGINS = '{"letter":'
_LETTER: Mapping[str, type] = {
    "letter": int,
    "message_id": str,
    "group": str,
    "code": str,
    "reason": str,
    "tries": int,
    "sent_at": str,
    "first_at": str,
    "last_at": str,
}


class DeadLetters:
    """The dead letters of one ingest queue. Every method may raise `QueueError`."""

    def __init__(self, box: DeadLetterBox, queue: CommandQueue, clock_now: Callable[[], datetime]) -> None:
        self._box = box
        self._queue = queue
        self._clock = clock_now

    async def bury(self, message: Message, history: Retried, error: MemoreeError, *, tries: int) -> None:
        """Keep a message with its reason, and take it off the queue before anything after it is decided: a refusal that
        came again would be judged by another state, and might be one no more. `tries` counts from its publication."""
        now = clock.wire(clock.stored(self._clock()))
        letter = {
            "letter": LETTER_VERSION,
            "message_id": message.message_id,
            "group": message.group,
            "code": error.code.value,
            "reason": error.message[:REASON_CHARACTERS_MAX],
            "tries": min(history.tries + tries, TRIES_TOLD_MAX),
            "sent_at": _instant(message.sent_at),
            "first_at": history.first_at or now,
            "last_at": now,
        }
        reason = f"{error.code}: {letter['reason']}"
        try:
            await self._box.bury(message, body=_joined(letter, history.body), reason=reason)
        except MessageTooLarge:  # nobody who publishes as we do sends one that large
            await self._box.bury(message, body=history.body, reason=reason)
        await self._queue.ack([message])

    async def letters(self) -> AsyncIterator[Letter]:
        """All of them, each once."""
        told: set[str] = set()
        async with aclosing(self._box.dead_letters()) as kept:
            async for each in kept:
                if each.message_id not in told:
                    told.add(each.message_id)
                    yield _letter(each)

    async def summaries(self) -> list[dict[str, Any]]:
        """What a list shows, the letter that died first before the others."""
        found = [letter.summary() async for letter in self.letters()]
        return sorted(found, key=lambda summary: clock.parse_timestamp(summary["last_at"]))

    async def find(self, letter_id: str) -> Letter:
        """Raises `NOT_FOUND`."""
        return (await self._named([letter_id]))[0]

    async def retry(self, letter_ids: Collection[str]) -> int:
        """Send messages again, to the end of their group's line; how many. Raises `NOT_FOUND` before the first one."""
        return await self._retry(await self._named(letter_ids))

    async def drop(self, letter_ids: Collection[str]) -> int:
        """Remove dead letters for good; how many. Raises `NOT_FOUND` before the first one."""
        return await self._drop(await self._named(letter_ids))

    async def retry_all(self) -> int:
        """Send every message again that is dead by now, once: one that dies again stays; how many."""
        return await self._all(self._retry)

    async def drop_all(self) -> int:
        """Remove every letter for good that is there by now; how many."""
        return await self._all(self._drop)

    async def _all(self, change: Callable[[Sequence[Letter]], Awaitable[int]]) -> int:
        """Looks again until a look finds nothing else: a queue may show some letters only once others are gone."""
        began = clock.stored(self._clock())
        changed: set[tuple[str, bytes]] = set()
        done = 0
        while True:
            meant: dict[str, tuple[str, bytes]] = {}
            async for letter in self.letters():
                if clock.parse_timestamp(letter.last_at) <= began and letter.identity not in changed:
                    meant[letter.letter_id] = letter.identity
            if not meant:
                return done
            changed.update(meant.values())
            letter_ids = list(meant)
            for first in range(0, len(letter_ids), CHANGED_AT_ONCE):
                done += await change(await self._found(letter_ids[first : first + CHANGED_AT_ONCE]))

    async def _retry(self, letters: Sequence[Letter]) -> int:
        for letter in letters:
            # The same for every attempt at this retry: one that broke off before the removal sends nothing twice.
            dedup_id = f"retry-{letter.letter_id}"
            history = Retried(letter.body, letter.tries, letter.first_at)
            try:
                await self._queue.send(OutgoingMessage(history.to_body(), group=letter.group, dedup_id=dedup_id))
            except MessageTooLarge:
                await self._queue.send(OutgoingMessage(letter.body, group=letter.group, dedup_id=dedup_id))
            await self._box.remove_dead([letter.letter_id])
        return len(letters)

    async def _drop(self, letters: Sequence[Letter]) -> int:
        return await self._box.remove_dead([letter.letter_id for letter in letters])

    async def _named(self, letter_ids: Collection[str]) -> list[Letter]:
        found = {letter.letter_id: letter for letter in await self._found(letter_ids)}
        for letter_id in letter_ids:
            if letter_id not in found:
                raise MemoreeError(Code.NOT_FOUND, f"there is no dead letter {letter_id!r} of this queue")
        return [found[letter_id] for letter_id in dict.fromkeys(letter_ids)]

    async def _found(self, letter_ids: Collection[str]) -> list[Letter]:
        return [_letter(kept) for kept in await self._box.find_dead(letter_ids)]


def _letter(kept: DeadLetter) -> Letter:
    header, body = _parted(kept.body, _LETTER_BEGINS)
    if _is_ours(header, _LETTER) and header["letter"] == LETTER_VERSION and NAME_PATTERN.fullmatch(header["group"]):
        told = {name: value for name, value in header.items() if name not in ("letter", "message_id")}
        return Letter(kept.message_id, body=body, **told)
    history = Retried.of(kept.body)
    return Letter(
        letter_id=kept.message_id,
        group=kept.group,
        code=Code.INTERNAL_ERROR.value,
        reason=kept.reason,
        tries=min(history.tries + kept.receive_count, TRIES_TOLD_MAX),
        sent_at=_instant(kept.sent_at),
        first_at=history.first_at or _instant(kept.sent_at),
        last_at=_instant(kept.dead_at),
        body=history.body,
    )


def _joined(header: dict[str, Any], body: str) -> str:
    """A line of JSON before a body: nothing in the body is escaped once more, which might make it outgrow a queue."""
    return f"{orjson.dumps(header).decode()}\n{body}"


def _parted(text: str, begins: str) -> tuple[dict[str, Any], str]:
    """The header and the body; no header where there is none that begins so."""
    line, newline, body = text.partition("\n")
    return (_object(line), body) if newline and line.startswith(begins) else ({}, text)


def _is_ours(header: Mapping[str, Any], members: Mapping[str, type]) -> bool:
    """Whether a header was written here: whoever may send can send what begins like one."""
    return header.keys() == members.keys() and all(
        type(value) is members[name]
        and (type(value) is not int or 0 <= value <= TRIES_TOLD_MAX)
        and (not name.endswith("_at") or _is_instant(str(value)))
        for name, value in header.items()
    )


def _is_instant(text: str) -> bool:
    try:
        return clock.wire(clock.parse_timestamp(text)) == text
    except ValueError:
        return False


def _instant(epoch_seconds: float) -> str:
    return clock.wire(clock.stored(datetime.fromtimestamp(epoch_seconds, UTC)))


def _object(body: str) -> dict[str, Any]:
    """The JSON object in a body; an empty one where it is something else."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}

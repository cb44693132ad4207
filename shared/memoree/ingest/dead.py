"""Messages that will never be applied as they are, each with what is wrong with it, until somebody decides."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from memoree import clock, limits
from memoree.errors import Code, MemoreeError
from memoree.queue import (
    CommandQueue,
    DeadLetter,
    DeadLetterBox,
    Message,
    MessageTooLarge,
    OutgoingMessage,
)

LETTER_VERSION = 1
REASON_CHARACTERS_MAX = 2000


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
        """The message in a body, and its history where it has one."""
        header, message = _parted(body, _RETRIED_BEGINS)
        return cls(message, header["retried"], header["first_at"]) if header else cls(body)

    def to_body(self) -> str:
        return _joined({"retried": self.tries, "first_at": self.first_at}, self.body)


_RETRIED_BEGINS = '{"retried":'
_LETTER_BEGINS = '{"letter":'


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
            "tries": history.tries + tries,
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

    async def letters(self, *, limit: int = limits.INGEST_DEAD_LETTERS_LISTED_MAX) -> list[Letter]:
        """The oldest ones first, each once."""
        found = await self._box.dead_letters(limit=limit)
        return list({letter.letter_id: letter for letter in map(_letter, found)}.values())

    async def find(self, letter_id: str) -> Letter:
        """Raises `NOT_FOUND`."""
        return (await self._named([letter_id]))[0]

    async def retry(self, letter_ids: Collection[str]) -> int:
        """Send messages again, to the end of their group's line; how many. Raises `NOT_FOUND` before the first one."""
        letters = await self._named(letter_ids)
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

    async def drop(self, letter_ids: Collection[str]) -> int:
        """Remove dead letters for good; how many. Raises `NOT_FOUND` before the first one."""
        await self._named(letter_ids)
        return await self._box.remove_dead(letter_ids)

    async def _named(self, letter_ids: Collection[str]) -> list[Letter]:
        found = {letter.letter_id: letter for letter in await self.letters()}
        for letter_id in letter_ids:
            if letter_id not in found:
                raise MemoreeError(Code.NOT_FOUND, f"there is no dead letter {letter_id!r} of this queue")
        return [found[letter_id] for letter_id in dict.fromkeys(letter_ids)]


def _letter(kept: DeadLetter) -> Letter:
    header, body = _parted(kept.body, _LETTER_BEGINS)
    if header.pop("letter", None) == LETTER_VERSION:
        del header["message_id"]
        return Letter(kept.message_id, body=body, **header)
    history = Retried.of(kept.body)
    return Letter(
        letter_id=kept.message_id,
        group=kept.group,
        code=Code.INTERNAL_ERROR.value,
        reason=kept.reason,
        tries=history.tries + kept.receive_count,
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


def _instant(epoch_seconds: float) -> str:
    return clock.wire(clock.stored(datetime.fromtimestamp(epoch_seconds, UTC)))


def _object(body: str) -> dict[str, Any]:
    """The JSON object in a body; an empty one where it is something else."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}

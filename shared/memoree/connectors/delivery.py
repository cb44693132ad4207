"""One run of a connector: its changes become messages, batch by batch, and are remembered once they are queued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import ValidationError

from memoree import limits
from memoree.connectors import Change, Gone, Item, Settle, Skipped, Unchanged
from memoree.connectors.messages import Messages
from memoree.connectors.state import State
from memoree.database.sources import Health
from memoree.errors import Code, MemoreeError, shown
from memoree.ingest.message import Ingest, IngestMessage, InlineContent, UploadReference
from memoree.ingest.publisher import TooLargeToPublish

_HEALTH, _LOCATOR, _TOLD = "health", "locator", "told_cursor"


class Outlet(Protocol):
    """Where messages go: `memoree.ingest.publisher.Publisher`, or a list for a rehearsal."""

    async def content(self, tenant: str, data: bytes) -> InlineContent | UploadReference: ...

    async def publish(self, messages: Sequence[IngestMessage]) -> None: ...


@dataclass(slots=True)
class Summary:
    """What runs did. Of what the last one skipped, `skipped` holds the first ones and `skipped_count` counts all."""

    delivered: int = 0
    withdrawn: int = 0
    unchanged: int = 0
    bytes_delivered: int = 0
    skipped_count: int = 0
    skipped: list[Skipped] = field(default_factory=list)

    def count(self, change: Change) -> None:
        match change:
            case Item():
                self.delivered += 1
                self.bytes_delivered += len(change.content)
            case Gone():
                self.withdrawn += 1
            case Unchanged():
                self.unchanged += 1
            case Skipped():
                self.skipped_count += 1
                if len(self.skipped) < limits.CONNECTOR_SKIPPED_LISTED_MAX:
                    self.skipped.append(change)

    def absorb(self, later: Summary) -> None:
        """What was skipped is tried again by every run, and counts once."""
        self.delivered += later.delivered
        self.withdrawn += later.withdrawn
        self.bytes_delivered += later.bytes_delivered
        self.unchanged = later.unchanged
        self.skipped_count = later.skipped_count
        self.skipped = later.skipped

    def to_wire(self) -> dict[str, Any]:
        return {
            "delivered": self.delivered,
            "withdrawn": self.withdrawn,
            "unchanged": self.unchanged,
            "bytes_delivered": self.bytes_delivered,
            "skipped_count": self.skipped_count,
            "skipped": [{"where": change.where, "reason": change.reason} for change in self.skipped],
        }


class Delivery:
    """Good for one run. `progress` is called after every batch.

    Killed at any moment, nothing is lost: what was queued and not yet remembered is sent again by the next run, and is
    a repeat on the other side.
    """

    def __init__(
        self,
        messages: Messages,
        state: State,
        outlet: Outlet,
        *,
        progress: Callable[[Summary], None] = lambda _: None,
    ) -> None:
        self._messages = messages
        self._state = state
        self._outlet = outlet
        self._progress = progress
        self._said: dict[int, IngestMessage] = {}
        """By the place in the batch of the change it tells."""
        self._batch: list[Change] = []
        self._batch_bytes = 0
        self._exists: dict[str, bool] = {}
        """What the batch leaves behind, ahead of the state."""
        self._published = False
        self.summary = Summary()

    async def run(self) -> Summary:
        """Send what changed since the last run.

        Raises `MemoreeError` when the external system cannot be read, which the health of the source then says too,
        or is another one than before, and `QueueError` when the ingest queue cannot be reached.
        """
        self._check_locator()
        changes = self._messages.connector.changes(self._state)
        try:
            async for change in changes:
                await self._take(change)
        except MemoreeError as error:
            await self._flush()
            await self._tell("error", error.message)
            raise
        finally:
            await changes.aclose()
        await self._flush()
        skipped = self.summary.skipped
        if skipped:
            first = f"{skipped[0].where}: {skipped[0].reason}"
            await self._tell("degraded", f"{self.summary.skipped_count} not delivered, first {first}")
        else:
            await self._tell("healthy", None)
        return self.summary

    def _check_locator(self) -> None:
        """What one place held must not be withdrawn because another one does not hold it."""
        here, before = self._messages.locator, self._state.recall(_LOCATOR)
        if before not in (None, here):
            raise MemoreeError(
                Code.CONFIG_ERROR,
                f"source {shown(self._messages.destination.source)} has delivered from {before}, not {here}: choose "
                f"another name for another source; if it has moved, say --locator {before}",
            )

    async def _take(self, change: Change) -> None:
        match change:
            case Settle():
                await self._flush()
                return
            case Gone():
                if self._exists.get(change.external_id) and self._state.sent(change.external_id) is None:
                    await self._flush()  # that it was sent is not certain before
                if not self._was_sent(change.external_id):
                    return
                self._exists[change.external_id] = False
                self._said[len(self._batch)] = self._messages.withdraw(change)
            case Item():
                change = await self._say(change)
        self._batch.append(change)
        full = len(self._batch) >= limits.CONNECTOR_BATCH_ITEMS_MAX
        if full or self._batch_bytes >= limits.CONNECTOR_BATCH_BYTES_MAX:
            await self._flush()

    def _was_sent(self, external_id: str) -> bool:
        known = self._exists.get(external_id)
        return self._state.sent(external_id) is not None if known is None else known

    async def _say(self, item: Item) -> Item | Skipped:
        """An item that no message can carry is skipped, and the others go on."""
        try:
            content = await self._outlet.content(self._messages.destination.tenant, item.content)
            self._said[len(self._batch)] = self._messages.ingest(item, content)
        except ValidationError as error:  # a name or provenance beyond its bounds
            fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
            return _untold(item, f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}")
        except MemoreeError as error:
            if error.code is not Code.CONTENT_TOO_LARGE:
                raise
            return _untold(item, error.message)
        self._exists[item.external_id] = True
        self._batch_bytes += len(item.content)
        return item

    async def _flush(self) -> None:
        if self._said:
            refused = {id(message): reason for message, reason in await self._publish(list(self._said.values()))}
            for place, message in self._said.items():
                if id(message) in refused and isinstance(item := self._batch[place], Item):
                    self._batch[place] = _untold(item, refused[id(message)])
        self._state.record(self._batch)
        for change in self._batch:
            self.summary.count(change)
        self._said, self._batch, self._batch_bytes, self._exists = {}, [], 0, {}
        self._progress(self.summary)

    async def _publish(self, messages: Sequence[IngestMessage]) -> Sequence[tuple[IngestMessage, str]]:
        """The source is made known before anything is said of it, by every run: it may be another store by now.
        Returns the messages of items that are too large as they are written, and why; all others are queued."""
        refused: Sequence[tuple[IngestMessage, str]] = []
        try:
            await self._outlet.publish(messages if self._published else [self._messages.register(), *messages])
        except TooLargeToPublish as error:
            if not all(isinstance(message, Ingest) for message, _ in error.reasons):
                raise
            refused = error.reasons
        self._state.remember(_LOCATOR, self._messages.locator)
        self._published = True
        return refused

    async def _tell(self, health: Health, message: str | None) -> None:
        """How the source is and where it is to be read on: after a run that sent something, or when it is news. A
        source that never sent anything is not made known in order to say that it is ill."""
        before, cursor = self._state.recall(_HEALTH), self._state.cursor
        moved = cursor is not None and cursor != self._state.recall(_TOLD)
        if self._published or (before is not None and (moved or before != health)):
            await self._publish([self._messages.checkpoint(health, message, cursor)])
            self._state.remember(_HEALTH, health)
            self._state.remember(_TOLD, cursor or "")


def _untold(item: Item, reason: str) -> Skipped:
    return Skipped(item.external_id, reason, item.reminder)

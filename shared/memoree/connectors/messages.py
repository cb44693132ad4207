"""What a connector says of its source, as ingest messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memoree import clock, limits
from memoree.clock import Clock
from memoree.connectors import Connector, Gone, Item
from memoree.database.sources import Health
from memoree.envelope import WireModel
from memoree.ingest.message import (
    Checkpoint,
    Ingest,
    InlineContent,
    MessageContext,
    Register,
    SourceReference,
    Tenant,
    UploadReference,
    Withdraw,
)
from memoree.operations.shapes import Actor, Kind, SourceLocator, SourceName


class Destination(WireModel):
    """Whose memory, where in it, and under which name. `item_kind` is the kind of the artifacts, `locator` where the
    source was when it was registered, unless it is still there."""

    tenant: Tenant
    context: MessageContext
    source: SourceName
    item_kind: Kind
    locator: SourceLocator | None = None
    actor: Actor | None = None


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of one connector to one destination. What has no instant of its own happens now."""

    connector: Connector
    destination: Destination
    clock: Clock = clock.utc_now

    @property
    def locator(self) -> str:
        return self.destination.locator or self.connector.locator

    def register(self) -> Register:
        return Register(**self._common(), locator=self.locator)

    def ingest(self, item: Item, content: InlineContent | UploadReference) -> Ingest:
        return Ingest(
            **self._common(),
            external_id=item.external_id,
            external_revision=item.external_revision,
            kind=self.destination.item_kind,
            title=item.title,
            media_type=item.media_type,
            content=content,
            provenance=dict(item.provenance),
            observed_at=item.observed_at or self._now(),
        )

    def withdraw(self, gone: Gone) -> Withdraw:
        return Withdraw(
            **self._common(),
            external_id=gone.external_id,
            reason=gone.reason,
            observed_at=gone.observed_at or self._now(),
        )

    def checkpoint(self, health: Health, message: str | None, cursor: str | None) -> Checkpoint:
        return Checkpoint(
            **self._common(),
            health=health,
            message=message and message[: limits.CONNECTOR_MESSAGE_CHARS_MAX],
            cursor=cursor,
            observed_at=self._now(),
        )

    def _common(self) -> dict[str, Any]:
        return {
            "tenant": self.destination.tenant,
            "source": SourceReference(system=self.connector.kind, name=self.destination.source),
            "context": self.destination.context,
            "actor": self.destination.actor,
        }

    def _now(self) -> str:
        return clock.wire(clock.stored(self.clock()))

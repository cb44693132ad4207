"""Connectors: processes that watch an external system and put what changed there on the ingest queue.

A connector has credentials of its own and never touches the store. It finds `Change`s; `memoree.connectors.delivery`
turns them into ingest messages and remembers what was sent. Nothing is lost when it is killed at any moment: what was
not remembered is found and sent again, and the other side applies it once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from memoree.connectors.state import State


@dataclass(frozen=True, slots=True)
class Reminder:
    """Something to be tried again that a connector would not come across by itself: `State.reminders` has it from the
    run that skipped it until it is delivered, or `Reached` settles it."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Item:
    """One external item in one external revision.

    Title, media type and provenance follow from the content and the revision alone: a revision that is sent again must
    be the same delivery (machine protocol §4.21). `observed_at` is RFC 3339, `None` for now; two states of an item that
    are told with the same revision and instant are one delivery, and so are two withdrawals with the same instant.
    `hint` stays with the connector: what it recognises the unchanged item by without reading it. `reminder` is kept
    when no message can carry the item, and dropped when it is delivered.
    """

    external_id: str
    external_revision: str
    title: str
    media_type: str
    content: bytes
    provenance: Mapping[str, Any] = field(default_factory=dict)
    observed_at: str | None = None
    hint: str | None = None
    reminder: Reminder | None = None


@dataclass(frozen=True, slots=True)
class Unchanged:
    """An item that was looked at and is what was sent; `hint` recognises it from now on."""

    external_id: str
    hint: str | None


@dataclass(frozen=True, slots=True)
class Gone:
    """An item that was sent and does not exist any more."""

    external_id: str
    reason: str
    observed_at: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that could not be delivered, and why. It is tried again by the next run."""

    where: str
    reason: str
    reminder: Reminder | None = None


@dataclass(frozen=True, slots=True)
class Reached:
    """Everything up to this position was told. The next run begins behind it, and finds what is to be remembered.
    `settled` are names of reminders that are of no use any more."""

    cursor: str
    remember: Mapping[str, str] = field(default_factory=dict)
    settled: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Settle:
    """Asks that everything before it is queued and remembered before the connector is asked for more."""


Change = Item | Unchanged | Gone | Skipped | Reached | Settle


class Connector(Protocol):
    """`kind` and `locator` are what the source is registered with."""

    @property
    def kind(self) -> str: ...

    @property
    def locator(self) -> str: ...

    def changes(self, state: State) -> AsyncGenerator[Change, None]:
        """What is different from what was sent, in the order in which it has to be applied. Raises `MemoreeError`
        when the external system cannot be read: then nothing is known about what is gone."""

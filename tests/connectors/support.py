"""What the tests of connectors share: an outlet that keeps messages, and runs of a connector over one state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memoree.connectors import Connector
from memoree.connectors.delivery import Delivery, Outlet, Summary
from memoree.connectors.messages import Destination, Messages
from memoree.connectors.state import State
from memoree.ingest.message import Checkpoint, Ingest, IngestMessage, InlineContent, MessageContext, Register, Withdraw

CONTEXT = MessageContext(workspace_id="wsp_kiln", project_id="prj_glaze")


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Outbox:
    """Everything that was published, in order. `dies_after` batches, the publisher's process is killed: the batch is
    queued, and nobody has remembered it."""

    messages: list[IngestMessage] = field(default_factory=list)
    dies_after: int | None = None
    batches: int = 0

    async def content(self, tenant: str, data: bytes) -> InlineContent:
        return InlineContent.of(data)

    async def publish(self, messages: Sequence[IngestMessage]) -> None:
        self.messages += messages
        self.batches += 1
        if self.dies_after is not None and self.batches > self.dies_after:
            raise Killed

    @property
    def delivered(self) -> list[Ingest]:
        return [message for message in self.messages if isinstance(message, Ingest)]

    @property
    def withdrawn(self) -> list[str]:
        return [message.external_id for message in self.messages if isinstance(message, Withdraw)]

    @property
    def registered(self) -> list[Register]:
        return [message for message in self.messages if isinstance(message, Register)]

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [message for message in self.messages if isinstance(message, Checkpoint)]

    def ids(self) -> list[str]:
        return [message.external_id for message in self.delivered]

    def one(self, external_id: str) -> Ingest:
        (found,) = [message for message in self.delivered if message.external_id == external_id]
        return found


@dataclass
class Runs:
    """Run after run of a connector, each of them a process of its own."""

    state_path: Path
    source: str = "docs"
    locator: str | None = None

    def run(self, connector: Connector, outbox: Outlet | None = None) -> tuple[Summary, Outbox]:
        """One run, and what it published."""
        outlet = Outbox() if outbox is None else outbox
        destination = Destination(
            tenant="local", context=CONTEXT, source=self.source, item_kind="document", locator=self.locator
        )
        with State.open(self.state_path) as state:
            summary = asyncio.run(Delivery(Messages(connector, destination), state, outlet).run())
        assert isinstance(outlet, Outbox)
        return summary, outlet

    def killed(self, connector: Connector, *, after: int) -> Outbox:
        """A run that is killed once it published another batch than the first `after`."""
        outbox = Outbox(dies_after=after)
        try:
            self.run(connector, outbox)
        except Killed:
            return outbox
        raise AssertionError("it ended before it was killed")

    def state(self, look: Callable[[State], object]) -> object:
        with State.open(self.state_path) as state:
            return look(state)


def content_of(message: Ingest) -> bytes:
    assert isinstance(message.content, InlineContent)
    return message.content.decoded()

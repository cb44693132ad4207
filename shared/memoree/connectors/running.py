"""Running a connector: once, or on and on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from memoree.connectors import Connector
from memoree.connectors.delivery import Delivery, Outlet, Summary
from memoree.connectors.messages import Destination, Messages
from memoree.connectors.state import State
from memoree.errors import MemoreeError
from memoree.objects import ObjectStoreError
from memoree.queue import QueueError

TROUBLE = (MemoreeError, QueueError, ObjectStoreError)


@dataclass(frozen=True, slots=True)
class Runner:
    """One connector, where it delivers to, and what it remembers. `progress` is told after every batch what the run
    did, `say` what a person should know."""

    connector: Connector
    destination: Destination
    state: State
    opened: Callable[[], AbstractAsyncContextManager[Outlet]]
    progress: Callable[[Summary], None] = lambda _: None
    say: Callable[[str], None] = lambda _: None
    total: Summary = field(default_factory=Summary)
    """Of all runs, also of those that failed half-way."""

    async def once(self) -> Summary:
        """Raises as `Delivery.run`."""
        async with self.opened() as outlet:
            return await self._once(outlet)

    async def watch(self, interval_seconds: float) -> None:
        """Look again and again, until cancelled. What keeps the first look from working is raised; later trouble is
        said, and tried again."""
        async with self.opened() as outlet:
            await self._once(outlet)
            while True:
                await asyncio.sleep(interval_seconds)
                try:
                    await self._once(outlet)
                except TROUBLE as error:
                    self.say(f"{error}; trying again in {interval_seconds:g} s")

    async def _once(self, outlet: Outlet) -> Summary:
        messages = Messages(self.connector, self.destination)
        delivery = Delivery(messages, self.state, outlet, progress=self.progress)
        try:
            return await delivery.run()
        finally:
            self.total.absorb(delivery.summary)

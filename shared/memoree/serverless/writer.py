"""The writer as a function: one event of SQS, one delivery of the worker, and no lease left behind (design §5.3).

A warm container keeps its databases open and continues their epochs, if head is exactly as it left it. A clone of it,
or a container that was frozen while another one wrote, finds head changed and begins a new epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from memoree.assembly import writer_site
from memoree.errors import Code, MemoreeError, shown
from memoree.queue import CommandQueue
from memoree.serverless.container import Container, Context, seconds_to_work
from memoree.serverless.deliveries import Deliveries, batch_answer, messages_of
from memoree.settings import StackSettings
from memoree.writer.environment import WriterEnvironment
from memoree.writer.worker import WriterWorker

MIGRATE = "migrate"
"""The scheduled job that this function takes beside its messages: tenants that an older release left, and that nobody
writes to, become readable again."""

log = logging.getLogger(__name__)


class WriterSite:
    """A worker that is given its messages, and what became of them."""

    def __init__(self, environment: WriterEnvironment, queue: CommandQueue) -> None:
        self._deliveries = Deliveries(queue)
        self.worker = WriterWorker(environment, self._deliveries)

    async def serve(self, event: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Apply what can be applied in that time; the answer names the messages that must stay in the queue. Raises
        `ValueError` for an event that is not of SQS."""
        messages = messages_of(event)
        self._deliveries.begin(messages)
        await self.worker.serve(messages, seconds)
        kept = await self._deliveries.end()
        if kept:
            log.info("%d of %d messages are given back", len(kept), len(messages))
        return batch_answer(kept)

    async def close(self) -> None:
        await self.worker.close()


class WriterFunction:
    """A handler for Lambda."""

    def __init__(self) -> None:
        self.container = Container(lambda: writer_site(StackSettings()))

    def __call__(self, event: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """Raises for an event that is neither of SQS nor the scheduled `migrate`."""
        job = event.get("job")
        if job is None:
            return self.container.run(lambda site: site.serve(event, seconds_to_work(context)))
        if job != MIGRATE:
            raise MemoreeError(Code.CONFIG_ERROR, f"the writer has no job {shown(job)}")
        self.container.run(lambda site: site.worker.migrate(seconds_to_work(context)))
        return {"job": MIGRATE, "ok": True}

"""The ingest worker as a function: one event of the ingest queue, decided and acknowledged."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from memoree.assembly import ingestion
from memoree.serverless.container import Container, Context, seconds_to_work
from memoree.serverless.deliveries import Deliveries, batch_answer, messages_of
from memoree.settings import StackSettings

if TYPE_CHECKING:
    from memoree.ingest.ingestion import Ingestion

log = logging.getLogger(__name__)


class IngestSite:
    """The worker, and what became of the messages it is given."""

    def __init__(self, opened: Ingestion) -> None:
        self._worker = opened.worker
        self._deliveries = Deliveries(opened.queue)
        self._tokens = opened.tokens

    async def serve(self, event: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Raises `ValueError` for an event that is not of SQS."""
        if self._tokens is not None:
            await self._tokens.refresh(if_due=True)
        messages = messages_of(event)
        self._deliveries.begin(messages)
        undecided = {message.receipt for message in await self._worker.serve(messages, seconds_max=seconds)}
        await self._deliveries.ack([message for message in messages if message.receipt not in undecided])
        kept = await self._deliveries.end()
        if kept:
            log.info("%d of %d messages are given back", len(kept), len(messages))
        return batch_answer(kept)


@asynccontextmanager
async def ingest_site(settings: StackSettings) -> AsyncIterator[IngestSite]:
    """Raises `CONFIG_ERROR`. The tokens tell which tenants there are before anything was written to them."""
    async with ingestion(settings, follows_tokens=False) as opened:
        if opened.tokens is not None:
            opened.tokens.require_an_answer()
        yield IngestSite(opened)


class IngestFunction:
    """A handler for Lambda."""

    def __init__(self) -> None:
        self.container = Container(lambda: ingest_site(StackSettings()))

    def __call__(self, event: Mapping[str, Any], context: Context) -> dict[str, Any]:
        return self.container.run(lambda site: site.serve(event, seconds_to_work(context)))

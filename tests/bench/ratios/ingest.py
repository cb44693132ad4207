"""Items per second through the ingest queue, its worker and the writer, against claims per second of the writer."""

from __future__ import annotations

import asyncio
import time

from memoree.ids import new_id
from memoree.ingest.message import (
    Ingest,
    IngestMessage,
    InlineContent,
    MessageContext,
    Register,
    SourceReference,
    group_of,
    to_body,
)
from memoree.queue import OutgoingMessage
from memoree.queue.sqlite import SqliteQueue

from ..figures import Figure, Ratio
from ..site import SMALL, Site

OBSERVED_AT = "2026-01-01T00:00:00Z"
SEND_MESSAGES = 200
LOOK_SECONDS = 0.01
DRAINED_SECONDS_MAX = 240.0
SOURCE = {
    "tenant": SMALL,
    "source": SourceReference(system="bench", name="documents"),
    "context": MessageContext(workspace_id="wsp_bench", project_id="prj_ingest"),
}


async def measure(site: Site) -> Figure:
    """The messages are written before the clock starts, as the commands of the floor are."""
    filled = await site.filled()
    async with await site.warm_caller():
        queue = SqliteQueue(site.stack.ingest_queue_path)
        try:
            await _drained(queue, [_outgoing(Register(**SOURCE))])
            messages = [_outgoing(_item(number)) for number in range(site.plan.ingested)]
            seconds = await _drained(queue, messages)
            assert (await queue.stats()).dead == 0, "every item can be applied"
        finally:
            await queue.close()
    per_second = len(messages) / seconds
    absolute = {"ingest_messages_per_second": per_second, "writer_claims_per_second": filled.claims_per_second}
    return Figure(per_second, filled.claims_per_second, absolute)


def _item(number: int) -> IngestMessage:
    text = f"Document {number}: kiln {number % 97} fires glaze {number % 89} at cone {number % 13}, for a day."
    return Ingest(
        **SOURCE,
        external_id=f"document-{number}",
        external_revision="1",
        kind="document",
        title=f"Document {number}",
        content=InlineContent.of(text.encode()),
        observed_at=OBSERVED_AT,
    )


def _outgoing(message: IngestMessage) -> OutgoingMessage:
    return OutgoingMessage(to_body(message), group=group_of(message), dedup_id=new_id("ing"))


async def _drained(queue: SqliteQueue, messages: list[OutgoingMessage]) -> float:
    """Seconds from the first send until the last message is acknowledged, which it is once head covers it."""
    began = time.perf_counter()
    for first in range(0, len(messages), SEND_MESSAGES):
        for sent in await queue.send_batch(messages[first : first + SEND_MESSAGES]):
            if isinstance(sent, Exception):
                raise sent
    async with asyncio.timeout(DRAINED_SECONDS_MAX):
        while (stats := await queue.stats()).waiting + stats.in_flight:  # noqa: ASYNC110 - another process moves it
            await asyncio.sleep(LOOK_SECONDS)
    return time.perf_counter() - began


RATIO = Ratio(
    name="ingest_over_writer",
    measured_is="messages/s from the first send to the acknowledgement of the last message",
    floor_is="claims/s through queue and writer under a batch load",
    must=0.6,
    aim=0.8,
    measure=measure,
    higher_is_better=True,
)

"""Making the pair of SQS queues a deployment needs: the FIFO queue and its dead-letter queue."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

import orjson
from botocore.exceptions import BotoCoreError, ClientError

from memoree.queue import MESSAGE_BYTES_MAX, RECEIVE_COUNT_MAX, QueueError
from memoree.queue.sqs import SqsEndpoint

if TYPE_CHECKING:
    from types_aiobotocore_sqs import SQSClient

FIFO_SUFFIX = ".fifo"
DEAD_LETTER_SUFFIX = "-dead.fifo"
RETENTION_SECONDS = 14 * 24 * 3600
VISIBILITY_SECONDS = 30


class QueueUrls(NamedTuple):
    url: str
    dead_letter_url: str


async def ensure_queues(name: str, *, endpoint: SqsEndpoint, receive_count_max: int = RECEIVE_COUNT_MAX) -> QueueUrls:
    """Create `<name>.fifo` and `<name>-dead.fifo`, or bring the attributes of existing ones in line.

    Safe to repeat, and to run at several places at once. Raises `QueueError`.
    """
    async with AsyncExitStack() as stack:
        try:
            client = await endpoint.connect(stack)
            dead_letter_url = await _ensure(client, name + DEAD_LETTER_SUFFIX, {})
            redrive = {
                "deadLetterTargetArn": await _arn(client, dead_letter_url),
                "maxReceiveCount": receive_count_max,
            }
            redrive_policy = orjson.dumps(redrive).decode()
            url = await _ensure(client, name + FIFO_SUFFIX, {"RedrivePolicy": redrive_policy})
        except (BotoCoreError, ClientError) as error:
            raise QueueError(f"SQS failed to set up the queue {name}: {error}") from error
    return QueueUrls(url, dead_letter_url)


async def _ensure(client: SQSClient, name: str, redrive: dict[str, str]) -> str:
    # Created bare, because an existing queue with other attributes refuses a creation that names any of them.
    attributes = {
        "ContentBasedDeduplication": "false",
        "MaximumMessageSize": str(MESSAGE_BYTES_MAX),
        "MessageRetentionPeriod": str(RETENTION_SECONDS),
        "VisibilityTimeout": str(VISIBILITY_SECONDS),
        **redrive,
    }
    created = await client.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})
    await client.set_queue_attributes(
        QueueUrl=created["QueueUrl"],
        Attributes=attributes,  # type: ignore[arg-type]  # the stubs want the literal names, not `str`
    )
    return created["QueueUrl"]


async def _arn(client: SQSClient, url: str) -> str:
    answer = await client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return answer["Attributes"]["QueueArn"]

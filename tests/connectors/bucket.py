"""A bucket that belongs to somebody else, as its owner sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from memoree.connectors.names import Wanted
from memoree.connectors.s3 import EventQueue, S3Access, S3Connector

Result = TypeVar("Result")


@dataclass
class Bucket:
    name: str
    prefix: str
    access: S3Access
    queue_url: str = field(default="")

    def connector(self, **options: Any) -> S3Connector:
        return S3Connector(self.name, self.prefix, self.access, **options)

    def follower(self, **options: Any) -> S3Connector:
        """Of its events, without a listing."""
        events = EventQueue(self.queue_url, self.access.endpoint_url)
        return self.connector(scan=False, events=events, wanted=Wanted(), **options)

    # --- what its owner does ------------------------------------------------------------------------------------

    def put(self, **objects: str | bytes) -> None:
        self.put_all(objects)

    def put_all(self, objects: dict[str, str | bytes]) -> None:
        async def put(client: Any) -> None:
            for key, body in objects.items():
                content = body.encode() if isinstance(body, str) else body
                await client.put_object(Bucket=self.name, Key=self.prefix + key, Body=content)

        self.does("s3", put)

    def remove(self, *keys: str) -> None:
        async def delete(client: Any) -> None:
            for key in keys:
                await client.delete_object(Bucket=self.name, Key=self.prefix + key)

        self.does("s3", delete)

    def notifies(self) -> None:
        """From now on every change goes to a new queue."""

        async def queue(client: Any) -> str:
            self.queue_url = (await client.create_queue(QueueName=f"events-of-{self.name}"))["QueueUrl"]
            answer = await client.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=["QueueArn"])
            return str(answer["Attributes"]["QueueArn"])

        arn = self.does("sqs", queue)
        events = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}

        async def configure(client: Any) -> None:
            await client.create_bucket(Bucket=self.name)
            await client.put_bucket_notification_configuration(
                Bucket=self.name, NotificationConfiguration={"QueueConfigurations": [events]}
            )

        self.does("s3", configure)

    def tell(self, body: dict[str, Any] | str) -> None:
        """Put a message on the queue of events."""
        text = body if isinstance(body, str) else orjson.dumps(body).decode()

        async def send(client: Any) -> None:
            await client.send_message(QueueUrl=self.queue_url, MessageBody=text)

        self.does("sqs", send)

    def waiting(self) -> int:
        """Messages of the queue that nobody has acknowledged."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]

        async def count(client: Any) -> int:
            answer = await client.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=names)
            return sum(int(answer["Attributes"][name]) for name in names)

        return self.does("sqs", count)

    def does(self, service: str, work: Callable[[Any], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            async with AsyncExitStack() as stack:
                return await work(await self.access.client(stack, service, self.access.endpoint_url))

        return asyncio.run(run())

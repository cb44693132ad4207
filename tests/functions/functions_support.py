"""A deployment of functions in this process: handlers, the events that reach them, and what AWS does between them."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import orjson

from memoree.clock import utc_now
from memoree.command import to_message
from memoree.ids import AttemptId
from memoree.objects import ObjectMissing
from memoree.objects.s3 import S3Settings, S3Store
from memoree.operations.call import decode, validate
from memoree.private_file import write_private
from memoree.queue import CommandQueue, Message, OutgoingMessage
from memoree.queue.sqlite import SqliteQueue
from memoree.queue.sqs import SqsEndpoint, SqsQueue
from memoree.replication.head import Head, HeadFile
from memoree.service import new_command

Json = dict[str, Any]
R = TypeVar("R")

TOKEN = "t" * 40
SCOPES = ["recall", "ingest", "forget", "inbox", "admin"]
CONTEXT = {"workspace_id": "wsp_functions", "project_id": "prj_functions"}
BATCH_MAX = 10
VISIBILITY_SECONDS = 60.0


@dataclass(frozen=True)
class Remaining:
    """Lambda's context: so many seconds are left, whenever it is asked."""

    seconds: float = 60.0

    def get_remaining_time_in_millis(self) -> int:
        return round(self.seconds * 1000)


@dataclass
class Site:
    """One deployment: a tenant of its own in the shared bucket, and a queue of its own."""

    directory: Path
    s3: S3Settings
    tenant: str = field(default_factory=lambda: f"t-{uuid.uuid4().hex[:12]}")
    aws: str | None = None
    """The address of an emulator that has the queues; without one, a SQLite queue is the deployment's."""

    @property
    def variables(self) -> dict[str, str]:
        assert self.s3.endpoint_url and self.s3.access_key_id and self.s3.secret_access_key
        return self._queue_variables | {
            "MEMOREE_BUCKET": self.s3.bucket,
            "MEMOREE_ENDPOINT_URL": self.s3.endpoint_url,
            "MEMOREE_ACCESS_KEY_ID": self.s3.access_key_id,
            "MEMOREE_SECRET_ACCESS_KEY": self.s3.secret_access_key,
            "MEMOREE_RUNTIME_DIR": str(self.directory / "runtime"),
            "MEMOREE_TOKENS_FILE": str(self.directory / "tokens.json"),
        }

    @property
    def _queue_variables(self) -> dict[str, str]:
        if self.aws is None:
            return {
                "MEMOREE_QUEUE_URL": f"sqlite://{self.directory / 'queue.sqlite3'}",
                "MEMOREE_INGEST_QUEUE_URL": f"sqlite://{self.directory / 'ingest.sqlite3'}",
            }
        return {
            "MEMOREE_QUEUE_ENDPOINT_URL": self.aws,
            "MEMOREE_QUEUE_URL": self.queue_url("commands"),
            "MEMOREE_DEAD_LETTER_URL": self.queue_url("commands-dead"),
            "MEMOREE_INGEST_QUEUE_URL": self.queue_url("ingest"),
            "MEMOREE_INGEST_DEAD_LETTER_URL": self.queue_url("ingest-dead"),
        }

    def queue_url(self, name: str) -> str:
        return f"{self.aws}/000000000000/memoree-{name}.fifo"

    def write_tokens(self) -> None:
        write_private(self.directory / "tokens.json", orjson.dumps({TOKEN: {"tenant": self.tenant, "scopes": SCOPES}}))

    # --- the queue, as the event source has it ------------------------------------------------------------------

    def on_queue(self, work: Callable[[CommandQueue], Awaitable[R]], name: str = "commands") -> R:
        async def opened() -> R:
            queue = self._open(name)
            try:
                return await work(queue)
            finally:
                await queue.close()

        return asyncio.run(opened())

    def _open(self, name: str) -> CommandQueue:
        if self.aws is None:
            return SqliteQueue(self.directory / ("queue.sqlite3" if name == "commands" else f"{name}.sqlite3"))
        assert self.s3.access_key_id and self.s3.secret_access_key
        endpoint = SqsEndpoint(
            region="us-east-1",
            endpoint_url=self.aws,
            access_key_id=self.s3.access_key_id,
            secret_access_key=self.s3.secret_access_key,
        )
        return SqsQueue(self.queue_url(name), endpoint=endpoint)

    def enqueue(self, *payloads: Json, tenant: str | None = None, group: str | None = None) -> list[AttemptId]:
        """Mutations as an api sends them; the attempts."""
        tenant = tenant or self.tenant
        messages, attempts = [], []
        for payload in payloads:
            envelope = decode(orjson.dumps(payload))
            command = new_command(tenant, validate(envelope), history=0, clock_now=utc_now)
            body = to_message(command, envelope).decode()
            messages.append(OutgoingMessage(body, group=group or tenant, dedup_id=command.attempt_id))
            attempts.append(command.attempt_id)
        self.on_queue(lambda queue: queue.send_batch(messages))
        return attempts

    def received(self, name: str = "commands") -> list[Message]:
        return self.on_queue(
            lambda queue: queue.receive(
                max_messages=BATCH_MAX, wait_seconds=0.0, visibility_seconds=VISIBILITY_SECONDS
            ),
            name,
        )

    def answered(self, messages: list[Message], answer: Json, name: str = "commands") -> list[Message]:
        """What the event source does with an answer: delete all but the failures, which it returns."""
        failed = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        assert failed <= {message.message_id for message in messages}
        self.discard([each for each in messages if each.message_id not in failed], name)
        return [each for each in messages if each.message_id in failed]

    def discard(self, messages: list[Message], name: str = "commands") -> None:
        self.on_queue(lambda queue: queue.ack(messages), name)

    def deliver(
        self, handler: Callable[[Json, Any], Json], seconds: float = 60.0, name: str = "commands"
    ) -> list[Message]:
        """One event with what waits; the messages that stay in the queue."""
        messages = self.received(name)
        assert messages, "nothing waits in the queue"
        return self.answered(messages, handler(sqs_event(messages), Remaining(seconds)), name)

    # --- the store ----------------------------------------------------------------------------------------------

    def on_store(self, work: Callable[[S3Store], Awaitable[R]]) -> R:
        async def opened() -> R:
            async with S3Store(self.s3) as store:
                return await work(store)

        return asyncio.run(opened())

    def head(self, tenant: str | None = None) -> Head:
        async def read(store: S3Store) -> Head:
            reading = await HeadFile(store, f"tenants/{tenant or self.tenant}/").read()
            assert reading is not None
            return reading.head

        return self.on_store(read)

    def exists(self, key: str) -> bool:
        async def looked(store: S3Store) -> bool:
            try:
                await store.head(f"tenants/{self.tenant}/{key}")
            except ObjectMissing:
                return False
            return True

        return self.on_store(looked)


class EventSource(ExitStack):
    """Delivers what comes to the queue to a handler, from a thread of its own, as AWS does."""

    def __init__(
        self, site: Site, handler: Callable[[Json, Any], Json], close: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self._site = site
        self._handler = handler
        self._close = close
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="event source")
        self.errors: list[BaseException] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._stop.set()
        self._thread.join()
        assert not self.errors, self.errors
        return False

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if messages := self._site.received():
                    answer = self._handler(sqs_event(messages), Remaining())
                    self._site.answered(messages, answer)
                self._stop.wait(0.02)
        except BaseException as error:
            self.errors.append(error)
        finally:
            self._close()


def sqs_event(messages: list[Message]) -> Json:
    return {"Records": [_record(message) for message in messages]}


def _record(message: Message) -> Json:
    return {
        "messageId": message.message_id,
        "receiptHandle": message.receipt,
        "body": message.body,
        "attributes": {
            "ApproximateReceiveCount": str(message.receive_count),
            "SentTimestamp": str(round(message.sent_at * 1000)),
            "MessageGroupId": message.group,
        },
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "awsRegion": "us-east-1",
    }


def request(op: str, input: Json, *, key: str | None = None) -> Json:
    body: Json = {"request_id": f"req_{uuid.uuid4().hex}", "op": op, "context": CONTEXT, "input": input}
    return body if key is None else body | {"idempotency_key": key}


def fact(statement: str, *, key: str | None = None) -> Json:
    return request("claim.assert", {"claim_type": "fact", "statement": statement}, key=key or statement)


def url_event(method: str, path: str, body: bytes = b"", *, headers: Mapping[str, str] | None = None) -> Json:
    """As a function URL or an HTTP API sends it."""
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": _headers(body, headers),
        "requestContext": {"http": {"method": method, "path": path, "sourceIp": "198.51.100.7"}},
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }


def rest_event(method: str, path: str, body: bytes = b"", *, headers: Mapping[str, str] | None = None) -> Json:
    """As a REST API sends it, with every header as a list too."""
    told = _headers(body, headers)
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": method,
        "headers": told,
        "multiValueHeaders": {name: [value] for name, value in told.items()},
        "queryStringParameters": None,
        "multiValueQueryStringParameters": None,
        "requestContext": {"identity": {"sourceIp": "198.51.100.7"}, "httpMethod": method, "path": path},
        "body": body.decode(),
        "isBase64Encoded": False,
    }


def balancer_event(method: str, path: str, body: bytes = b"", *, headers: Mapping[str, str] | None = None) -> Json:
    """As a load balancer sends it whose target group has multi-value headers."""
    return {
        "requestContext": {"elb": {"targetGroupArn": "arn:aws:elasticloadbalancing:us-east-1:1:targetgroup/t/1"}},
        "httpMethod": method,
        "path": path,
        "multiValueQueryStringParameters": {},
        "multiValueHeaders": {name: [value] for name, value in _headers(body, headers).items()},
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }


def _headers(body: bytes, headers: Mapping[str, str] | None) -> dict[str, str]:
    return {
        "host": "memory.example",
        "x-forwarded-proto": "https",
        "x-forwarded-port": "443",
        "x-forwarded-for": "198.51.100.7",
        "authorization": f"Bearer {TOKEN}",
        "content-type": "application/json",
        "content-length": str(len(body)),
        **(headers or {}),
    }


def body_of(answer: Json) -> bytes:
    body: str = answer["body"]
    return base64.b64decode(body) if answer["isBase64Encoded"] else body.encode()


def json_of(answer: Json) -> Json:
    document: Json = json.loads(body_of(answer))
    return document


def headers_of(answer: Json) -> dict[str, str]:
    """Of any kind of answer; the first of each."""
    many = answer.get("multiValueHeaders") or {}
    return {name.lower(): values[0] for name, values in many.items()} | {
        name.lower(): value for name, value in (answer.get("headers") or {}).items()
    }

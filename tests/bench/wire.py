"""Request bodies, and a client lean enough not to be what is measured.

One connection is one caller: a request, its answer, the next request. It costs about a tenth of what a general
HTTP client does (some 60 µs a call under uvloop), so that one process can drive 64 of them.
"""

from __future__ import annotations

import asyncio
import uuid
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import orjson

from .data import CONTEXT, SPAN_BYTES, Statement

CALL_SECONDS_MAX = 30.0
RETRY_SECONDS = 0.2


class Source(NamedTuple):
    """A stored document that claims may cite."""

    artifact_id: str
    revision_id: str


def put_source(text: str) -> bytes:
    return _body(
        "artifact.put",
        kind="document",
        title="source",
        media_type="text/plain",
        content={"type": "text", "data": text},
    )


def ingest(text: str) -> bytes:
    """Of MemoryProtocol."""
    return orjson.dumps({"source": "bench:log", "content": text})


def recall_episodes(query: str) -> bytes:
    """Of MemoryProtocol."""
    return orjson.dumps({"query": query})


def put_bytes(data: str) -> bytes:
    """A binary artifact; its bytes are given in base64."""
    return _body(
        "artifact.put",
        kind="file",
        title="bytes",
        media_type="application/octet-stream",
        content={"type": "base64", "data": data},
    )


def verify() -> bytes:
    return _body("verify")


def assert_claim(statement: Statement, source: Source | None = None) -> bytes:
    evidence = [] if source is None else [_locator(statement, source)]
    return _body("claim.assert", claim_type=statement.claim_type, statement=statement.text, evidence=evidence)


def assert_text(text: str) -> bytes:
    """A claim that cites nothing."""
    return assert_claim(Statement("fact", text, 0, 0))


def revise_claim(claim_id: str, if_revision: str, text: str) -> bytes:
    return _body("claim.revise", claim_id=claim_id, if_revision=if_revision, statement=text)


def relate(source_id: str, relation: str, target_id: str) -> bytes:
    """An edge from claim to claim."""
    return _body(
        "relation.put",
        source_type="claim",
        source_id=source_id,
        relation=relation,
        target_type="claim",
        target_id=target_id,
    )


def list_relations(claim_id: str) -> bytes:
    """The newest page of a claim's edges, both directions."""
    return _body("relation.list", entity_type="claim", entity_id=claim_id)


def search(query: str, **more: Any) -> bytes:
    return _body("search", query=query, **more)


def recall(query: str, **more: Any) -> bytes:
    return _body("memory.recall", query=query, **more)


def build_context(query: str, max_bytes: int) -> bytes:
    return _body("context.build", query=query, max_bytes=max_bytes)


def _locator(statement: Statement, source: Source) -> dict[str, Any]:
    start = statement.start_byte
    return {**source._asdict(), "start_byte": start, "end_byte": start + SPAN_BYTES}


def _body(op: str, **input_: Any) -> bytes:
    key = uuid.uuid4().hex
    envelope = {"v": 1, "request_id": key, "op": op, "context": CONTEXT, "idempotency_key": key, "input": input_}
    return orjson.dumps(envelope)


class Caller:
    """One keep-alive connection to one route, `POST /v1/call` unless another is named. Open it with `async with await
    Caller.open(…)`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self._head = head

    @classmethod
    async def open(cls, url: str, token: str, route: str = "POST /v1/call", headers: str = "") -> Self:
        """`headers` are whole lines."""
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        head = (
            f"{route} HTTP/1.1\r\nhost: {parts.netloc}\r\nauthorization: Bearer {token}\r\n"
            f"{headers}content-type: application/json\r\ncontent-length: "
        )
        return cls(reader, writer, head.encode())

    async def send(self, body: bytes) -> bytes:
        """The body of the answer, whatever it says."""
        self._writer.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        async with asyncio.timeout(CALL_SECONDS_MAX):
            head = await self._reader.readuntil(b"\r\n\r\n")
            _, _, rest = head.lower().partition(b"content-length:")
            return await self._reader.readexactly(int(rest.split(b"\r\n", 1)[0]))

    async def call(self, body: bytes) -> dict[str, Any]:
        """The envelope of a success. A benchmark over failures measures nothing: anything else raises."""
        answer: dict[str, Any] = orjson.loads(await self.send(body))
        if answer.get("ok") is not True:
            raise RuntimeError(f"the benchmark's request failed: {answer}")
        return answer

    async def answered(self, body: bytes = b"") -> Any:
        """The answer of a route that speaks in no envelopes. One that refuses raises."""
        answer = orjson.loads(await self.send(body))
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(f"the benchmark's request failed: {answer}")
        return answer

    async def caught_up(self, body: bytes) -> dict[str, Any]:
        """The envelope of a success, asked for again while the process says that it is not there yet."""
        async with asyncio.timeout(CALL_SECONDS_MAX):
            while True:
                answer: dict[str, Any] = orjson.loads(await self.send(body))
                if answer.get("ok") is True:
                    return answer
                if not answer["error"]["retryable"]:
                    raise RuntimeError(f"the benchmark's request failed: {answer}")
                await asyncio.sleep(RETRY_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        await self._writer.wait_closed()

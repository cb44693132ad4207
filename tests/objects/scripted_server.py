"""An HTTP server that answers by script, for what no real store can be made to say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from email.utils import formatdate
from types import TracebackType
from typing import Self

from memoree.objects.s3 import S3Settings


@dataclass(frozen=True)
class Answer:
    """`hang` keeps the connection open without an answer, `cut` promises more body than it sends."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    cut: bool = False


def error(status: int, code: str) -> Answer:
    return Answer(status, f"<Error><Code>{code}</Code><Message>scripted</Message></Error>".encode())


class ScriptedServer:
    """Gives the answers in order, the last one over and over; `requests` holds method and path of each,
    `heads` all that came before their bodies (also of those that never sent one)."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self._answers = list(answers)
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self.requests: list[str] = []
        self.heads: list[str] = []

    @property
    def settings(self) -> S3Settings:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return S3Settings("bucket", f"http://127.0.0.1:{port}", "us-east-1", "key", "secret")

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._handlers.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            length = next(
                (int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length")),
                0,
            )
            await reader.readexactly(length)
            self.requests.append(head.split(" HTTP/")[0])
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            if answer.hang:
                await asyncio.Event().wait()
            headers = {
                "Date": formatdate(usegmt=True),
                "Content-Length": str(len(answer.body) + answer.cut),
                "Connection": "close",
            } | answer.headers
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(f"HTTP/1.1 {answer.status} Scripted\r\n{lines}\r\n".encode() + answer.body)
            await writer.drain()
        finally:
            writer.close()

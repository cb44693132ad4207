"""A proxy between a process and its object store that loses, holds and cuts at chosen requests.

Bytes pass unchanged, so the signatures, which cover the Host header the client sent, stay valid. Clients of S3 do not
pipeline: when a request begins, the answer to the one before it has been read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

HEAD_BYTES_MAX = 64 * 1024
CHUNK_BYTES = 64 * 1024

Action = Literal["pass", "lose_answer", "lose_request", "hold"]


@dataclass(slots=True)
class Rule:
    """What is done to the `times` requests that match, after the first `skip` of them passed.

    `lose_answer`: the store gets the request, the client no answer. `lose_request`: the store never sees it.
    `hold`: the store gets it once `release` is set, whether or not the client still waits. `before` runs before the
    request goes on, `after` when the store has answered and the client has not heard of it.
    """

    method: str
    path: str
    action: Action = "pass"
    skip: int = 0
    times: int = 1
    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None
    release: asyncio.Event = field(default_factory=asyncio.Event)
    happened: int = 0

    @property
    def is_spent(self) -> bool:
        return self.happened >= self.times

    def takes(self, method: str, path: str) -> bool:
        if method != self.method or self.is_spent or not re.search(self.path, path):
            return False
        self.skip -= 1
        return self.skip < 0


class Proxy:
    """Made by `store_proxy`. The first rule that takes a request decides; without one it passes."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._port = 0
        self._is_cut = False
        self._connections: set[asyncio.StreamWriter] = set()
        self.rules: list[Rule] = []
        self.heard: Callable[[str, str], None] | None = None
        """Told method and path of every request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def add(self, rule: Rule) -> Rule:
        self.rules.append(rule)
        return rule

    def cut(self) -> None:
        """A partition: every connection ends, and new ones end at once."""
        self._is_cut = True
        for connection in self._connections:
            connection.transport.abort()

    def mend(self) -> None:
        self._is_cut = False

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)
        self._port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        if self._is_cut:
            answers.transport.abort()
            return
        store, requests = await asyncio.open_connection(*self._target)
        self._connections |= {answers, requests}
        current: list[Rule | None] = [None]
        relay = asyncio.create_task(_relay_answers(store, answers, current))
        try:
            await self._relay_requests(client, requests, current)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # either side went away, or the proxy is closed: so does the other
        finally:
            relay.cancel()
            await asyncio.gather(relay, return_exceptions=True)
            for end in (answers, requests):
                self._connections.discard(end)
                end.transport.abort()

    async def _relay_requests(
        self, client: asyncio.StreamReader, requests: asyncio.StreamWriter, current: list[Rule | None]
    ) -> None:
        while True:
            head = await client.readuntil(b"\r\n\r\n")
            method, path, _ = head.decode("latin-1").split(" ", 2)
            body = await client.readexactly(_content_length(head))
            rule = next((rule for rule in self.rules if rule.takes(method, path)), None)
            current[0] = rule
            if self.heard is not None:
                self.heard(method, path)
            if rule is not None:
                rule.happened += 1
                if rule.before is not None:
                    rule.before()
                if rule.action == "lose_request":
                    return
                if rule.action == "hold":
                    await rule.release.wait()
            requests.write(head + body)
            await requests.drain()


async def _relay_answers(
    store: asyncio.StreamReader, answers: asyncio.StreamWriter, current: list[Rule | None]
) -> None:
    with suppress(ConnectionError):
        while data := await store.read(CHUNK_BYTES):
            rule, current[0] = current[0], None
            if rule is not None and rule.after is not None:
                rule.after()
            if rule is not None and rule.action == "lose_answer":
                break
            answers.write(data)
            await answers.drain()
    answers.transport.abort()


def _content_length(head: bytes) -> int:
    assert b"transfer-encoding:" not in head.lower(), "requests of unknown length are not relayed"
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return int(found[1]) if found else 0


@asynccontextmanager
async def store_proxy(target: str) -> AsyncIterator[Proxy]:
    """A proxy in front of the store at the URL `target`; use `url` as a process's endpoint."""
    proxy = Proxy(target)
    server = await proxy.start()
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()

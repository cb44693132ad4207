"""Streams of a server that stops: each ends in the words of its protocol."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

from http_support import Scripted, serving

from memoree.http.app import create_app
from memoree.http.settings import HttpSettings
from memoree.service import Reply, Request, read_reply

from .protocol import Json, Protocol

LINE = '{"key":"chunk:1","value":"cone 6"}\n'


class Endless(Scripted):
    """Every page of a snapshot says that another one follows."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = 0
        self.several = threading.Event()

    async def call(self, tenant: str, request: Request, *, wait_seconds: float = 10.0, strong: bool = False) -> Reply:
        await asyncio.sleep(0.01)
        self.pages += 1
        if self.pages == 3:
            self.several.set()
        page: dict[str, Any] = {"lines": LINE, "seen": 1, "history": 0, "next": {"row": self.pages}}
        return read_reply(request.call, page, 1)


def test_a_snapshot_ends_with_a_line_that_says_why_and_the_server_does_not_wait_for_it() -> None:
    service, found = Endless(), bytearray()

    def read() -> None:
        with caller.http.stream("GET", "/v1/snapshot/0.0") as response:
            for chunk in response.iter_bytes():
                found.extend(chunk)

    with serving(create_app(service, HttpSettings())) as base_url:
        caller = Protocol(base_url)
        reading = threading.Thread(target=read)
        reading.start()
        assert service.several.wait(10)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    reading.join(10)
    caller.close()
    *pages, last = found.decode().splitlines(keepends=True)
    assert set(pages) == {LINE}
    told: Json = json.loads(last)
    assert told["error"] == "scan_error"
    assert "stopping" in told["message"]

"""Hits as server-sent events (MemoryProtocol §6.5)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Any

import httpx
import pytest
from http_support import Scripted, serving, wait_for
from httpx_sse import ServerSentEvent, connect_sse

from memoree.errors import Code, MemoreeError
from memoree.http.app import create_app
from memoree.http.memoryprotocol import sse
from memoree.http.settings import HttpSettings
from memoree.service import Reply, Request, read_reply, refusal

from .protocol import Json, Protocol

EVENTS = {"Accept": "text/event-stream"}


def stream(caller: Protocol, accept: str = "text/event-stream", **body: Any) -> httpx.Response:
    return caller.http.post("/v1/recall", json={"query": "kiln", **body}, headers={"Accept": accept})


def events(caller: Protocol, **body: Any) -> list[ServerSentEvent]:
    """As a client of the kind reads them."""
    with connect_sse(caller.http, "POST", "/v1/recall", json={"query": "kiln", **body}) as source:
        return list(source.iter_sse())


@pytest.fixture
def filled(a: Protocol) -> Protocol:
    for number in range(4):
        a.ingest(f"the kiln is hot\n\nline two, number {number}\r\n\u2028 and \u0085", str(number))
    return a


@pytest.mark.proves("memoryprotocol-47", "memoryprotocol-48")
@pytest.mark.parametrize(
    "accept",
    ["text/event-stream", "application/json, text/event-stream;q=0.9", "text/event-stream, */*", "Text/Event-Stream"],
)
def test_who_names_the_type_gets_a_stream(filled: Protocol, accept: str) -> None:
    response = stream(filled, accept)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["memoree-commit-seq"] == "4"


@pytest.mark.proves("memoryprotocol-49", "memoryprotocol-50")
def test_there_is_one_event_a_hit_and_then_done(filled: Protocol) -> None:
    body = stream(filled, k=3).content
    assert body.count(b"event: hit\n") == 3
    assert body.count(b"event: done\n") == 1
    assert body.endswith(b"\n\nevent: done\ndata: {}\n\n")
    assert body.count(b"\n") == 3 * 4, "an event has one line of data"
    found = filled.request("POST", "/v1/recall", {"query": "kiln", "k": 3}).json()
    assert [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: ")] == [*found, {}]
    assert [(event.event, event.json()) for event in events(filled, k=3)] == [
        *(("hit", hit) for hit in found),
        ("done", {}),
    ]


@pytest.mark.proves("memoryprotocol-51")
def test_without_a_hit_there_is_only_done(a: Protocol) -> None:
    assert stream(a).content == b"event: done\ndata: {}\n\n"


@pytest.mark.proves("memoryprotocol-53")
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"filter": "source"}, 400, "validate"),
        ({"as_of": "not a date"}, 400, "invalid_request"),
        ({"k": -1}, 422, "validate"),
        ({"query": "kiln " * 2000}, 422, "validate"),
    ],
)
def test_what_is_wrong_before_the_stream_is_told_in_json(filled: Protocol, body: Json, status: int, code: str) -> None:
    response = stream(filled, **body)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json")
    assert response.json()["error"] == code


def test_a_stream_needs_a_token_like_everything(as_token: Any) -> None:
    for token, status in (("tok-none", 401), ("tok-in", 403)):
        response = stream(as_token(token))
        assert (response.status_code, response.headers["content-type"]) == (status, "application/json")


class Stalled(Scripted):
    """A service whose reads take as long as a test wants; it counts those under way."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.under_way = 0
        self.begun = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.answer = self.found

    def found(self, request: Request) -> Reply:
        return read_reply(request.call, {"hits": [{"text": "cone 6"}], "degraded": False}, 7)

    async def call(self, tenant: str, request: Request, *, wait_seconds: float = 10.0, strong: bool = False) -> Reply:
        self.loop = asyncio.get_running_loop()
        self.under_way += 1
        self.begun += 1
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.under_way -= 1
        return await super().call(tenant, request, wait_seconds=wait_seconds, strong=strong)


@pytest.fixture
def stalled() -> Stalled:
    return Stalled()


@pytest.fixture
def patient(stalled: Stalled, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Protocol:
    """A caller of the stalled service, which speaks up soon."""
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.1)
    client = Protocol(stack.enter_context(serving(create_app(stalled, HttpSettings()))))
    stack.callback(client.close)
    return client


@pytest.mark.proves("memoryprotocol-52")
def test_comments_come_while_nothing_else_does(patient: Protocol, stalled: Stalled) -> None:
    stalled.seconds = 0.45
    response = stream(patient)
    lines = response.content.split(b"\n")
    assert sum(line.startswith(b":") for line in lines) in (3, 4, 5)
    assert response.content.startswith(b": waiting\n\n: waiting\n\n")
    assert response.content.endswith(b"\n\nevent: done\ndata: {}\n\n")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "x-request-id" in response.headers
    assert [event.event for event in events(patient)] == ["hit", "done"]


@pytest.mark.proves("memoryprotocol-52")
def test_silence_lasts_no_longer_than_fifteen_seconds() -> None:
    assert sse.KEEP_ALIVE_SECONDS == 15.0


@pytest.mark.parametrize(("code", "told"), [(Code.TRANSPORT_ERROR, "storage"), (Code.INTERNAL_ERROR, "retrieve")])
def test_what_goes_wrong_later_is_an_event_and_then_nothing(
    patient: Protocol, stalled: Stalled, code: Code, told: str
) -> None:
    stalled.seconds = 0.15
    stalled.answer = lambda request: refusal(request.call.request_id, MemoreeError(code, "the store is away"))
    assert [(event.event, event.json()) for event in events(patient)] == [
        ("error", {"error": told, "message": "the store is away"})
    ]


@pytest.mark.proves("memoryprotocol-54")
@pytest.mark.parametrize("headers", [EVENTS, {}])
def test_who_hangs_up_leaves_nothing_behind(
    patient: Protocol, stalled: Stalled, caplog: pytest.LogCaptureFixture, headers: dict[str, str]
) -> None:
    """Before the stream has begun, in its midst, and where an array is waited for."""
    assert stream(patient).status_code == 200
    patient.http.close()
    idle = _tasks(stalled)
    stalled.seconds = 60.0
    for comments in (0, 3):
        begun = stalled.begun
        _leave(patient, headers, comments=comments)
        assert stalled.begun == begun + 1
        wait_for(lambda: stalled.under_way == 0, "the end of the work")
        wait_for(lambda: _tasks(stalled) <= idle, "the end of its tasks")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def _leave(patient: Protocol, headers: Mapping[str, str], *, comments: int) -> None:
    """Ask for something, and go after that many comments of a stream, or when nothing has come for a moment."""
    client = httpx.Client(base_url=patient.http.base_url, timeout=1.0 if comments and headers else 0.05)
    asked = client.stream("POST", "/v1/recall", json={"query": "kiln"}, headers=headers)
    with client, suppress(httpx.ReadTimeout), asked as response:
        heard = (line for line in response.iter_lines() if line.startswith(":"))
        assert len(list(islice(heard, comments))) == comments


def _tasks(stalled: Stalled) -> int:
    assert stalled.loop is not None
    return len(asyncio.all_tasks(stalled.loop))

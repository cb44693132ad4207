"""The app behind Mangum, as a function URL calls it: no lifespan, one service for all events."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import ExitStack
from typing import Any

import pytest
from http_support import envelope, note
from mangum import Mangum

from memoree.embedded import EmbeddedService
from memoree.http.app import create_app
from memoree.http.memoryprotocol import sse
from memoree.http.settings import HttpSettings
from memoree.serverless.api import WithinEvent
from memoree.serverless.container import SETTLING_SECONDS


def event(body: bytes, path: str = "/v1/call", **headers: str) -> dict[str, Any]:
    told = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body)), **headers}
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": told,
        "requestContext": {"http": {"method": "POST", "path": path, "sourceIp": "127.0.0.1"}},
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }


@pytest.fixture
def handler(store: EmbeddedService, stack: ExitStack) -> Mangum:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    stack.callback(loop.close)
    stack.callback(asyncio.set_event_loop, None)
    stack.callback(lambda: loop.run_until_complete(loop.shutdown_default_executor()))
    return Mangum(create_app(store, HttpSettings()), lifespan="off")


def test_events_are_answered_one_after_the_other(handler: Mangum) -> None:
    put = json.dumps(envelope("artifact.put", note(), key="k")).encode()
    first, replay, broken = (handler(event(body), {}) for body in (put, put, b"{"))

    assert (first["statusCode"], json.loads(first["body"])["result"]["created"]) == (200, True)
    assert json.loads(replay["body"])["result"]["created"] is False
    assert (broken["statusCode"], json.loads(broken["body"])["request_id"]) == (400, "req_transport")


@pytest.mark.parametrize("seconds", [15.0, 0.0])
def test_a_stream_of_hits_is_delivered_as_a_whole(
    handler: Mangum, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Also where it begins with comments."""
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", seconds)
    stored = handler(event(b'{"source": "kiln:log", "content": "cone 6"}', "/v1/ingest"), {})
    assert stored["statusCode"] == 200
    answer = handler(event(b'{"query": "cone"}', "/v1/recall", accept="text/event-stream"), {})
    assert (answer["statusCode"], answer["isBase64Encoded"]) == (200, False)
    assert answer["headers"]["content-type"] == "text/event-stream"
    assert answer["body"].startswith(": waiting\n\n" if seconds == 0.0 else "event: hit\n")
    assert answer["body"].endswith("\n\nevent: done\ndata: {}\n\n")
    assert asyncio.all_tasks(asyncio.get_event_loop_policy().get_event_loop()) == set()


class Remaining:
    """Lambda's context, of an event whose time is almost over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return round(self._seconds * 1000)


@pytest.mark.parametrize(("left", "waited"), [(SETTLING_SECONDS + 0.4, 0.4), (SETTLING_SECONDS - 1, 0.0)])
def test_no_wait_for_a_change_outlasts_its_event(
    store: EmbeddedService, handler: Mangum, left: float, waited: float
) -> None:
    bounded = Mangum(WithinEvent(create_app(store, HttpSettings())), lifespan="off")
    asked = event(b"", "/v1/events") | {"rawQueryString": "after=0&wait=20"}
    asked["requestContext"] = {"http": {"method": "GET", "path": "/v1/events", "sourceIp": "127.0.0.1"}}
    began = time.monotonic()
    answer = bounded(asked, Remaining(left))  # type: ignore[arg-type]  # what of it is used
    assert (answer["statusCode"], json.loads(answer["body"])["events"]) == (200, [])
    assert waited <= time.monotonic() - began < waited + 5
    loop = asyncio.get_event_loop_policy().get_event_loop()
    loop.run_until_complete(store._changes.close() if store._changes is not None else asyncio.sleep(0))
    assert asyncio.all_tasks(loop) == set()


def test_a_function_compresses_nothing(store: EmbeddedService, handler: Mangum) -> None:
    plain = Mangum(WithinEvent(create_app(store, HttpSettings())), lifespan="off")
    call = json.dumps(envelope("schema")).encode()
    answer = plain(event(call, **{"accept-encoding": "gzip"}), Remaining(30))  # type: ignore[arg-type]  # as above
    assert (answer["statusCode"], answer["isBase64Encoded"]) == (200, False)
    assert "content-encoding" not in answer["headers"]
    assert json.loads(answer["body"])["ok"] is True

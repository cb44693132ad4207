"""What a function answers in place of what a server would stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from functions_support import Json, body_of, headers_of, json_of, url_event
from mangum import Mangum
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from memoree import limits
from memoree.http.observation import observation
from memoree.objects import StoreUnavailable
from memoree.serverless.answers import WholeAnswers, fits

WIRE_BYTES_MAX = 6_291_556
"""Of a function's answer, measured with Lambda's own emulator."""


class Kept:
    """A store of answers that only notes them; it may be down."""

    def __init__(self, *, down: bool = False) -> None:
        self.objects: dict[str, bytes] = {}
        self._down = down

    async def put_passing(self, key: str, body: bytes) -> None:
        if self._down:
            raise StoreUnavailable("down")
        self.objects[key] = body

    def presigned_get(self, key: str, *, expires_seconds: int, content_type: str, disposition: str) -> str:
        return f"https://bucket.example/{key}?expires={expires_seconds}&type={content_type}&disposition={disposition}"


Call = Callable[..., Json]


@pytest.fixture
def store() -> Kept:
    return Kept()


@pytest.fixture
def call(store: Kept) -> Call:
    return calling(store)


def calling(store: Kept) -> Call:
    """Requests to an application whose answers are as large and as long as they ask for."""

    async def sized(request: Request) -> Response:
        observation(request.scope).tenant = "acme"
        size = int(request.path_params["size"])
        return Response(b"x" * size, media_type="application/json", headers={"memoree-commit-seq": "7", "etag": '"e"'})

    async def pieces(request: Request) -> Response:
        observation(request.scope).tenant = "acme"

        async def many() -> Any:
            for _ in range(int(request.path_params["count"])):
                yield b"p" * limits.MIB

        return StreamingResponse(many(), media_type="application/x-ndjson")

    async def events(request: Request) -> Response:
        async def finite() -> Any:
            yield b"event: hit\ndata: 1\n\n"
            yield b"event: done\ndata:\n\n"

        async def endless() -> Any:
            while True:
                yield b": still here\n\n".rjust(limits.MIB)
                await asyncio.sleep(0)

        return StreamingResponse(
            endless() if request.method == "GET" else finite(), media_type="text/event-stream; charset=utf-8"
        )

    routes = [
        Route("/sized/{size}", sized),
        Route("/pieces/{count}", pieces),
        Route("/events", events, methods=["GET", "POST"]),
    ]
    app = WholeAnswers(Starlette(routes=routes), store)

    def ask(method: str, path: str) -> Json:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            handler = Mangum(app, lifespan="off")
            return handler(url_event(method, path), None)  # type: ignore[arg-type]
        finally:
            loop.close()
            asyncio.set_event_loop(None)

    return ask


@pytest.mark.proves("operations-66")
def test_an_answer_that_fits_is_untouched(call: Call, store: Kept) -> None:
    answer = call("GET", f"/sized/{limits.FUNCTION_ANSWER_BYTES_MAX}")
    assert (answer["statusCode"], len(body_of(answer))) == (200, limits.FUNCTION_ANSWER_BYTES_MAX)
    assert headers_of(answer)["etag"] == '"e"'
    assert store.objects == {}


@pytest.mark.proves("operations-66")
def test_one_byte_more_is_left_in_the_store_below_its_tenant(call: Call, store: Kept) -> None:
    answer = call("GET", f"/sized/{limits.FUNCTION_ANSWER_BYTES_MAX + 1}")

    assert answer["statusCode"] == 303
    ((key, body),) = store.objects.items()
    assert key.startswith("tenants/acme/answers/")
    assert len(body) == limits.FUNCTION_ANSWER_BYTES_MAX + 1
    headers = headers_of(answer)
    assert headers["location"].startswith(f"https://bucket.example/{key}?expires={limits.FUNCTION_ANSWER_SECONDS}")
    assert "type=application/json&disposition=inline" in headers["location"]
    assert headers["memoree-commit-seq"] == "7"
    assert "etag" not in headers, "it is not the tag of this body"
    assert int(headers["content-length"]) == len(body_of(answer))


def test_an_answer_larger_than_memory_should_hold_is_refused_in_words(call: Call, store: Kept) -> None:
    answer = call("GET", "/pieces/66")
    assert answer["statusCode"] == 413
    assert json_of(answer)["error"] == "content_too_large"
    assert store.objects == {}


def test_a_store_that_is_down_is_a_retryable_refusal_and_no_lost_answer() -> None:
    answer = calling(Kept(down=True))("GET", f"/sized/{limits.FUNCTION_ANSWER_BYTES_MAX + 1}")
    assert (answer["statusCode"], headers_of(answer)["retry-after"]) == (503, "1")


@pytest.mark.proves("operations-67")
@pytest.mark.fault_class(59)
def test_streams_that_arrive_in_one_lump_are_refused_and_the_change_feed_is_named(call: Call) -> None:
    answer = call("GET", "/events")
    assert answer["statusCode"] == 501
    assert "GET /v1/events?after=" in json_of(answer)["message"]


@pytest.mark.proves("operations-67")
@pytest.mark.fault_class(59)
def test_a_stream_that_ends_is_delivered_whole(call: Call) -> None:
    answer = call("POST", "/events")
    assert answer["statusCode"] == 200
    assert headers_of(answer)["content-type"].startswith("text/event-stream")
    assert body_of(answer) == b"event: hit\ndata: 1\n\nevent: done\ndata:\n\n"


@pytest.mark.proves("operations-66")
@pytest.mark.parametrize(
    ("body", "fitting"),
    [
        (b"x" * limits.FUNCTION_ANSWER_BYTES_MAX, True),
        (b"\xff" * limits.FUNCTION_ANSWER_BYTES_MAX, True),
        (b"x" * (limits.FUNCTION_ANSWER_BYTES_MAX + 1), False),
        (b'"' * 3_900_000, False),
        (b'"' * 2_800_000, True),
        ("字".encode() * 1_300_000, False),
        (b"\x01" * 1_000_000, False),
    ],
)
def test_what_fits_by_its_bytes_may_not_fit_as_the_text_it_travels_as(body: bytes, fitting: bool) -> None:
    assert fits(body) == fitting
    if fitting:
        try:
            travelling = len(json.dumps(body.decode()))
        except UnicodeDecodeError:
            travelling = -(-len(body) // 3) * 4
        assert travelling <= WIRE_BYTES_MAX - 64 * 1024

"""Hostile and broken bodies: the right code, nothing stored, never a 500, memory bounded."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from http_support import JSON_HEADERS, Caller, envelope, note, peak_rss_bytes

from memoree import limits
from memoree.http import body
from memoree.http.answers import HttpRefusal
from memoree.http.body import BodyReader, check_density

RSS_GROWTH_BYTES_MAX = 300 * limits.MIB


def with_text(text: str) -> bytes:
    return json.dumps(envelope("artifact.put", note(text), key="k"), ensure_ascii=False).encode()


def escaped_text(escape: str) -> bytes:
    return with_text("MARK").replace(b"MARK", escape.encode())


BAD_BODIES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "not json": lambda: b"{",
    "two documents": lambda: b"{} {}",
    "an array": lambda: b"[]",
    "null": lambda: b"null",
    "not a number": lambda: b'{"request_id":"r","op":"doctor","input":{"x":NaN}}',
    "not utf-8": lambda: b'{"request_id":"\xff","op":"doctor","input":{}}',
    "a byte order mark": lambda: b"\xef\xbb\xbf{}",
    "a high surrogate alone": lambda: escaped_text("\\ud800"),
    "a low surrogate alone": lambda: escaped_text("\\udc00a"),
    "ten thousand arrays deep": lambda: (
        b'{"request_id":"r","op":"doctor","input":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    ),
    "an unknown member": lambda: b'{"request_id":"r","op":"doctor","input":{},"admin":true}',
    "an unknown operation": lambda: b'{"request_id":"r","op":"drop","input":{}}',
    "no operation": lambda: b'{"request_id":"r","input":{}}',
    "a huge integer": lambda: b'{"v":1e400,"request_id":"r","op":"doctor","input":{}}',
    "millions of tiny values": lambda: b'{"request_id":"r","op":"doctor","input":[' + b"[]," * 4_000_000 + b"0]}",
}


@pytest.mark.fault_class(35)
@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_body_that_is_no_request_is_refused_and_stores_nothing(caller: Caller, name: str) -> None:
    response = caller.post(BAD_BODIES[name]())

    answer = response.json()
    assert (response.status_code, answer["error"]["code"]) == (400, "INVALID_REQUEST"), response.text[:500]
    assert answer["request_id"] == "req_transport"
    assert caller.last_commit_seq() == 0


@pytest.mark.fault_class(35)
@pytest.mark.parametrize("text", ["\ufffe", "\ufeff", "a\u202eb", "e" + "\u0301" * 50_000], ids=ascii)
def test_odd_but_well_formed_text_comes_back_unchanged(caller: Caller, text: str) -> None:
    response = caller.post(with_text(text))
    assert response.status_code == 200, response.text[:500]
    stored = caller.get_artifact(response.json()["result"]["artifact_id"])
    assert stored.json()["result"]["content"]["data"] == text


@pytest.mark.parametrize(("surplus", "status"), [(-1, 200), (0, 200), (1, 413)])
def test_content_of_eight_mebibytes_is_stored_and_one_byte_more_is_not(
    caller: Caller, surplus: int, status: int
) -> None:
    text = "," * (limits.ARTIFACT_BYTES_MAX + surplus)
    response = caller.post(with_text(text))

    assert response.status_code == status
    if status == 413:
        assert response.json()["error"]["code"] == "CONTENT_TOO_LARGE"
        assert caller.last_commit_seq() == 0
    else:
        stored = caller.get_artifact(response.json()["result"]["artifact_id"]).json()
        assert stored["result"]["content"]["data"] == text


def padded(size: int) -> bytes:
    request = b'{"request_id":"r","op":"capabilities","input":{}}'
    return request + b" " * (size - len(request))


def test_a_frame_of_exactly_the_limit_is_read_and_one_byte_more_is_refused(caller: Caller) -> None:
    assert caller.post(padded(limits.FRAME_BYTES_MAX)).status_code == 200

    response = caller.post(padded(limits.FRAME_BYTES_MAX + 1))
    assert (response.status_code, response.json()["error"]["code"]) == (413, "CONTENT_TOO_LARGE")


def test_a_chunked_body_is_stopped_at_the_limit_too(caller: Caller) -> None:
    def chunks() -> Any:
        for _ in range(limits.FRAME_BYTES_MAX // limits.MIB + 1):
            yield b" " * limits.MIB

    response = caller.http.post("/v1/call", content=chunks())
    assert (response.status_code, response.json()["error"]["code"]) == (413, "CONTENT_TOO_LARGE")


def test_an_announced_giant_is_refused_before_any_of_it_is_sent(caller: Caller) -> None:
    host, port = caller.http.base_url.host, caller.http.base_url.port
    with socket.create_connection((host, port), timeout=10) as connection:
        head = f"POST /v1/call HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 1000000000000\r\n\r\n".encode())
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer


def test_memory_stays_bounded_under_large_hostile_bodies(caller: Caller) -> None:
    before = peak_rss_bytes(reset=True)
    nested = b'{"request_id":"r","op":"doctor","input":[' + b"[]," * (7 * limits.MIB) + b"0]}"
    strings = b'{"request_id":"r","op":"doctor","input":[' + b'"",' * (7 * limits.MIB) + b"0]}"
    for hostile in (nested, strings):
        for _ in range(3):
            assert caller.post(hostile).status_code == 400
    grown = peak_rss_bytes() - before
    assert grown < RSS_GROWTH_BYTES_MAX, f"{grown / limits.MIB:.0f} MiB"


def test_density_counts_only_what_is_outside_of_strings() -> None:
    check_density(json.dumps({"text": ',[{\\"' * 2_000_000}).encode())
    with pytest.raises(Exception, match="JSON values"):
        check_density(b"[" + b'"a","b\\\\",' * 200_000 + b"1]")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/jsonp"},
        {"Content-Encoding": "gzip"},
    ],
)
def test_only_plain_json_bodies_are_read(caller: Caller, headers: dict[str, str]) -> None:
    response = caller.post(envelope("artifact.put", note(), key="k"), headers)

    assert (response.status_code, response.json()["error"]["code"]) == (415, "INVALID_REQUEST")
    assert caller.last_commit_seq() == 0


def test_a_body_without_a_content_type_is_415(caller: Caller) -> None:
    del caller.http.headers["Content-Type"]
    assert caller.http.post("/v1/call", content=b"{}").status_code == 415
    caller.http.headers.update(JSON_HEADERS)
    charset = {"Content-Type": 'application/json; charset="UTF-8"'}
    assert caller.post(envelope("capabilities", context=None), charset).status_code == 200


def test_a_body_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stalled() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def read() -> None:
        async with BodyReader(seconds_max=0.05).read({"type": "http", "headers": []}, stalled):
            raise AssertionError

    with pytest.raises(HttpRefusal) as refused:
        asyncio.run(read())
    assert (refused.value.status, refused.value.error.retryable) == (408, True)


def test_bodies_of_all_requests_together_are_bounded_and_given_back() -> None:
    reader = BodyReader(bytes_max=10, total_bytes_max=15)

    async def ten_bytes() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x" * 10, "more_body": False}

    async def two_at_once() -> int:
        async with reader.read({"type": "http", "headers": []}, ten_bytes):
            with pytest.raises(HttpRefusal) as refused:
                async with reader.read({"type": "http", "headers": []}, ten_bytes):
                    raise AssertionError
        return refused.value.status

    assert asyncio.run(two_at_once()) == 503
    assert reader.bytes_held == 0


@pytest.mark.fault_class(21)
@pytest.mark.parametrize(
    "path", ["file:///etc/passwd", "../../etc/passwd", "/proc/self/environ", "a\x00b", "C:\\Windows\\win.ini"]
)
def test_no_member_makes_the_server_open_a_path(caller: Caller, path: str) -> None:
    for member in ({"doc_path": path}, {"user_id": path}):
        assert caller.post(envelope("artifact.put", note() | member, key="k")).status_code == 400
    assert caller.get_artifact(path).status_code in (400, 404)
    assert caller.last_commit_seq() == 0


@pytest.mark.fault_class(55)
def test_a_query_of_a_megabyte_is_refused(caller: Caller) -> None:
    response = caller.post(envelope("search", {"query": "kiln " * 200_000}))
    assert (response.status_code, response.json()["error"]["code"]) == (400, "INVALID_REQUEST")


def test_the_drain_of_a_refused_body_is_bounded() -> None:
    assert body.DRAIN_BYTES_MAX >= limits.FRAME_BYTES_MAX
    received = 0

    async def endless() -> dict[str, Any]:
        nonlocal received
        received += limits.MIB
        return {"type": "http.request", "body": b" " * limits.MIB, "more_body": True}

    asyncio.run(body._drain(endless))
    assert received <= body.DRAIN_BYTES_MAX + 2 * limits.MIB

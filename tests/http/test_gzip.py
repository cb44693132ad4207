"""Answers in gzip: for who accepts it, of what is large enough, and of nothing that it would break."""

from __future__ import annotations

import gzip
import json
import socket
import time
import uuid
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx
import pytest
from http_support import CONTEXT, Caller, Json, Scripted, envelope, serving

from memoree import limits
from memoree.http.app import create_app
from memoree.http.negotiation import weights
from memoree.http.settings import HttpSettings
from memoree.service import read_reply

GZIP = {"Accept-Encoding": "gzip"}
IDENTITY = {"Accept-Encoding": "identity"}
LONG = "cone 6 reached, soaked for 15 minutes; " * 200
LISTS = "/v1/artifacts?" + "&".join(f"{name}={value}" for name, value in CONTEXT.items())


def raw(caller: Caller, method: str, path: str, **how: object) -> tuple[httpx.Response, bytes]:
    """The response and its body as it travelled."""
    with caller.http.stream(method, path, **how) as response:  # type: ignore[arg-type]
        return response, b"".join(response.iter_raw())


def said(answer: tuple[httpx.Response, bytes]) -> tuple[str | None, str]:
    response, _ = answer
    return response.headers.get("content-encoding"), response.headers.get("vary", "")


@pytest.fixture
def filled(caller: Caller) -> Caller:
    for number in range(20):
        caller.put(f"firing {number}")
    return caller


@pytest.mark.parametrize(
    "accepted", ["gzip", "GZIP", "deflate, gzip;q=0.5", "*", "br;q=1, *;q=0.1", "gzip;q=1.0, identity;q=0.5"]
)
def test_who_accepts_it_gets_the_same_in_fewer_bytes(filled: Caller, accepted: str) -> None:
    plain, whole = raw(filled, "GET", LISTS, headers=IDENTITY)
    answer, body = raw(filled, "GET", LISTS, headers={"Accept-Encoding": accepted})
    assert said((answer, body)) == ("gzip", "Authorization, Accept, Accept-Encoding")
    assert gzip.decompress(body) == whole
    assert len(body) < len(whole) / 3
    assert int(answer.headers["content-length"]) == len(body)
    assert answer.headers["memoree-commit-seq"] == plain.headers["memoree-commit-seq"] == "20"


@pytest.mark.parametrize("accepted", ["", "identity", "br", "gzip;q=0", "*;q=0", "gzip;q=0, *", "gzip;q=none", "xgzip"])
def test_who_does_not_accept_it_gets_plain_bytes_and_is_told_what_they_depend_on(filled: Caller, accepted: str) -> None:
    answer, body = raw(filled, "GET", LISTS, headers={"Accept-Encoding": accepted})
    assert said((answer, body)) == (None, "Authorization, Accept, Accept-Encoding")
    assert len(json.loads(body)["items"]) == 20


def test_small_answers_travel_as_they_are(caller: Caller) -> None:
    answer, body = raw(caller, "GET", "/livez", headers=GZIP)
    assert (said((answer, body))[0], body) == (None, b'{"ok":true}')


def test_refusals_and_calls_are_compressed_alike(caller: Caller) -> None:
    record = caller.put(LONG)
    got = envelope("artifact.get", {"artifact_id": record["artifact_id"], "include_content": True})
    answer, body = raw(caller, "POST", "/v1/call", content=json.dumps(got).encode(), headers=GZIP)
    assert said((answer, body))[0] == "gzip"
    assert LONG in gzip.decompress(body).decode()


# --- tags -------------------------------------------------------------------------------------------------------


def test_compressed_bytes_have_a_weak_tag_and_plain_ones_the_strong_one(filled: Caller) -> None:
    strong = raw(filled, "GET", LISTS, headers=IDENTITY)[0].headers["etag"]
    assert strong.startswith('"')
    assert raw(filled, "GET", LISTS, headers=GZIP)[0].headers["etag"] == f"W/{strong}"


@pytest.mark.parametrize("accepted", [GZIP, IDENTITY])
def test_either_tag_is_good_for_either_form_and_304_says_the_one_of_its_200(
    filled: Caller, accepted: dict[str, str]
) -> None:
    strong = raw(filled, "GET", LISTS, headers=IDENTITY)[0].headers["etag"]
    full = raw(filled, "GET", LISTS, headers=accepted)[0].headers["etag"]
    for named in (strong, f"W/{strong}"):
        answer, body = raw(filled, "GET", LISTS, headers={**accepted, "If-None-Match": named})
        assert (answer.status_code, body, answer.headers["etag"]) == (304, b"", full)
        assert "content-encoding" not in answer.headers
        assert answer.headers["vary"] == "Authorization, Accept, Accept-Encoding"


def test_descriptions_are_compressed_and_revalidated(caller: Caller) -> None:
    for path in ("/openapi.json", "/docs", "/v1/schema"):
        answer, body = raw(caller, "GET", path, headers=GZIP)
        assert said((answer, body))[0] == "gzip"
        again, _ = raw(caller, "GET", path, headers={**GZIP, "If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304


# --- never ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [{}, {"Range": "bytes=10-5000"}])
def test_what_can_be_had_in_ranges_is_never_compressed(caller: Caller, asked: dict[str, str]) -> None:
    record = caller.put(LONG)
    path = f"/v1/artifacts/{record['artifact_id']}/revisions/{record['revision_id']}/content"
    answer, body = raw(caller, "GET", path, headers={**GZIP, **asked})
    assert answer.status_code == (206 if asked else 200)
    assert said((answer, body)) == (None, "Authorization, Accept")
    assert body == (LONG.encode()[10:5001] if asked else LONG.encode())
    assert answer.headers["etag"].startswith('"')


def test_events_are_never_compressed(caller: Caller) -> None:
    caller.http.post("/v1/ingest", json={"source": "kiln:log", "content": LONG})
    headers = {**GZIP, "Accept": "text/event-stream"}
    answer, body = raw(caller, "POST", "/v1/recall", json={"query": "cone"}, headers=headers)
    assert said((answer, body))[0] is None
    assert len(body) > limits.COMPRESSED_BYTES_MIN
    assert body.startswith(b"event: hit\n") and body.endswith(b"event: done\ndata: {}\n\n")


def test_a_head_has_the_headers_of_its_get(filled: Caller) -> None:
    of_each = ("date", "x-request-id")
    for headers in (GZIP, IDENTITY):
        head, whole = (raw(filled, method, LISTS, headers=headers)[0].headers for method in ("HEAD", "GET"))
        assert {k: v for k, v in head.items() if k not in of_each} == {
            k: v for k, v in whole.items() if k not in of_each
        }


# --- streams ----------------------------------------------------------------------------------------------------


class Unpacked:
    """A bulk request whose answers are read while it is sent, each as soon as its bytes are there."""

    def __init__(self, base_url: str) -> None:
        address = urlsplit(base_url)
        self._socket = socket.create_connection((address.hostname, address.port), timeout=20)
        self._socket.sendall(
            b"POST /v1/bulk HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
            b"Accept-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        self._file = self._socket.makefile("rb")
        self._gzip = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self.head: dict[str, str] = {}

    def ask(self, request: Json) -> Json:
        line = json.dumps(request).encode() + b"\n"
        self._socket.sendall(b"%x\r\n%s\r\n" % (len(line), line))
        if not self.head:
            assert self._file.readline().startswith(b"HTTP/1.1 200")
            fields = (field.decode().rstrip() for field in iter(self._file.readline, b"\r\n"))
            self.head = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
        text = b""
        while not text.endswith(b"\n"):
            text += self._gzip.decompress(self._file.read(int(self._file.readline(), 16)))
            self._file.readline()
        found: Json = json.loads(text)
        return found

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def unpacked(caller: Caller) -> Iterator[Unpacked]:
    stream = Unpacked(caller.base_url)
    yield stream
    stream.close()


def test_lines_of_a_stream_are_flushed_one_by_one(unpacked: Unpacked) -> None:
    said = {"claim_type": "fact", "statement": "Said in a stream."}
    for _ in range(3):
        answer = unpacked.ask(envelope("claim.assert", said, key=uuid.uuid4().hex))
        assert answer.get("ok") is True
    assert unpacked.head.get("content-encoding") == "gzip"
    assert "content-length" not in unpacked.head


def test_a_snapshot_is_the_same_lines_in_fewer_bytes(caller: Caller) -> None:
    for number in range(3):
        caller.http.post("/v1/ingest", json={"source": f"kiln:{number}", "content": LONG * 5})
    path = f"/v1/snapshot/{time.time_ns() // 1_000_000}.65535"
    _, whole = raw(caller, "GET", path, headers=IDENTITY)
    answer, body = raw(caller, "GET", path, headers=GZIP)
    assert said((answer, body))[0] == "gzip"
    assert gzip.decompress(body) == whole
    assert len(body) < len(whole) / 10


def test_a_large_answer_is_compressed_whole(stack: ExitStack, scripted: Scripted) -> None:
    large = {"text": LONG * 200}
    scripted.answer = lambda request: read_reply(request.call, large, 1)
    caller = Caller(stack.enter_context(serving(create_app(scripted, HttpSettings()))))
    stack.callback(caller.close)
    answer, body = raw(caller, "POST", "/v1/call", content=json.dumps(envelope("doctor")).encode(), headers=GZIP)
    assert said((answer, body))[0] == "gzip"
    assert json.loads(gzip.decompress(body))["result"] == large


# --- what is accepted -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], {}),
        ([b"a, b;q=0.5", b"A;q=0.1"], {b"a": 1.0, b"b": 0.5}),
        ([b"a;charset=x;q=0.3"], {b"a": 0.3}),
        ([b"a;q=2, b;q=-1, c;q=nan, d;q=inf, e;q="], dict.fromkeys((b"a", b"b", b"c", b"d", b"e"), 0.0)),
        ([b" a ; q=0.25 "], {b"a": 0.25}),
    ],
)
def test_weights_are_read_as_the_standard_has_them(values: list[bytes], expected: dict[bytes, float]) -> None:
    assert weights(values) == expected

"""The bytes of a revision as a download: ranges, conditions, and nothing a browser would run."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from http_support import Caller, envelope, note, serving, wait_for, write_tokens
from upload_support import code_of, content_path, stored

from memoree import limits
from memoree.embedded import EmbeddedService
from memoree.http.app import create_app
from memoree.http.settings import HttpSettings

WINDOW = limits.DOWNLOAD_WINDOW_BYTES
LARGE = bytes(range(251)) * (3 * WINDOW // 251 + 1)
"""A little over three windows."""
INLINE = b"0123456789"
OF_EACH = ("date", "x-request-id")
"""Headers that no two answers have in common."""
Blob = Callable[[dict[str, Any]], Path]


@pytest.fixture(params=[INLINE, LARGE], ids=["inline", "blob"])
def body(request: pytest.FixtureRequest) -> bytes:
    found: bytes = request.param
    return found


@pytest.fixture
def blob(tmp_path: Path) -> Blob:
    """The file of a record's blob."""

    def path(record: dict[str, Any]) -> Path:
        digest = record["blob_hash"]
        return tmp_path / "store/objects/tenants/local/blobs/b3" / digest[:2] / digest

    return path


def asked(caller: Caller, record: dict[str, Any], **headers: str) -> httpx.Response:
    return caller.http.get(content_path(record), headers={name.replace("_", "-"): v for name, v in headers.items()})


def test_the_whole_of_a_revision_comes_with_what_it_takes_to_keep_it(caller: Caller, body: bytes) -> None:
    record = stored(caller, body, media_type="image/png")
    answer = asked(caller, record)
    assert (answer.status_code, answer.content) == (200, body)
    expected = {
        "content-type": "image/png",
        "content-length": str(len(body)),
        "etag": f'"{record["blob_hash"]}"',
        "accept-ranges": "bytes",
        "cache-control": "private, no-cache",
        "content-disposition": "attachment",
        "x-content-type-options": "nosniff",
        "content-security-policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
        "memoree-commit-seq": str(record["commit_seq"]),
    }
    assert {name: answer.headers.get(name) for name in expected} == expected
    assert len(answer.headers.get_list("x-content-type-options")) == 1
    assert len(answer.headers.get_list("content-security-policy")) == 1


def test_an_empty_revision_is_an_empty_download(caller: Caller) -> None:
    empty = envelope("artifact.put", note(""), key="k")
    record = caller.post(empty).json()["result"]
    answer = asked(caller, record)
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "0")
    assert asked(caller, record, Range="bytes=0-").status_code == 416
    assert asked(caller, record, Range="bytes=-1").headers["content-range"] == "bytes */0"


@pytest.mark.parametrize(
    ("media_type", "sent"),
    [
        ("text/html", "text/html"),
        ('Text/Plain; charset="utf-8"; q=1', 'Text/Plain; charset="utf-8"; q=1'),
        ("image/svg+xml", "image/svg+xml"),
        ("text/html\r\nSet-Cookie: a=b", "application/octet-stream"),
        ("text/plain; charset=utf-8\n", "application/octet-stream"),
        ("a/b/c", "application/octet-stream"),
        ("text/漢字", "application/octet-stream"),
        ("text /plain", "application/octet-stream"),
        ("/", "application/octet-stream"),
    ],
)
def test_a_media_type_that_is_none_stays_out_of_the_headers(caller: Caller, media_type: str, sent: str) -> None:
    answer = asked(caller, stored(caller, INLINE, media_type=media_type))
    assert (answer.status_code, answer.headers["content-type"]) == (200, sent)
    assert answer.headers["content-disposition"] == "attachment"
    assert "set-cookie" not in answer.headers


def positions(size: int) -> dict[str, tuple[int, int]]:
    """Ranges as they are sent, and the bytes they mean."""
    return {
        "bytes=0-0": (0, 1),
        f"bytes=0-{size - 1}": (0, size),
        f"bytes=0-{size + 5}": (0, size),
        "bytes=0-9223372036854775807": (0, size),
        f"bytes=4-{'9' * 5000}": (4, size),
        f"bytes=-{'9' * 5000}": (0, size),
        f"bytes={'0' * 5000}4-{'0' * 5000}7": (4, 8),
        "bytes=4-7": (4, 8),
        "bytes=4-": (4, size),
        f"bytes={size - 1}-": (size - 1, size),
        "bytes=-1": (size - 1, size),
        "bytes=-3": (size - 3, size),
        f"bytes=-{size + 1}": (0, size),
        f"bytes={size // 2 - 1}-{size - 2}": (size // 2 - 1, size - 1),
        "BYTES=4-7": (4, 8),
    }


def test_a_range_is_exactly_these_bytes(caller: Caller, body: bytes) -> None:
    record = stored(caller, body)
    for text, (start, stop) in positions(len(body)).items():
        answer = asked(caller, record, Range=text)
        assert (answer.status_code, answer.content) == (206, body[start:stop]), text
        assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(body)}"
        assert answer.headers["content-length"] == str(stop - start)
        assert answer.headers["etag"] == f'"{record["blob_hash"]}"'


def test_a_range_behind_the_end_is_416_with_the_size(caller: Caller, body: bytes) -> None:
    record = stored(caller, body)
    behind = (f"bytes={len(body)}-", f"bytes={len(body)}-{len(body) + 9}", f"bytes={'9' * 18}-", f"bytes={'9' * 5000}-")
    for text in (*behind, "bytes=-0", "bytes=-000"):
        answer = asked(caller, record, Range=text)
        assert (answer.status_code, code_of(answer)) == (416, "INVALID_REQUEST"), text
        assert answer.headers["content-range"] == f"bytes */{len(body)}"


@pytest.mark.parametrize(
    "text", ["bytes=", "bytes=-", "bytes=a-b", "bytes=5-4", "bytes=0-1,3-4", "items=0-1", "bytes=1", "bytes=0x1-2"]
)
def test_a_range_that_is_not_understood_is_as_none(caller: Caller, text: str) -> None:
    answer = asked(caller, stored(caller, INLINE), Range=text)
    assert (answer.status_code, answer.content) == (200, INLINE)
    assert "content-range" not in answer.headers


def test_a_range_counts_only_for_the_version_it_was_meant_for(caller: Caller) -> None:
    record = stored(caller, INLINE)
    tag = f'"{record["blob_hash"]}"'
    assert asked(caller, record, Range="bytes=1-2", If_Range=tag).status_code == 206
    for other in ('"other"', f"W/{tag}", "Mon, 30 Nov 2026 18:35:09 GMT"):
        answer = asked(caller, record, Range="bytes=1-2", If_Range=other)
        assert (answer.status_code, answer.content) == (200, INLINE), other


def test_what_the_caller_has_is_not_sent_again(caller: Caller, body: bytes) -> None:
    record = stored(caller, body)
    tag = f'"{record["blob_hash"]}"'
    for named in (tag, f"W/{tag}", "*", f'"x", {tag}'):
        answer = asked(caller, record, If_None_Match=named, Range="bytes=0-1")
        assert (answer.status_code, answer.content) == (304, b""), named
        assert answer.headers["etag"] == tag
    assert asked(caller, record, If_None_Match='"x"').status_code == 200


def test_head_tells_the_same_without_the_bytes(caller: Caller, body: bytes) -> None:
    record = stored(caller, body)
    whole, head = asked(caller, record), caller.http.head(content_path(record), headers={"Range": "bytes=0-1"})
    assert (head.status_code, head.content) == (200, b"")
    assert {k: v for k, v in head.headers.items() if k not in OF_EACH} == {
        k: v for k, v in whole.headers.items() if k not in OF_EACH
    }
    tag = {"If-None-Match": head.headers["etag"]}
    assert caller.http.head(content_path(record), headers=tag).status_code == 304


def test_the_revision_of_an_artifact_is_asked_for_by_both_ids(caller: Caller) -> None:
    one, other = stored(caller, INLINE), stored(caller, INLINE)
    for artifact_id, revision_id in (
        ("art_none", one["revision_id"]),
        (one["artifact_id"], "arev_none"),
        (one["artifact_id"], other["revision_id"]),
        ("a%00b", "c"),
    ):
        answer = caller.http.get(f"/v1/artifacts/{artifact_id}/revisions/{revision_id}/content")
        assert (answer.status_code, code_of(answer)) == (404, "NOT_FOUND")
    assert caller.http.put(content_path(one), content=b"").status_code == 405


def test_a_forgotten_artifact_is_still_read_by_its_ids(caller: Caller, body: bytes) -> None:
    record = stored(caller, body)
    wanted = {"artifact_id": record["artifact_id"], "reason": "dropped"}
    assert caller.post(envelope("artifact.forget", wanted, key="f")).status_code == 200
    assert asked(caller, record).content == body


def test_damage_that_can_be_known_is_told_in_words(caller: Caller, blob: Blob) -> None:
    record = stored(caller, LARGE)
    path = blob(record)
    path.write_bytes(LARGE[:-1])
    assert (asked(caller, record).status_code, code_of(asked(caller, record))) == (500, "INTEGRITY_ERROR")
    assert asked(caller, record, Range="bytes=0-9").status_code == 500
    path.unlink()
    for headers in ({}, {"Range": "bytes=0-9"}):
        answer = asked(caller, record, **headers)
        assert (answer.status_code, code_of(answer)) == (500, "INTEGRITY_ERROR")


def test_damage_found_on_the_way_breaks_the_connection(caller: Caller, blob: Blob) -> None:
    record = stored(caller, LARGE)
    blob(record).write_bytes(LARGE[:-1] + bytes([LARGE[-1] ^ 1]))
    seen = 0
    with (
        pytest.raises(httpx.RemoteProtocolError),
        caller.http.stream("GET", content_path(record)) as answer,
    ):
        assert answer.status_code == 200
        for chunk in answer.iter_bytes():
            seen += len(chunk)
    assert seen < len(LARGE), "a download with its last byte counts as complete"
    assert asked(caller, record, Range="bytes=0-9").content == LARGE[:10], "a part cannot be proven"


def test_a_blob_of_one_window_is_proven_before_the_first_byte(caller: Caller, blob: Blob) -> None:
    record = stored(caller, LARGE[:100_000])
    blob(record).write_bytes(b"!" + LARGE[1:100_000])
    answer = asked(caller, record)
    assert (answer.status_code, code_of(answer)) == (500, "INTEGRITY_ERROR")


@pytest.mark.proves("fault-24")
@pytest.mark.parametrize(("token", "status"), [("reader", 200), ("writer", 403), ("nobody", 401), (None, 401)])
def test_reading_needs_a_token_that_may_read(
    tmp_path: Path, store: EmbeddedService, stack: ExitStack, token: str | None, status: int
) -> None:
    tokens = {name: {"tenant": "local", "scopes": [scope]} for name, scope in SCOPES.items()}
    settings = HttpSettings(tokens_file=write_tokens(tmp_path / "tokens", tokens), only_tenant="local")
    url = stack.enter_context(serving(create_app(store, settings)))
    caller, owner = Caller(url, token), Caller(url, "writer")
    for each in (caller, owner):
        stack.callback(each.close)
    record = stored(owner, INLINE)
    answer = asked(caller, record)
    assert answer.status_code == status
    if status == 200:
        assert (answer.content, "ratelimit-limit" in answer.headers) == (INLINE, True)
        assert "ratelimit-limit" in asked(caller, record, Range="bytes=99-").headers
    else:
        assert answer.json()["ok"] is False


SCOPES = {"reader": "recall", "writer": "ingest"}


@pytest.mark.proves("fault-54")
def test_a_download_is_fetched_as_it_is_read_and_never_as_a_whole(
    caller: Caller, store: EmbeddedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = LARGE * 11
    record = stored(caller, body)
    fetched: list[int] = []
    get_range = store._store.get_range

    async def counted(key: str, start: int, stop: int, **how: Any) -> Any:
        fetched.append(stop - start)
        return await get_range(key, start, stop, **how)

    monkeypatch.setattr(store._store, "get_range", counted)
    assert asked(caller, record).content == body
    assert (max(fetched), sum(fetched)) == (WINDOW, len(body))
    fetched.clear()
    connection = _stalled(caller, record)
    try:
        assert caller.http.head(content_path(record)).status_code == 200
        assert max(fetched) <= WINDOW
        assert sum(fetched) < len(body) / 2, "what nobody reads is not fetched"
    finally:
        connection.close()


def test_readers_that_stopped_reading_keep_nobody_from_anything(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold neither a thread nor a database; only so many of them are served at a time, and those who leave make
    room."""
    monkeypatch.setattr(limits, "DOWNLOADS_AT_ONCE_MAX", 6)
    record = stored(caller, LARGE * 4)  # more than the sockets between us buffer
    small = stored(caller, INLINE)
    slow = [_stalled(caller, record) for _ in range(3)]
    try:
        wait_for(lambda: asked(caller, record).status_code == 503, "that all places are taken")
        refused = asked(caller, record)
        assert (code_of(refused), refused.json()["error"]["retryable"]) == ("TRANSPORT_ERROR", True)
        assert int(refused.headers["retry-after"]) >= 1
        assert asked(caller, small).content == INLINE, "what is at hand needs no place"
        assert caller.put("written meanwhile")["created"]
        assert caller.http.head(content_path(record)).status_code == 200
    finally:
        for connection in slow:
            connection.close()
    wait_for(lambda: asked(caller, record).status_code == 200, "that there is room again")


def _stalled(caller: Caller, record: dict[str, Any]) -> socket.socket:
    parts = urlsplit(caller.base_url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((parts.hostname, parts.port))
    connection.sendall(f"GET {content_path(record)} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    assert connection.recv(12) == b"HTTP/1.1 200"
    return connection


def test_a_reader_that_takes_nothing_for_long_is_given_up(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAM_SILENCE_SECONDS_MAX", 0.2)
    monkeypatch.setattr(limits, "DOWNLOADS_AT_ONCE_MAX", 1)
    record = stored(caller, LARGE * 4)
    connection = _stalled(caller, record)
    try:
        wait_for(lambda: asked(caller, record).status_code == 200, "that its place is free")
    finally:
        connection.close()

"""Large content through the service: declared, sent in any number of tries, named, proven, and gone again."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from blake3 import blake3
from http_support import Caller, envelope, serving, write_tokens
from upload_support import UPLOADS, code_of, content_path, declaration, declare, naming, put, send, sent, stored

from memoree import limits
from memoree.assembly import embedded_service
from memoree.embedded import EmbeddedService
from memoree.http.app import create_app
from memoree.http.settings import HttpSettings
from memoree.ids import new_upload_id

LARGE = b"cone 6 reached at 21:40\n" * 360_000
"""8.2 MiB: more than any request carries."""


class MovingClock:
    def __init__(self) -> None:
        self.now = datetime(2026, 3, 2, 20, 41, 7, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> MovingClock:
    return MovingClock()


@pytest.fixture
def store(tmp_path: Path, stack: ExitStack, clock: MovingClock) -> EmbeddedService:
    service = embedded_service(tmp_path / "store", clock=clock)
    stack.callback(service.close_sync)
    return service


@pytest.fixture
def upload_files(tmp_path: Path, store: EmbeddedService) -> Callable[[], list[str]]:
    return lambda: sorted(path.name for path in (tmp_path / "store/objects/tenants/local/uploads").glob("*"))


@pytest.fixture
def blob_files(tmp_path: Path, store: EmbeddedService) -> Callable[[], list[Path]]:
    return lambda: [path for path in (tmp_path / "store/objects/tenants/local/blobs").rglob("*") if path.is_file()]


Listing = Callable[[], list[Any]]


@pytest.mark.proves("fault-6")
@pytest.mark.parametrize("size", [limits.ARTIFACT_BYTES_MAX - 1, limits.ARTIFACT_BYTES_MAX, len(LARGE)])
def test_what_was_sent_comes_back_byte_for_byte_or_is_refused_with_the_limit(caller: Caller, size: int) -> None:
    body = (LARGE * 2)[:size]
    record = stored(caller, body)
    assert (record["size_bytes"], record["blob_hash"]) == (size, blake3(body).hexdigest())
    assert "content" not in record
    assert caller.http.get(content_path(record)).content == body
    got = caller.get_artifact(record["artifact_id"])
    if size <= limits.ARTIFACT_BYTES_MAX:
        assert got.json()["result"]["content"]["data"].encode() == body
    else:
        assert got.status_code == 413
        assert code_of(got) == "CONTENT_TOO_LARGE"
        assert str(limits.ARTIFACT_BYTES_MAX) in got.json()["error"]["message"]
        assert "/content" in got.json()["error"]["message"]


@pytest.mark.parametrize("size", [1, limits.INLINE_BODY_BYTES_MAX, limits.INLINE_BODY_BYTES_MAX + 1])
def test_small_content_may_be_uploaded_too(caller: Caller, size: int) -> None:
    body = (LARGE)[:size]
    record = stored(caller, body)
    assert caller.get_artifact(record["artifact_id"]).json()["result"]["content"]["data"].encode() == body
    assert caller.http.get(content_path(record)).content == body


def test_a_ticket_says_how_to_send_and_until_when(caller: Caller, clock: MovingClock) -> None:
    ticket = declare(caller, LARGE)
    assert ticket == {
        "upload_id": ticket["upload_id"],
        "method": "PUT",
        "url": f"{UPLOADS}/{ticket['upload_id']}/content",
        "headers": {"Content-Length": str(len(LARGE))},
        "expires_at": "2026-03-03T20:41:07Z",
    }


@pytest.mark.parametrize(
    "members",
    [
        {"size_bytes": 0},
        {"size_bytes": -1},
        {"size_bytes": limits.UPLOAD_BYTES_MAX + 1},
        {"size_bytes": "10"},
        {"size_bytes": 1.5},
        {"size_bytes": True},
        {"size_bytes": None},
        {"blob_hash": "a" * 63},
        {"blob_hash": "A" * 64},
        {"blob_hash": "a" * 64 + "\n"},
        {"blob_hash": None},
        {"surplus": 1},
        {"path": "/etc/passwd"},
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(
    caller: Caller, upload_files: Listing, members: dict[str, Any]
) -> None:
    answer = caller.http.post(UPLOADS, json=declaration(b"x") | members)
    assert (answer.status_code, code_of(answer)) == (400, "INVALID_REQUEST")
    assert upload_files() == []


def test_a_declaration_is_a_small_json_object(caller: Caller) -> None:
    for content, status in ((b"[]", 400), (b"{", 400), (b'{"a":"' + b"x" * 5000 + b'"}', 413)):
        answer = caller.http.post(UPLOADS, content=content)
        assert (answer.status_code, answer.json()["ok"]) == (status, False)
    assert caller.http.post(UPLOADS, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert caller.http.get(UPLOADS).status_code == 405


def test_the_largest_declaration_is_taken(caller: Caller) -> None:
    ticket = declare(caller, b"x", size_bytes=limits.UPLOAD_BYTES_MAX)
    assert ticket["headers"] == {"Content-Length": str(5 * 1024**3)}


@pytest.mark.proves("fault-21")
@pytest.mark.parametrize(
    "path",
    ["file:///etc/passwd", "../../local", "/proc/self/environ", "upl_\0", r"C:\Windows\win.ini", "upl_" + "U" * 26, ""],
)
def test_nothing_but_an_upload_id_names_an_upload(caller: Caller, path: str) -> None:
    answer = put(caller, path)
    assert (answer.status_code, code_of(answer)) == (400, "INVALID_REQUEST")
    assert "upload_id" in answer.json()["error"]["message"]


@pytest.mark.proves("fault-21")
@pytest.mark.parametrize("path", ["upl_x", "..%2F..%2Flocal", "%2Fetc%2Fpasswd", "upl_%00", "upl_" + "u" * 26])
def test_bytes_are_taken_under_an_upload_id_only(caller: Caller, upload_files: Listing, path: str) -> None:
    answer = caller.http.put(f"{UPLOADS}/{path}/content", content=b"x")
    assert answer.status_code in (400, 404)
    assert upload_files() == []


def test_an_upload_takes_no_other_members(caller: Caller) -> None:
    upload_id = sent(caller, b"x")
    for extra in ({"data": "x"}, {"path": "/etc/passwd"}):
        content = {"type": "upload", "upload_id": upload_id} | extra
        answer = put(caller, upload_id, content=content)
        assert (answer.status_code, code_of(answer)) == (400, "INVALID_REQUEST")
    answer = put(caller, upload_id, content={"type": "text", "upload_id": upload_id})
    assert (answer.status_code, code_of(answer)) == (400, "INVALID_REQUEST")


def test_an_unknown_upload_is_not_found_and_takes_no_bytes(caller: Caller, clock: MovingClock) -> None:
    upload_id = new_upload_id(int(clock.now.timestamp() * 1000))
    assert code_of(put(caller, upload_id)) == "NOT_FOUND"
    answer = caller.http.put(f"{UPLOADS}/{upload_id}/content", content=b"x")
    assert (answer.status_code, code_of(answer)) == (404, "NOT_FOUND")
    assert caller.last_commit_seq() == 0


def test_an_upload_that_was_never_sent_is_refused_and_stores_nothing(caller: Caller, blob_files: Listing) -> None:
    upload_id = declare(caller, LARGE)["upload_id"]
    error = put(caller, upload_id).json()["error"]
    assert (error["code"], error["retryable"]) == ("INVALID_REQUEST", False)
    assert error["details"] == {"upload_id": upload_id, "reason": "not_sent"}
    assert caller.last_commit_seq() == 0
    assert blob_files() == []


@pytest.mark.parametrize("change", [-1, 1])
def test_another_length_than_declared_is_refused_before_it_is_read(
    caller: Caller, upload_files: Listing, change: int
) -> None:
    ticket = declare(caller, LARGE)
    body = LARGE[:change] if change < 0 else LARGE + b"x"
    answer = send(caller, ticket, body)
    assert (answer.status_code, code_of(answer)) == (400, "INVALID_REQUEST")
    assert str(len(LARGE)) in answer.json()["error"]["message"]
    assert upload_files() == [f"{ticket['upload_id']}.declaration"]


def test_a_length_must_be_told(caller: Caller) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x" * 10

    ticket = declare(caller, b"x" * 10)
    answer = caller.http.put(ticket["url"], content=chunks())
    assert (answer.status_code, code_of(answer)) == (411, "INVALID_REQUEST")
    answer = caller.http.put(ticket["url"], content=b"x" * 10, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 415
    answer = caller.http.put(ticket["url"], content=b"x" * 10, headers={"Content-Range": "bytes 0-9/20"})
    assert (answer.status_code, code_of(answer)) == (400, "INVALID_REQUEST"), "a part is not taken for the whole"


@pytest.mark.parametrize("size", [100, len(LARGE)], ids=["inline", "large"])
def test_other_bytes_than_declared_are_refused_and_never_become_a_blob(
    caller: Caller, blob_files: Listing, size: int
) -> None:
    meant, other = LARGE[:size], b"!" + LARGE[1:size]
    ticket = declare(caller, meant)
    assert send(caller, ticket, other).status_code == 204
    answer = put(caller, ticket["upload_id"])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "INVALID_REQUEST")
    assert error["details"] == {"upload_id": ticket["upload_id"], "reason": "digest_mismatch"}
    assert caller.last_commit_seq() == 0
    assert blob_files() == []
    # Sent again as declared, the same upload is good.
    assert send(caller, ticket, meant).status_code == 204
    record = put(caller, ticket["upload_id"]).json()["result"]
    assert caller.http.get(content_path(record)).content == meant


def test_a_put_that_broke_off_leaves_nothing_and_may_be_repeated(caller: Caller, upload_files: Listing) -> None:
    ticket = declare(caller, LARGE)
    parts = urlsplit(caller.base_url)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        head = f"PUT {ticket['url']} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(LARGE)}\r\n\r\n"
        connection.sendall(head.encode() + LARGE[: len(LARGE) // 2])
    assert code_of(put(caller, ticket["upload_id"])) == "INVALID_REQUEST"
    assert upload_files() == [f"{ticket['upload_id']}.declaration"]
    for _ in range(2):
        assert send(caller, ticket, LARGE).status_code == 204
    assert put(caller, ticket["upload_id"]).status_code == 200


def test_a_sender_that_falls_silent_is_told_and_nothing_is_stored(
    caller: Caller, upload_files: Listing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAM_SILENCE_SECONDS_MAX", 0.1)
    ticket = declare(caller, LARGE)
    parts = urlsplit(caller.base_url)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        head = f"PUT {ticket['url']} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(LARGE)}\r\n\r\n"
        connection.sendall(head.encode() + LARGE[:1000])
        connection.settimeout(20)
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")
    assert upload_files() == [f"{ticket['upload_id']}.declaration"]


def test_uploads_beyond_the_bound_are_refused_for_the_moment(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = declare(caller, b"x")
    with monkeypatch.context() as full:
        full.setattr(limits, "UPLOADS_RECEIVED_AT_ONCE_MAX", 0)
        answer = send(caller, ticket, b"x")
        assert (answer.status_code, code_of(answer)) == (503, "TRANSPORT_ERROR")
        assert int(answer.headers["retry-after"]) >= 1
    assert send(caller, ticket, b"x").status_code == 204


def test_the_bytes_are_kept_once_however_often_they_are_sent_and_named(
    caller: Caller, blob_files: Listing, upload_files: Listing
) -> None:
    first, second = sent(caller, LARGE), sent(caller, LARGE)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda upload_id: put(caller, upload_id), [first, second, first, second]))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert len({answer.json()["result"]["artifact_id"] for answer in answers}) == 4
    assert [path.name for path in blob_files()] == [blake3(LARGE).hexdigest()]
    assert upload_files() == sorted(f"{each}.declaration" for each in (first, second))


def test_a_repeat_is_answered_when_its_upload_is_long_gone(
    caller: Caller, clock: MovingClock, upload_files: Listing
) -> None:
    upload_id = sent(caller, LARGE)
    first = put(caller, upload_id, key="k").json()
    clock.now += timedelta(days=3)
    declare(caller, b"x")  # which sweeps
    assert len(upload_files()) == 1
    again = put(caller, upload_id, key="k").json()
    assert again["result"] == first["result"] | {"created": False}
    assert code_of(put(caller, upload_id, key="another")) == "NOT_FOUND"
    assert code_of(put(caller, upload_id, key="k", title="another")) == "NOT_FOUND"


def test_another_upload_of_the_same_bytes_is_another_request(caller: Caller) -> None:
    assert put(caller, sent(caller, LARGE), key="k").status_code == 200
    assert code_of(put(caller, sent(caller, LARGE), key="k")) == "IDEMPOTENCY_CONFLICT"


def test_an_upload_expires_after_a_day(caller: Caller, clock: MovingClock) -> None:
    upload_id, ticket = sent(caller, b"x"), declare(caller, b"y")
    clock.now += timedelta(seconds=limits.UPLOAD_SECONDS)
    assert send(caller, ticket, b"y").status_code == 204
    clock.now += timedelta(milliseconds=1)
    assert code_of(put(caller, upload_id)) == "NOT_FOUND"
    assert code_of(send(caller, ticket, b"y")) == "NOT_FOUND"


def test_an_upload_is_removed_only_when_no_command_can_name_it_any_more(
    caller: Caller, clock: MovingClock, upload_files: Listing
) -> None:
    upload_id = sent(caller, b"x")
    files = [f"{upload_id}.content", f"{upload_id}.declaration"]
    last_named = timedelta(seconds=limits.UPLOAD_SECONDS)
    last_applied = last_named + timedelta(seconds=limits.COMMAND_AGE_SECONDS_MAX)
    clock.now += last_applied
    declare(caller, b"y")
    assert set(files) <= set(upload_files())
    clock.now += timedelta(seconds=limits.CLOCK_SKEW_SECONDS_MAX + limits.UPLOAD_SWEEP_SECONDS)
    declare(caller, b"y")
    assert not set(files) & set(upload_files())


def test_a_revision_and_a_source_item_may_be_uploads(caller: Caller) -> None:
    record = stored(caller, LARGE)
    wanted = {
        "artifact_id": record["artifact_id"],
        "if_revision": record["revision_id"],
        "content": {"type": "upload", "upload_id": sent(caller, LARGE[1:])},
    }
    revised = caller.post(envelope("artifact.revise", wanted, key="r")).json()["result"]
    assert revised["revision_number"] == 2
    assert caller.http.get(content_path(revised)).content == LARGE[1:]
    assert caller.http.get(content_path(record)).content == LARGE

    source = caller.post(envelope("source.register", {"name": "drive", "kind": "files"}, key="s")).json()["result"]
    item = naming(sent(caller, LARGE[2:])) | {
        "source_id": source["source_id"],
        "external_id": "1",
        "external_revision": "a",
    }
    ingested = caller.post(envelope("source.ingest", item, key="i")).json()["result"]
    assert caller.http.get(content_path(ingested["artifact"])).content == LARGE[2:]


def test_content_is_judged_before_what_it_is_for(caller: Caller) -> None:
    """The order of checks of machine protocol §4.7: content, then existence."""
    wanted = {"artifact_id": "art_none", "if_revision": "arev_none"}
    unsent = {"type": "upload", "upload_id": declare(caller, b"x")["upload_id"]}
    assert code_of(caller.post(envelope("artifact.revise", wanted | {"content": unsent}, key="1"))) == "INVALID_REQUEST"
    good = {"type": "upload", "upload_id": sent(caller, b"x")}
    assert code_of(caller.post(envelope("artifact.revise", wanted | {"content": good}, key="2"))) == "NOT_FOUND"


def test_words_are_found_up_to_the_limit_and_titles_beyond(caller: Caller) -> None:
    at_most = limits.ARTIFACT_BYTES_MAX
    texts = {word: (f"{word} ".encode() + b"hay " * at_most)[:size] for word, size in SIZES.items()}
    found = {}
    for word, body in texts.items():
        stored(caller, body, title=f"about {word}title", media_type="text/plain")
        for query in (word, f"{word}title"):
            hits = caller.post(envelope("search", {"query": query})).json()["result"]["hits"]
            found[query] = len(hits)
    assert found == {"smallest": 1, "smallesttitle": 1, "middling": 1, "middlingtitle": 1, "huge": 0, "hugetitle": 1}


SIZES = {"smallest": 1000, "middling": 100_000, "huge": limits.ARTIFACT_BYTES_MAX + 1}


def test_claims_may_cite_spans_of_what_is_too_large_to_be_shown(caller: Caller) -> None:
    record = stored(caller, LARGE)
    ids = {name: record[name] for name in ("artifact_id", "revision_id")}

    def cite(start: int, end: int) -> Any:
        claim = {"claim_type": "fact", "statement": "s", "evidence": [ids | {"start_byte": start, "end_byte": end}]}
        return caller.post(envelope("claim.assert", claim, key=f"{start}-{end}"))

    assert cite(len(LARGE) - 10, len(LARGE)).status_code == 200
    assert code_of(cite(len(LARGE) - 10, len(LARGE) + 1)) == "INVALID_REQUEST"
    span = caller.http.get(content_path(record), headers={"Range": f"bytes={len(LARGE) - 10}-{len(LARGE) - 1}"})
    assert span.content == LARGE[-10:]


@pytest.mark.proves("fault-24")
@pytest.mark.parametrize(("token", "status"), [("all", 201), ("reader", 403), ("nobody", 401), (None, 401)])
def test_uploads_need_a_token_that_may_write(
    tmp_path: Path, store: EmbeddedService, stack: ExitStack, token: str | None, status: int
) -> None:
    tokens = {
        "all": {"tenant": "local", "scopes": ["ingest", "recall"]},
        "reader": {"tenant": "local", "scopes": ["recall"]},
    }
    settings = HttpSettings(tokens_file=write_tokens(tmp_path / "tokens", tokens), only_tenant="local")
    url = stack.enter_context(serving(create_app(store, settings)))
    caller, owner = Caller(url, token), Caller(url, "all")
    for each in (caller, owner):
        stack.callback(each.close)
    answer = caller.http.post(UPLOADS, json=declaration(b"x"))
    assert answer.status_code == status
    ticket = declare(owner, b"x")
    assert send(caller, ticket, b"x").status_code == (204 if status == 201 else status)
    if status != 201:
        assert answer.json()["ok"] is False

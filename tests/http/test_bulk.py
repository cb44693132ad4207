"""`POST /v1/bulk` over the real server: line for line, in order, within bounds, with any manner of client."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from http_support import (
    CONTEXT,
    Caller,
    Json,
    Scripted,
    envelope,
    note,
    peak_rss_bytes,
    serving,
    wait_for,
    write_tokens,
)
from hypothesis import given
from hypothesis import strategies as st

from memoree import limits
from memoree.embedded import EmbeddedService
from memoree.http.app import create_app
from memoree.http.lines import LineCutter
from memoree.http.server import HttpServer, address_of, listen
from memoree.http.settings import HttpSettings
from memoree.http.spool import Spool
from memoree.service import Reply, Request, read_reply

Tenants = Callable[[str | None], Caller]

NDJSON = {"Content-Type": "application/x-ndjson"}


def line(request: Json) -> bytes:
    return json.dumps(request).encode() + b"\n"


def statement(text: str, **members: Any) -> Json:
    return envelope("claim.assert", {"claim_type": "fact", "statement": text}, key=uuid.uuid4().hex, **members)


def send(caller: Caller, body: bytes | Iterable[bytes], **headers: str) -> httpx.Response:
    return caller.http.post("/v1/bulk", content=body, headers=NDJSON | headers)


def answers(response: httpx.Response) -> list[Json]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(each) for each in response.text.splitlines()]


def codes(found: Iterable[Json]) -> list[str]:
    return ["ok" if answer["ok"] else answer["error"]["code"] for answer in found]


class Duplex:
    """A client that sends and reads as a test says, on a socket of its own."""

    def __init__(self, base_url: str, token: str | None = None, receive_buffer: int | None = None) -> None:
        address = urlsplit(base_url)
        self._socket = socket.socket()
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(20)
        self._socket.connect((str(address.hostname), int(address.port or 0)))
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        self._socket.sendall(
            b"POST /v1/bulk HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
            b"Transfer-Encoding: chunked\r\n" + bearer.encode() + b"\r\n"
        )
        self._file = self._socket.makefile("rb")
        self._head_read = False

    def send(self, data: bytes) -> None:
        self._socket.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self) -> None:
        self._socket.sendall(b"0\r\n\r\n")

    def chunks(self) -> Iterator[bytes]:
        """The answer's chunks, as they come."""
        if not self._head_read:
            assert self._file.readline().startswith(b"HTTP/1.1 200"), "the request was refused"
            while self._file.readline().strip():
                pass
            self._head_read = True
        while size := int(self._file.readline(), 16):
            data = self._file.read(size)
            self._file.readline()
            yield data

    def answer(self) -> Json:
        """The next chunk, which must be one answer."""
        found: Json = json.loads(next(self.chunks()))
        return found

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@contextmanager
def duplex(*arguments: Any, **options: Any) -> Iterator[Duplex]:
    client = Duplex(*arguments, **options)
    try:
        yield client
    finally:
        client.close()


# --- line for line ----------------------------------------------------------------------------------------------


@pytest.mark.proves("fault-60")
def test_answers_come_in_the_order_of_the_lines_and_are_those_of_single_calls(caller: Caller) -> None:
    requests = [statement(f"row {number}") for number in range(300)]
    found = answers(send(caller, b"".join(map(line, requests))))
    assert [each["request_id"] for each in found] == [each["request_id"] for each in requests]
    assert [each["result"]["statement"] for each in found] == [f"row {number}" for number in range(300)]
    assert sorted(each["commit_seq"] for each in found) == list(range(1, 301))
    for request, answer in list(zip(requests, found, strict=True))[::60]:
        again = caller.post(request).json()
        assert again == answer | {"result": answer["result"] | {"created": False}}


def test_a_bad_line_has_its_own_answer_and_the_next_one_goes_on(caller: Caller) -> None:
    good = [statement("before"), statement("after")]
    bad = [
        b"{\n",
        b"[]\n",
        b'"text"\n',
        b"\xff\xfe\n",
        line({"op": "no.such"}),
        line({"request_id": "r", "op": "no.such"}),
    ]
    read = [envelope("artifact.get", {"artifact_id": "art_none"}), envelope("search", {"query": ""}), good[1]]
    body = line(good[0]) + b"".join(bad) + b"".join(map(line, read))
    found = answers(send(caller, body))
    assert codes(found) == ["ok", *["INVALID_REQUEST"] * len(bad), "NOT_FOUND", "INVALID_REQUEST", "ok"]
    assert {each["request_id"] for each in found[1:-3]} == {"req_transport"}
    assert [each["request_id"] for each in found[-3:]] == [each["request_id"] for each in read]


def test_blank_lines_and_carriage_returns_mean_nothing_and_the_last_line_needs_no_end(caller: Caller) -> None:
    requests = [statement("one"), statement("two")]
    body = b"\r\n\n  \t\n \t" + json.dumps(requests[0]).encode() + b"\r\n\n" + json.dumps(requests[1]).encode()
    assert [each["request_id"] for each in answers(send(caller, body))] == [each["request_id"] for each in requests]


def test_an_empty_body_has_an_empty_answer(caller: Caller) -> None:
    assert answers(send(caller, b"")) == []


def test_a_read_sees_what_every_line_before_it_wrote(caller: Caller) -> None:
    look = envelope("doctor", context=None)
    lines = [*(statement(f"early {number}") for number in range(40)), look, statement("late"), look]
    found = answers(send(caller, b"".join(map(line, lines))))
    assert [each["result"]["last_commit_seq"] for each in (found[40], found[42])] == [40, 41]


def test_every_line_has_a_key_of_its_own(caller: Caller) -> None:
    same = statement("the same")
    other = same | {"input": {"claim_type": "fact", "statement": "another"}}
    found = answers(send(caller, line(same) + line(envelope("doctor", context=None)) + line(same) + line(other)))
    assert codes(found) == ["ok", "ok", "ok", "IDEMPOTENCY_CONFLICT"]
    assert [found[0]["result"]["created"], found[2]["result"]["created"]] == [True, False]
    response = send(caller, line(same), **{"Idempotency-Key": "one for all"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "INVALID_REQUEST")


def test_only_ndjson_is_taken(caller: Caller) -> None:
    response = caller.http.post("/v1/bulk", content=line(statement("x")), headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (415, "INVALID_REQUEST")
    assert caller.last_commit_seq() == 0


def test_a_line_over_the_frame_limit_is_refused_by_itself(caller: Caller) -> None:
    body = b"x" * (limits.FRAME_BYTES_MAX + 1) + b"\n" + line(statement("after"))
    found = answers(send(caller, body))
    assert codes(found) == ["CONTENT_TOO_LARGE", "ok"]
    assert found[0]["request_id"] == "req_transport"


@given(st.binary(max_size=80).map(lambda data: data.replace(b"x", b"\n")), st.lists(st.integers(1, 9), max_size=80))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data: bytes, sizes: list[int]) -> None:
    cutter, found, at = LineCutter(9), list[bytes | None](), 0
    for size in [*sizes, len(data)]:
        found += cutter.feed(data[at : at + size])
        at += size
    found += cutter.end()
    lines = [each.lstrip(b" \t\r\n") for each in data.split(b"\n")]
    assert found == [each if len(each) <= 9 else None for each in lines if each]
    assert cutter.blank_bytes == len(data) - len(b"\n".join(filter(None, lines))) - data.endswith(b"\n") * bool(found)


def test_blank_lines_are_skipped_together_and_counted() -> None:
    cutter = LineCutter(9)
    blank = b"\n \r\n\t" * limits.MIB
    assert list(cutter.feed(blank + b"{}\n" + blank)) == [b"{}"]
    assert cutter.blank_bytes == 2 * len(blank)


# --- who may, and how fast --------------------------------------------------------------------------------------


def test_each_line_needs_its_own_scope(open_tenants: Callable[..., Tenants]) -> None:
    writer = open_tenants()("tok-in")
    look = envelope("doctor", context=None)
    found = answers(send(writer, line(statement("may")) + line(look) + line(statement("may again"))))
    assert codes(found) == ["ok", "FORBIDDEN", "ok"]
    assert found[1]["request_id"] == look["request_id"]


def test_nobody_gets_in_without_a_token(open_tenants: Callable[..., Tenants]) -> None:
    call_as = open_tenants()
    for token in (None, "tok-wrong"):
        assert send(call_as(token), line(statement("x"))).status_code == 401


def test_a_token_taken_back_is_good_for_no_further_line(
    open_tenants: Callable[..., Tenants], tokens_file: Path
) -> None:
    with duplex(open_tenants(rate_per_second=1000)("tok-a").base_url, "tok-a") as client:
        client.send(line(statement("still mine")))
        assert client.answer()["ok"]
        write_tokens(tokens_file, {"tok-b": {"tenant": "B", "scopes": ["ingest"]}})

        def refused() -> bool:
            client.send(line(statement("not mine any more")))
            return codes([client.answer()]) == ["UNAUTHENTICATED"]

        wait_for(refused, "the refusal of a line")


def test_a_stream_waits_for_the_rate_instead_of_refusing(open_tenants: Callable[..., Tenants]) -> None:
    caller = open_tenants(rate_per_second=100, rate_burst=5)("tok-a")
    began = time.monotonic()
    found = answers(send(caller, b"".join(line(statement(f"row {number}")) for number in range(24))))
    assert codes(found) == ["ok"] * 24
    assert time.monotonic() - began >= 0.19, "one token for the request and one for each of 24 lines, 5 of them at once"


def test_blank_lines_do_not_come_for_nothing(open_tenants: Callable[..., Tenants]) -> None:
    caller = open_tenants(rate_per_second=100, rate_burst=5)("tok-a")
    began = time.monotonic()
    assert answers(send(caller, b"\n" * (24 * limits.BULK_BLANK_BYTES_PER_TOKEN))) == []
    assert time.monotonic() - began >= 0.19, "as many tokens as 24 lines"


def test_a_tenant_with_all_its_streams_leaves_room_for_others(
    open_tenants: Callable[..., Tenants], stack: ExitStack
) -> None:
    call_as = open_tenants(rate_per_second=1000)
    greedy, other = call_as("tok-a"), call_as("tok-b")
    for _ in range(limits.BULK_STREAMS_MAX // 2):
        client = stack.enter_context(duplex(greedy.base_url, "tok-a"))
        client.send(line(statement("row")))
        assert client.answer()["ok"]
    refused = send(call_as("tok-a2"), line(statement("one too many")))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "TRANSPORT_ERROR")
    assert "this tenant" in refused.json()["error"]["message"]
    assert codes(answers(send(other, line(statement("row"))))) == ["ok"]


def test_a_write_that_is_pending_is_answered_so_on_its_line(scripted_caller: Caller, scripted: Scripted) -> None:
    requests = [statement("one"), statement("two")]
    response = send(scripted_caller, b"".join(map(line, requests)), Prefer="wait=3")
    found = answers(response)
    assert codes(found) == ["WRITE_PENDING"] * 2
    assert all(each["error"]["details"]["operation_url"].startswith("/v1/operations/att_") for each in found)
    assert (scripted.waits, response.headers["preference-applied"]) == ([3.0, 3.0], "wait=3")


# --- streams ----------------------------------------------------------------------------------------------------


def test_an_answer_comes_before_the_next_line_is_sent(caller: Caller) -> None:
    with duplex(caller.base_url) as client:
        for number in range(3):
            client.send(line(statement(f"row {number}")))
            assert client.answer()["result"]["statement"] == f"row {number}"
        client.end()
        assert list(client.chunks()) == []


def test_a_client_that_sends_everything_before_it_reads_is_not_waited_for(caller: Caller) -> None:
    look = line(envelope("schema", context=None))
    with duplex(caller.base_url, receive_buffer=16 * 1024) as client:
        for _ in range(120):
            client.send(look)
        client.end()
        received = b"".join(client.chunks())
    assert len(received) > 8 * limits.MIB, "what fits into the sockets' buffers proves nothing"
    assert codes(map(json.loads, received.splitlines())) == ["ok"] * 120


def test_answers_beyond_memory_come_from_the_file_in_order() -> None:
    async def run() -> None:
        spool = Spool(memory_bytes_max=10, bytes_max=1000)
        sent = [b"%d," % number for number in range(50)]
        for data in sent[:30]:
            await spool.put(data)
        received = await spool.get() + await spool.get()
        for data in sent[30:]:
            await spool.put(data)
        await spool.end()
        while data := await spool.get():
            received += data
        spool.close()
        assert received == b"".join(sent)

    asyncio.run(run())


def test_who_does_not_read_is_not_worked_for_without_end() -> None:
    async def run() -> None:
        spool = Spool(memory_bytes_max=4, bytes_max=40)
        for _ in range(11):
            await spool.put(b"1234")
        blocked = asyncio.create_task(spool.put(b"more"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not blocked.done()
        received = b""
        while len(received) < 44:
            received += await spool.get()
        await blocked
        assert await spool.get() == b"more"
        spool.close()

    asyncio.run(run())


class Blocking(Scripted):
    """A service whose calls last until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.cancelled = 0
        self.let_go = False

    async def call(self, tenant: str, request: Request, *, wait_seconds: float = 10.0, strong: bool = False) -> Reply:
        self.begun += 1
        try:
            while not self.let_go:  # noqa: ASYNC110 - the test lets go from another thread
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return read_reply(request.call, {}, 1)


@pytest.fixture
def blocking(stack: ExitStack) -> tuple[Blocking, str]:
    service = Blocking()
    stack.callback(setattr, service, "let_go", True)
    return service, stack.enter_context(serving(create_app(service, HttpSettings())))


def test_lines_in_flight_are_bounded(blocking: tuple[Blocking, str]) -> None:
    service, base_url = blocking
    with duplex(base_url) as client:
        client.send(b"".join(line(statement(f"row {number}")) for number in range(1000)))
        client.end()
        wait_for(lambda: service.begun >= limits.BULK_LINES_IN_FLIGHT_MAX, "the work")
        assert service.begun <= limits.BULK_LINES_IN_FLIGHT_MAX + 2
        service.let_go = True
        assert codes(map(json.loads, b"".join(client.chunks()).splitlines())) == ["ok"] * 1000


def test_a_client_that_leaves_is_worked_for_no_longer(blocking: tuple[Blocking, str]) -> None:
    service, base_url = blocking
    with duplex(base_url) as client:
        client.send(b"".join(line(statement(f"row {number}")) for number in range(5)))
        wait_for(lambda: service.begun == 5, "the work")
    wait_for(lambda: service.cancelled == 5, "the end of the work")


def test_a_client_that_leaves_after_its_last_line_is_noticed_too(blocking: tuple[Blocking, str]) -> None:
    service, base_url = blocking
    with duplex(base_url) as client:
        client.send(line(statement("row")))
        client.end()
        wait_for(lambda: service.begun == 1, "the work")
    wait_for(lambda: service.cancelled == 1, "the end of the work")


def test_streams_are_bounded(blocking: tuple[Blocking, str], stack: ExitStack) -> None:
    service, base_url = blocking
    share = limits.BULK_STREAMS_MAX // 2
    for _ in range(share):
        stack.enter_context(duplex(base_url)).send(line(statement("row")))
    wait_for(lambda: service.begun == share, "the streams")
    response = httpx.post(f"{base_url}/v1/bulk", content=line(statement("one too many")), headers=NDJSON)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "TRANSPORT_ERROR")
    assert "retry-after" in response.headers


def test_a_client_that_falls_silent_is_told_so_and_let_go(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BULK_IDLE_SECONDS_MAX", 0.2)
    with duplex(caller.base_url) as client:
        client.send(line(statement("the last")))
        found = [json.loads(each) for each in b"".join(client.chunks()).splitlines()]
    assert codes(found) == ["ok", "TRANSPORT_ERROR"]
    assert found[1]["request_id"] == "req_transport"


IDLE_SECONDS = 0.6
PAUSE_SECONDS = 0.05


def slowly(times: int) -> Iterator[int]:
    """That many turns, with a pause after each: what takes long in all, and never falls silent."""
    for number in range(times):
        yield number
        time.sleep(PAUSE_SECONDS)


def test_a_client_that_still_sends_may_leave_its_answers_unread(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BULK_IDLE_SECONDS_MAX", IDLE_SECONDS)
    look = line(envelope("schema", context=None))
    with duplex(caller.base_url, receive_buffer=16 * 1024) as client:
        client.send(look * 120)  # more than the sockets between us buffer
        for number in slowly(30):
            client.send(line(statement(f"row {number}")))
        client.end()
        assert codes(map(json.loads, b"".join(client.chunks()).splitlines())) == ["ok"] * 150


def test_a_client_that_still_reads_may_send_later(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BULK_IDLE_SECONDS_MAX", IDLE_SECONDS)
    look = line(envelope("schema", context=None))
    with duplex(caller.base_url, receive_buffer=16 * 1024) as client:
        client.send(look * 200)
        chunks, received = client.chunks(), b""
        for _ in slowly(30):
            while received.count(b"\n") < 1:
                received += next(chunks)
            received = received[received.index(b"\n") + 1 :]
        client.send(line(statement("later")) * 10)
        client.end()
        received += b"".join(chunks)
    assert codes(map(json.loads, received.splitlines())) == ["ok"] * 180


def test_a_client_that_waits_for_its_answer_is_not_silent(
    blocking: tuple[Blocking, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, base_url = blocking
    monkeypatch.setattr(limits, "BULK_IDLE_SECONDS_MAX", 0.1)
    with duplex(base_url) as client:
        client.send(line(statement("slow")))
        wait_for(lambda: service.begun == 1, "the work")
        for _ in slowly(6):
            pass
        client.send(line(statement("sent after all")))
        client.end()
        service.let_go = True
        assert codes(map(json.loads, b"".join(client.chunks()).splitlines())) == ["ok"] * 2


def test_a_server_that_stops_answers_what_it_has_and_ends_the_stream(store: EmbeddedService) -> None:
    listener = listen("127.0.0.1", 0)
    server = HttpServer(create_app(store, HttpSettings()), listener)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        with duplex(f"http://{address_of(listener)}") as client:
            client.send(line(statement("the last")))
            assert client.answer()["ok"]
            server.stop()
            [told] = map(json.loads, b"".join(client.chunks()).splitlines())
            assert (told["request_id"], told["error"]["code"]) == ("req_transport", "TRANSPORT_ERROR")
            assert "stopping" in told["error"]["message"]
    finally:
        server.stop()
        thread.join(20)
    assert not thread.is_alive()


def test_a_client_of_http_1_0_gets_lines_and_no_chunks(caller: Caller) -> None:
    address = urlsplit(caller.base_url)
    requests = [statement(f"row {number}") for number in range(20)]
    body = b"".join(map(line, requests))
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        head = f"POST /v1/bulk HTTP/1.0\r\nHost: {address.netloc}\r\nContent-Type: application/x-ndjson\r\n"
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        sent, _, received = connection.makefile("rb").read().partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in sent.lower()
    assert b"content-length" not in sent.lower()
    assert [json.loads(each)["request_id"] for each in received.splitlines()] == [
        each["request_id"] for each in requests
    ]


@pytest.fixture
def measured(store: EmbeddedService, stack: ExitStack) -> Caller:
    """The embedded store behind HTTP, with `/metrics` beside it."""
    base_url = stack.enter_context(serving(create_app(store, HttpSettings(metrics_on_main_port=True))))
    client = Caller(base_url)
    stack.callback(client.close)
    return client


def measure(caller: Caller, name: str) -> float:
    """The sum of a metric's series."""
    lines = caller.http.get("/metrics").text.splitlines()
    return sum(float(each.rpartition(" ")[2]) for each in lines if re.match(rf"{name}(\{{| )", each))


def test_a_client_that_never_reads_is_let_go(measured: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BULK_IDLE_SECONDS_MAX", 0.3)
    with duplex(measured.base_url, receive_buffer=16 * 1024) as client:
        client.send(line(envelope("schema", context=None)) * 120)
        client.end()
        wait_for(lambda: measure(measured, "memoree_http_bulk_lines_total") == 120, "the work")
        wait_for(lambda: measure(measured, "memoree_http_in_flight") == 1, "the end of the stream")
        with pytest.raises((ValueError, ConnectionError)):
            list(client.chunks())


def test_bytes_in_flight_are_bounded(blocking: tuple[Blocking, str]) -> None:
    service, base_url = blocking
    large = line(envelope("artifact.put", note("x" * 5 * limits.MIB), key="large"))
    with duplex(base_url) as client:
        for _ in range(4):
            client.send(large)
        wait_for(lambda: service.begun == 4, "the lines that fit")
        client.send(large)
        client.send(line(statement("waits behind it")))
        client.end()
        for _ in range(20):
            httpx.get(f"{base_url}/livez")
        assert service.begun == 4
        service.let_go = True
        assert codes(map(json.loads, b"".join(client.chunks()).splitlines())) == ["ok"] * 6


def test_bulk_lines_are_counted_by_operation_and_outcome(measured: Caller) -> None:
    send(measured, line(statement("x")) + b"{\n")
    shown = measured.http.get("/metrics").text
    assert 'memoree_http_bulk_lines_total{code="ok",op="claim.assert"} 1.0' in shown
    assert 'memoree_http_bulk_lines_total{code="INVALID_REQUEST",op=""} 1.0' in shown


def test_the_context_of_a_line_is_its_own(caller: Caller) -> None:
    elsewhere = CONTEXT | {"project_id": "prj_other"}
    found = answers(send(caller, line(statement("here")) + line(statement("there", context=elsewhere))))
    assert [each["result"]["context"]["project_id"] for each in found] == ["prj_kiln", "prj_other"]


RSS_GROWTH_BYTES_MAX = 160 * limits.MIB


@pytest.mark.parametrize("total_mib", [128, pytest.param(1024, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("line_kib", [64, 16 * 1024])
def test_a_body_of_any_size_passes_through_bounded_memory(caller: Caller, total_mib: int, line_kib: int) -> None:
    sent = line(envelope("doctor", {"unknown": "x" * line_kib * limits.KIB}))
    count = total_mib * 1024 // line_kib
    before = peak_rss_bytes(reset=True)
    received = 0
    with duplex(caller.base_url) as client:
        for _ in range(count):
            client.send(sent)
        client.end()
        for chunk in client.chunks():
            received += chunk.count(b"INVALID_REQUEST")
    assert received == count
    grown = peak_rss_bytes() - before
    assert grown < RSS_GROWTH_BYTES_MAX, f"{grown / limits.MIB:.0f} MiB"

"""The process around the app: addresses, the announcement, heads that never end, and draining."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from http_support import DEADLINE_SECONDS, Caller, Scripted, envelope, note, serving

from memoree.errors import Code, MemoreeError
from memoree.http import connection
from memoree.http.app import create_app
from memoree.http.logs import JsonFormatter
from memoree.http.server import HttpServer, address_of, inherited, listen
from memoree.http.settings import HttpSettings
from memoree.service import read_reply

SLOW_SERVER = """
import asyncio, sys
from memoree.assembly import embedded_service
from memoree.http.app import create_app
from memoree.http.server import HttpServer, inherited, listen
from memoree.http.settings import HttpSettings
from pathlib import Path

store = embedded_service(Path(sys.argv[1]))
quick = store.call

async def call(tenant, request, **how):
    if request.call.operation.name == "artifact.get":
        sys.stderr.write("SERVING\\n")
        sys.stderr.flush()
        await asyncio.sleep(1.0)
    return await quick(tenant, request, **how)

store.call = call
listener = inherited(int(sys.argv[2])) if len(sys.argv) > 2 else listen("127.0.0.1", 0)
HttpServer(create_app(store, HttpSettings()), listener).run()
store.close_sync()
"""


class Process:
    """The server in a process of its own; its stderr line by line."""

    def __init__(self, data_dir: Path, listener: socket.socket | None = None) -> None:
        arguments = [sys.executable, "-c", SLOW_SERVER, str(data_dir)]
        fds: tuple[int, ...] = ()
        if listener is not None:
            fds = (listener.fileno(),)
            arguments.append(str(listener.fileno()))
        self.process = subprocess.Popen(arguments, stderr=subprocess.PIPE, pass_fds=fds, text=True, bufsize=1)

    def line(self) -> str:
        assert self.process.stderr is not None
        readable, _, _ = select.select([self.process.stderr], [], [], DEADLINE_SECONDS)
        assert readable, "the server said nothing in time"
        return self.process.stderr.readline().strip()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


def test_the_server_announces_its_address_and_drains_on_sigterm(tmp_path: Path) -> None:
    with Process(tmp_path / "store") as server:
        announced = server.line()
        assert announced.startswith("LISTENING_ON 127.0.0.1:")
        caller = Caller("http://" + announced.removeprefix("LISTENING_ON "))
        answers: list[httpx.Response] = []
        slow = threading.Thread(target=lambda: answers.append(caller.get_artifact("art_1")))
        slow.start()
        assert server.line() == "SERVING"
        server.process.send_signal(signal.SIGTERM)
        slow.join(DEADLINE_SECONDS)

        assert [answer.status_code for answer in answers] == [404]
        assert server.process.wait(DEADLINE_SECONDS) == 0
        with pytest.raises(httpx.ConnectError):
            caller.http.get("/livez")
        caller.close()


def test_two_processes_share_one_inherited_listener(tmp_path: Path) -> None:
    listener = listen("127.0.0.1", 0)
    with listener, Process(tmp_path / "store", listener) as one, Process(tmp_path / "store", listener) as two:
        assert one.line() == two.line() == f"LISTENING_ON {address_of(listener)}"
        artifact_ids = set()
        for number in range(8):
            caller = Caller(f"http://{address_of(listener)}")
            artifact_ids.add(caller.put(f"note {number}")["artifact_id"])
            caller.close()
        assert len(artifact_ids) == 8


@pytest.mark.proves("machine-25")
def test_without_tokens_only_loopback_is_served(scripted: Scripted, tmp_path: Path) -> None:
    app = create_app(scripted, HttpSettings())
    with listen("0.0.0.0", 0) as everywhere, pytest.raises(MemoreeError) as refused:
        HttpServer(app, everywhere)
    assert refused.value.code is Code.CONFIG_ERROR

    guarded = create_app(scripted, HttpSettings(tokens_file=tmp_path / "tokens.json"))
    with listen("0.0.0.0", 0) as everywhere:
        HttpServer(guarded, everywhere)


def test_an_address_in_use_and_a_descriptor_that_does_not_listen_are_config_errors() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(MemoreeError) as refused:
        listen("127.0.0.1", taken.getsockname()[1])
    assert refused.value.code is Code.CONFIG_ERROR
    read_end, write_end = os.pipe()
    with pytest.raises(MemoreeError):
        inherited(read_end)
    for end in (read_end, write_end):
        os.close(end)


UNREAD_BYTES = 20_000_000
"""More than the kernel keeps for a connection."""


def connected(caller: Caller) -> socket.socket:
    return socket.create_connection((caller.http.base_url.host, caller.http.base_url.port), timeout=DEADLINE_SECONDS)


def test_a_head_that_never_ends_is_given_up(
    scripted: Scripted, scripted_caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS_MAX", 0.2)
    whole = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for first, start in ((b"", b""), (b"", b"POST /v1/call HTTP/1.1\r\nHost: "), (whole, b"GET /l"), (whole, b"\r\n")):
        with connected(scripted_caller) as slow:
            slow.sendall(first)
            if first:
                assert slow.recv(65536).startswith(b"HTTP/1.1 200")
            slow.sendall(start)
            received = b""
            while chunk := slow.recv(65536):
                received += chunk
        assert b"HTTP/1.1 408" in received
        assert b'"error"' in received


def test_an_answer_that_nobody_reads_does_not_keep_its_connection(
    scripted: Scripted, scripted_caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FLUSH_SECONDS_MAX", 0.2)
    ended = threading.Event()
    abort = connection.BoundedHttpProtocol._abort

    def noted(protocol: connection.BoundedHttpProtocol) -> None:
        abort(protocol)
        ended.set()

    monkeypatch.setattr(connection.BoundedHttpProtocol, "_abort", noted)
    scripted.answer = lambda request: read_reply(request.call, {"text": "x" * UNREAD_BYTES}, 1)
    body = b'{"request_id":"r","op":"doctor","input":{}}'
    head = f"POST /v1/call HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    with socket.socket() as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.settimeout(DEADLINE_SECONDS)
        idle.connect((scripted_caller.http.base_url.host, scripted_caller.http.base_url.port))
        idle.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        assert ended.wait(DEADLINE_SECONDS), "the connection is still waiting for its reader"
        received = 0
        with suppress(ConnectionResetError):
            while chunk := idle.recv(65536):
                received += len(chunk)
        assert received < UNREAD_BYTES


def test_a_head_without_bound_is_refused(scripted_caller: Caller) -> None:
    with connected(scripted_caller) as endless:
        endless.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ")
        received = b""
        try:
            for _ in range(64):
                endless.sendall(b"x" * 65536)
            received = endless.recv(65536)
        except ConnectionError:
            return
        assert received.startswith(b"HTTP/1.1 431")


def test_bytes_that_are_no_http_get_a_json_400(scripted_caller: Caller) -> None:
    with connected(scripted_caller) as talker:
        talker.sendall(b"\x00\x01\x02 hello\r\n\r\n")
        answer = talker.recv(65536)
    assert answer.startswith(b"HTTP/1.1 400")
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"] == "bad_request"


def test_a_connection_carries_many_requests_and_a_401_does_not_end_it(tmp_path: Path, scripted: Scripted) -> None:
    settings = HttpSettings(tokens_file=tmp_path / "none")
    with serving(create_app(scripted, settings)) as base_url:
        host, port = base_url.removeprefix("http://").split(":")
        body = json.dumps(envelope("artifact.put", note(), key="k")).encode()
        head = "POST /v1/call HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n"
        with (
            socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as line,
            line.makefile("rb") as answers,
        ):
            for _ in range(3):
                line.sendall(request.encode() + body)
                assert answers.readline().startswith(b"HTTP/1.1 401")
                fields = dict(field.lower().split(b": ", 1) for field in iter(answers.readline, b"\r\n"))
                answers.read(int(fields[b"content-length"]))


def test_log_lines_are_json_with_the_request_id() -> None:
    record = logging.makeLogRecord({"name": "x", "levelname": "ERROR", "levelno": 40, "msg": "a %s", "args": ("b",)})
    record.request_id = "req_1"
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["level"], line["request_id"]) == ("a b", "error", "req_1")


def test_a_server_that_is_told_to_stop_refuses_new_connections(scripted: Scripted) -> None:
    with serving(create_app(scripted, HttpSettings())) as base_url:
        assert httpx.get(f"{base_url}/livez").status_code == 200
    started = time.monotonic()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{base_url}/livez")
    assert time.monotonic() - started < DEADLINE_SECONDS


def test_a_service_that_the_app_opens_is_closed_with_it(scripted: Scripted) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def opened() -> AsyncIterator[Scripted]:
        steps.append("opened")
        yield scripted
        steps.append("closed")

    with serving(create_app(opened, HttpSettings())) as base_url:
        assert httpx.get(f"{base_url}/readyz").status_code == 200
        assert steps == ["opened"]
    assert steps == ["opened", "closed"]

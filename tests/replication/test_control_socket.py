"""The client of the control socket, against servers that answer by the book, badly, late, or not at all."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memoree.replication import control_socket
from memoree.replication.control_socket import ControlAnswer, ControlRefused, ControlSocket, ControlUnanswered
from memoree.replication.litestream import Litestream, LitestreamError, LitestreamGone, ReplicaTarget, SyncAmbiguous

BODY = b'{"status":"synced","txid":7,"replicated_txid":7}'
SYNCED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SECONDS_MAX = 5.0
CLOSE = b""
"""In a script: the server ends the connection here."""


class Server:
    """Answers each request with the next script: pieces to send one by one, or `CLOSE`. Out of scripts it is mute."""

    def __init__(self, scripts: list[list[bytes]]) -> None:
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        """Set when a request has come."""
        self.closed = asyncio.Event()
        """Set when a connection has ended."""
        self._scripts = iter(scripts)
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def connections(self) -> int:
        return len(self._writers)

    async def say(self, data: bytes) -> None:
        """Send something unasked."""
        self._writers[-1].write(data)
        await self._writers[-1].drain()

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._answer_one(reader, writer):
                pass
        writer.close()
        self.closed.set()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length"))
        self.requests.append(head + await reader.readexactly(length))
        self.asked.set()
        for piece in next(self._scripts, []):
            if piece == CLOSE:
                return False
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return True


@pytest.fixture
def path() -> Iterator[Path]:
    """Short enough for a socket, which the paths of tests are not always."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory, "control.sock")


def talk(
    path: Path, scripts: list[list[bytes]], body: Callable[[ControlSocket, Server], Coroutine[Any, Any, None]]
) -> Server:
    async def run() -> Server:
        server = Server(scripts)
        async with await asyncio.start_unix_server(server.serve, path):
            control = ControlSocket(path)
            try:
                await asyncio.wait_for(body(control, server), SECONDS_MAX)
            finally:
                control.close()
                await server.close()
        return server

    return asyncio.run(run())


async def asked(control: ControlSocket, *, seconds: float = SECONDS_MAX) -> ControlAnswer:
    return await control.request("POST", "/sync", b"{}", timeout_seconds=seconds)


def in_pieces(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


class TestAnswers:
    @pytest.mark.parametrize("pieces", [[SYNCED], in_pieces(SYNCED), [SYNCED[:60], SYNCED[60:]]])
    def test_an_answer_is_whole_however_it_arrives(self, path: Path, pieces: list[bytes]) -> None:
        async def body(control: ControlSocket, _: Server) -> None:
            assert await asked(control) == ControlAnswer(200, BODY)

        talk(path, [pieces], body)

    def test_a_request_carries_its_length_and_its_body(self, path: Path) -> None:
        async def body(control: ControlSocket, _: Server) -> None:
            await control.request("POST", "/sync", b'{"a":1}', timeout_seconds=SECONDS_MAX)

        (request,) = talk(path, [[SYNCED]], body).requests
        assert request.startswith(b"POST /sync HTTP/1.1\r\nHost: litestream\r\n")
        assert request.endswith(b'Content-Length: 7\r\n\r\n{"a":1}')

    @pytest.mark.parametrize("in_parts", [lambda data: [data], in_pieces])
    def test_a_long_answer_may_come_in_chunks(self, path: Path, in_parts: Callable[[bytes], list[bytes]]) -> None:
        answer = CHUNKED + b"c00\r\n" + b"x" * 3072 + b"\r\n" + b"3\r\n\r\ny\r\n0\r\n\r\n"

        async def body(control: ControlSocket, server: Server) -> None:
            assert await asked(control) == ControlAnswer(200, b"x" * 3072 + b"\r\ny")
            assert await asked(control) == ControlAnswer(200, BODY)
            assert server.connections == 1

        talk(path, [in_parts(answer), [SYNCED]], body)

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (b"\x00\xff garbage\r\n\r\n", "not HTTP"),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "not HTTP"),
            (b"HTTP/1.1 100 Continue\r\n\r\n", "not HTTP"),
            (b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n", "not HTTP"),
            (b"HTTP/1.1 200 OK\r\n\r\n", "unknown length"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "unknown length"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", "unknown length"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "unknown length"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\ncontent-length: 3\r\n\r\n{}", "not a header field"),
            (b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}", "not a header field"),
            (b"HTTP/1.1 200 OK\r\nContent-Length\r\n\r\n{}", "not a header field"),
            (CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n", "not the size of a chunk"),
            (CHUNKED + b"2\r\n{}{}\r\n0\r\n\r\n", "goes on after its end"),
            (SYNCED + b"HTTP/1.1", "more than one answer"),
        ],
    )
    def test_what_is_no_clear_answer_is_none(self, path: Path, answer: bytes, reason: str) -> None:
        async def body(control: ControlSocket, server: Server) -> None:
            with pytest.raises(ControlUnanswered, match=reason):
                await asked(control)
            assert await asked(control) == ControlAnswer(200, BODY)
            assert server.connections == 2, "whatever else comes on the first one answers nothing"

        talk(path, [[answer], [SYNCED]], body)

    @pytest.mark.parametrize(
        "endless",
        [
            b"HTTP/1.1 200 OK\r\nX: " + b"x" * control_socket.ANSWER_BYTES_MAX,
            b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b"x" * control_socket.ANSWER_BYTES_MAX,
            CHUNKED + (b"400\r\n" + b"x" * 1024 + b"\r\n") * (control_socket.ANSWER_BYTES_MAX // 1024),
        ],
    )
    def test_an_endless_answer_is_given_up(self, path: Path, endless: bytes) -> None:
        async def body(control: ControlSocket, _: Server) -> None:
            with pytest.raises(ControlUnanswered, match="more than 65536 bytes"):
                await asked(control)

        talk(path, [[endless]], body)


class TestConnections:
    def test_one_connection_serves_many_requests(self, path: Path) -> None:
        async def body(control: ControlSocket, server: Server) -> None:
            for _ in range(5):
                await asked(control)
            assert server.connections == 1

        talk(path, [[SYNCED]] * 5, body)

    def test_a_connection_closed_while_idle_is_replaced_before_anything_is_sent(self, path: Path) -> None:
        async def body(control: ControlSocket, server: Server) -> None:
            await asked(control)
            await server.closed.wait()
            await asked(control)
            assert server.connections == len(server.requests) == 2

        talk(path, [[SYNCED, CLOSE], [SYNCED]], body)

    def test_a_connection_that_spoke_while_idle_is_not_asked_again(self, path: Path) -> None:
        """A late answer must not be taken for that to the next request."""

        async def body(control: ControlSocket, server: Server) -> None:
            await asked(control)
            await server.say(SYNCED.replace(b":7", b":6"))
            assert await asked(control) == ControlAnswer(200, BODY)
            assert server.connections == 2

        talk(path, [[SYNCED], [SYNCED]], body)

    def test_a_connection_the_server_takes_leave_of_is_not_kept(self, path: Path) -> None:
        leaving = SYNCED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")

        async def body(control: ControlSocket, server: Server) -> None:
            await asked(control)
            await asked(control)
            assert server.connections == 2

        talk(path, [[leaving], [SYNCED]], body)

    @pytest.mark.parametrize("sent", [b"", SYNCED[:10], SYNCED[:-1], CHUNKED + b"5\r\nab"])
    def test_a_request_that_may_have_been_received_is_never_sent_again(self, path: Path, sent: bytes) -> None:
        async def body(control: ControlSocket, server: Server) -> None:
            with pytest.raises(ControlUnanswered, match="closed before the end"):
                await asked(control)
            assert len(server.requests) == 1

        talk(path, [[sent, CLOSE] if sent else [CLOSE]], body)

    def test_a_late_answer_is_not_taken_for_the_next_one(self, path: Path) -> None:
        async def body(control: ControlSocket, server: Server) -> None:
            with pytest.raises(ControlUnanswered, match="TimeoutError"):
                await asked(control, seconds=0.05)
            assert await asked(control) == ControlAnswer(200, BODY)
            assert server.connections == 2

        talk(path, [[SYNCED[:-1]], [SYNCED]], body)

    def test_a_cancelled_request_takes_its_connection_with_it(self, path: Path) -> None:
        async def body(control: ControlSocket, server: Server) -> None:
            asking = asyncio.create_task(asked(control))
            await server.asked.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await server.closed.wait()

        talk(path, [[]], body)

    def test_a_connection_in_use_is_not_kept_by_a_closed_client(self, path: Path) -> None:
        async def body(control: ControlSocket, server: Server) -> None:
            asking = asyncio.create_task(asked(control))
            await server.asked.wait()
            control.close()
            await server.say(SYNCED)
            assert await asking == ControlAnswer(200, BODY)
            await server.closed.wait()

        talk(path, [[]], body)

    def test_nobody_listening_is_a_refusal(self, path: Path) -> None:
        async def ask() -> None:
            with pytest.raises(ControlRefused):
                await asked(ControlSocket(path))
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.bind(os.fspath(path))
                with pytest.raises(ControlRefused):
                    await asked(ControlSocket(path))

        asyncio.run(ask())


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([CLOSE], SyncAmbiguous),
        ([SYNCED[:-1], CLOSE], SyncAmbiguous),
        ([b"\r\n\r\n"], SyncAmbiguous),
        ([b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n{}"], SyncAmbiguous),
        ([b"HTTP/1.1 409 Oh\r\nContent-Length: 2\r\n\r\n{}"], SyncAmbiguous),
        ([b"HTTP/1.1 404 Oh\r\nContent-Length: 2\r\n\r\n{}"], LitestreamGone),
    ],
)
def test_only_a_database_litestream_does_not_know_calls_for_a_restart(
    path: Path, script: list[bytes], kind: type[LitestreamError]
) -> None:
    class Running(Litestream):
        is_alive = True

    async def body(control: ControlSocket, _: Server) -> None:
        litestream = Running(path.with_name("tenant.db"), ReplicaTarget("file:///nowhere"))
        litestream._control = control
        with pytest.raises(LitestreamError) as raised:
            await litestream.sync()
        assert type(raised.value) is kind

    talk(path, [script], body)

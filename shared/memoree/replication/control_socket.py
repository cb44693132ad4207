"""HTTP over the control socket of a Litestream child: one kept connection, bounded answers, nothing ever sent twice.

As much of HTTP/1.1 as Litestream's server speaks. A write waits for one such request, and a general client takes a
millisecond of processor time for it; this one takes a fifteenth of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ANSWER_BYTES_MAX: Final = 65_536
"""Of a whole answer. One about one database takes a few hundred; the rest is room for the words of a store."""
RECEIVE_BYTES: Final = 16_384
SHOWN_BYTES_MAX: Final = 100

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.1 ([2-5]\d\d)(?: [\t -~]*)?")
_LENGTH: Final = re.compile(rb"\d{1,7}")
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,6}")


class ControlRefused(Exception):
    """Nobody listens at the socket: the request was not sent."""


class ControlUnanswered(Exception):
    """The request may have been received; no answer came that could be understood."""


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    status: int
    body: bytes


class ControlSocket:
    """Connects at the first request, and again when the connection was closed since the last answer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: _Connection | None = None
        self._is_closed = False

    async def request(self, method: str, target: str, body: bytes = b"", *, timeout_seconds: float) -> ControlAnswer:
        """Send one request, with a body of JSON, once. Raises `ControlRefused` and `ControlUnanswered`."""
        connection = self._take_idle() or _Connection()
        try:
            async with asyncio.timeout(timeout_seconds):
                await connection.open(self._path)
                answer, may_ask_again = await connection.ask(_rendered(method, target, body))
        except BaseException as error:
            connection.close()  # what may still come on it would answer the next request
            if isinstance(error, OSError):  # which a timeout is, too
                raise ControlUnanswered(f"{type(error).__name__}: {error}".rstrip(": ")) from error
            raise
        if may_ask_again and self._idle is None and not self._is_closed:
            self._idle = connection
        else:
            connection.close()
        return answer

    def close(self) -> None:
        """A request under way is answered still; its connection is not kept."""
        self._is_closed = True
        if self._idle is not None:
            self._idle.close()
            self._idle = None

    def _take_idle(self) -> _Connection | None:
        """The kept connection, unless something came on it unasked, which usually is its end."""
        connection, self._idle = self._idle, None
        if connection is None or connection.is_silent():
            return connection
        connection.close()
        return None


@contextlib.contextmanager
def _short_address(path: Path) -> Iterator[str]:
    """The socket's address; through its open directory on Linux, because an address holds only 107 bytes."""
    if sys.platform != "linux":
        yield os.fspath(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


class _Connection:
    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._is_open = False
        self._received = bytearray()
        self._bytes_left = 0

    async def open(self, path: Path) -> None:
        if self._is_open:
            return
        try:
            with _short_address(path) as address:
                await asyncio.get_running_loop().sock_connect(self._socket, address)
        except OSError as error:
            raise ControlRefused(str(error)) from error
        self._is_open = True

    def close(self) -> None:
        self._socket.close()

    def is_silent(self) -> bool:
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    async def ask(self, request: bytes) -> tuple[ControlAnswer, bool]:
        """The answer, and whether the connection may be used for another request."""
        self._bytes_left = ANSWER_BYTES_MAX
        await asyncio.get_running_loop().sock_sendall(self._socket, request)
        status_line, *field_lines = (await self._read_until(b"\r\n\r\n")).split(b"\r\n")
        if (status := _STATUS_LINE.fullmatch(status_line)) is None:
            raise ControlUnanswered(f"not HTTP: {_shown(status_line)}")
        fields = _fields(field_lines)
        body = await self._read_body(fields)
        if self._received:
            raise ControlUnanswered(f"more than one answer: {_shown(self._received)}")
        return ControlAnswer(int(status[1]), body), fields.get(b"connection", b"").lower() != b"close"

    async def _read_body(self, fields: dict[bytes, bytes]) -> bytes:
        match fields.get(b"content-length"), fields.get(b"transfer-encoding"):
            case bytes(length), None if _LENGTH.fullmatch(length):
                return await self._read_exactly(int(length))
            case None, b"chunked":
                return await self._read_chunks()
        raise ControlUnanswered("an answer of unknown length")

    async def _read_chunks(self) -> bytes:
        """Go's server sends what is longer than 2 KiB in chunks; without extensions and trailers."""
        body = b""
        while True:
            size = await self._read_until(b"\r\n")
            if not _CHUNK_SIZE.fullmatch(size):
                raise ControlUnanswered(f"not the size of a chunk: {_shown(size)}")
            chunk = await self._read_exactly(int(size, 16) + len(b"\r\n"))
            if not chunk.endswith(b"\r\n"):
                raise ControlUnanswered(f"a chunk goes on after its end: {_shown(chunk[-2:])}")
            if chunk == b"\r\n":
                return body
            body += chunk[:-2]

    async def _read_until(self, end: bytes) -> bytes:
        while (at := self._received.find(end)) < 0:
            await self._receive()
        return self._taken(at + len(end))[: -len(end)]

    async def _read_exactly(self, length: int) -> bytes:
        while len(self._received) < length:
            await self._receive()
        return self._taken(length)

    async def _receive(self) -> None:
        if self._bytes_left <= 0:
            raise ControlUnanswered(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
        data = await asyncio.get_running_loop().sock_recv(self._socket, min(RECEIVE_BYTES, self._bytes_left))
        if not data:
            raise ControlUnanswered("the connection was closed before the end of the answer")
        self._bytes_left -= len(data)
        self._received += data

    def _taken(self, length: int) -> bytes:
        taken = bytes(self._received[:length])
        del self._received[:length]
        return taken


def _rendered(method: str, target: str, body: bytes) -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nHost: litestream\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _fields(lines: Iterable[bytes]) -> dict[bytes, bytes]:
    """By their names in lower case. A repeated field is refused: its values could contradict each other."""
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.lower()
        if not colon or not name or name != name.strip() or name in fields:
            raise ControlUnanswered(f"not a header field: {_shown(line)}")
        fields[name] = value.strip()
    return fields


def _shown(data: bytes | bytearray) -> str:
    return repr(bytes(data[:SHOWN_BYTES_MAX]))

"""The framed transport over a Unix socket: one length-prefixed request, one response (machine protocol §1.6)."""

from __future__ import annotations

import os
import socket
import struct

from memoree import limits
from memoree.client.deadline import CONNECT_SECONDS_MAX, Deadline
from memoree.client.request import Outgoing
from memoree.errors import Code, MemoreeError

PREFIX = struct.Struct(">I")
SOCKET_PATH_BYTES_MAX = 107
"""`sun_path` on Linux, without the byte that ends it."""
READ_BYTES = 256 * limits.KIB


class FramedEndpoint:
    def __init__(self, path: str) -> None:
        size = len(os.fsencode(path))
        if size > SOCKET_PATH_BYTES_MAX or "\0" in path:
            raise MemoreeError(
                Code.CONFIG_ERROR, f"the socket path has {size} bytes; at most {SOCKET_PATH_BYTES_MAX}, and no NUL"
            )
        self._path = path

    def exchange(self, request: Outgoing) -> bytes:
        deadline = Deadline()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            try:
                sock.settimeout(CONNECT_SECONDS_MAX)
                sock.connect(self._path)
                sock.settimeout(deadline.remaining())
                sock.sendall(PREFIX.pack(len(request.body)) + request.body)
                (size,) = PREFIX.unpack(_receive(sock, PREFIX.size, deadline))
                if size > limits.FRAME_BYTES_MAX:
                    raise MemoreeError(Code.TRANSPORT_ERROR, f"the server announced a frame of {size} bytes")
                return _receive(sock, size, deadline)
            except (FileNotFoundError, ConnectionRefusedError) as error:
                raise MemoreeError(
                    Code.TRANSPORT_ERROR,
                    f"no server listens at {self._path}; `memoree serve --socket {self._path}` is one",
                ) from error
            except OSError as error:
                raise MemoreeError(
                    Code.TRANSPORT_ERROR, f"the server at {self._path} did not answer: {error}"
                ) from error


def _receive(sock: socket.socket, size: int, deadline: Deadline) -> bytes:
    body = bytearray()
    while len(body) < size:
        sock.settimeout(deadline.remaining())
        chunk = sock.recv(min(size - len(body), READ_BYTES))
        if not chunk:
            raise MemoreeError(
                Code.TRANSPORT_ERROR, "the server closed the connection without an answer; it may be busy"
            )
        body += chunk
    return bytes(body)

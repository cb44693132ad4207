"""`POST /v1/call` over HTTP or HTTPS, with the standard library: a larger client takes longer to import than to use."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import urlsplit

from memoree import limits
from memoree.client.deadline import CONNECT_SECONDS_MAX, Deadline
from memoree.client.request import Outgoing, not_an_envelope
from memoree.errors import Code, MemoreeError, shown

CALL_PATH = "/v1/call"
READ_BYTES = 256 * limits.KIB


@contextmanager
def exchanging(host: str, port: int | None, *, tls: bool) -> Iterator[http.client.HTTPConnection]:
    """A connection for one exchange. What goes wrong on it is a `TRANSPORT_ERROR`."""
    connection: http.client.HTTPConnection
    if tls:
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(
            host, port, timeout=CONNECT_SECONDS_MAX, context=context, blocksize=READ_BYTES
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS_MAX, blocksize=READ_BYTES)
    try:
        yield connection
    except (OSError, http.client.HTTPException) as error:
        raise MemoreeError(Code.TRANSPORT_ERROR, _told(f"{connection.host}:{connection.port}", error)) from error
    finally:
        connection.close()


@contextmanager
def exchanging_at(url: str) -> Iterator[tuple[http.client.HTTPConnection, str]]:
    """As `exchanging`, and what to ask for there."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        raise MemoreeError(Code.TRANSPORT_ERROR, f"the server sends its clients on to {shown(url)}")
    with exchanging(parts.hostname, parts.port, tls=parts.scheme == "https") as connection:
        yield connection, parts.path + (f"?{parts.query}" if parts.query else "")


def _told(address: str, error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens at {address}; `memoree status` says whether a stack runs, and where"
    return f"the server at {address} did not answer: {str(error) or type(error).__name__}"


class HttpEndpoint:
    """One server. A token goes to the address it was meant for, and nowhere else: the one redirect that is followed is
    that to a large answer (docs/deploy-aws.md), and without it. `strong` reads look at head first."""

    strong = False

    def __init__(self, host: str, port: int | None, *, tls: bool, path: str = "", token: str | None = None) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._base = path.rstrip("/")
        self._token = token

    def exchange(self, request: Outgoing) -> bytes:
        return self.post(CALL_PATH, request.body)

    def post(self, path: str, body: bytes) -> bytes:
        """The JSON that the server answers to JSON. Raises `TRANSPORT_ERROR` when no such answer came."""
        with exchanging(self._host, self._port, tls=self._tls) as connection:
            return self._post(connection, self._base + path, body)

    def address_of(self, url: str) -> tuple[str, Mapping[str, str]]:
        """A URL that this server gave, absolute, and the headers it needs beside its own: the token goes to this server
        only. Raises `CONFIG_ERROR` where content would leave an encrypted connection for a plain one."""
        if url.startswith("/"):
            host = f"[{self._host}]" if ":" in self._host else self._host
            port = "" if self._port is None else f":{self._port}"
            authorization = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
            return f"http{'s' if self._tls else ''}://{host}{port}{self._base}{url}", authorization
        if self._tls and not url.startswith("https://"):
            raise MemoreeError(Code.CONFIG_ERROR, f"the server asks to send content in plain to {shown(url)}")
        return url, {}

    def _post(self, connection: http.client.HTTPConnection, path: str, body: bytes) -> bytes:
        deadline = Deadline()
        connection.connect()
        sock = connection.sock  # the connection forgets it once the response owns it
        sock.settimeout(deadline.remaining())
        connection.request("POST", path, body=body, headers=self._headers())
        response = connection.getresponse()
        if response.status == HTTPStatus.SEE_OTHER:
            return self._elsewhere(response.headers.get("Location", ""), deadline)
        return self._read(sock, response, deadline)

    def _elsewhere(self, url: str, deadline: Deadline) -> bytes:
        """A large answer, where the server left it. Raises as `post`."""
        with exchanging_at(self.address_of(url)[0]) as (connection, target):
            connection.connect()
            sock = connection.sock
            sock.settimeout(deadline.remaining())
            connection.request("GET", target)
            return self._read(sock, connection.getresponse(), deadline)

    def _read(self, sock: socket.socket, response: http.client.HTTPResponse, deadline: Deadline) -> bytes:
        answer = bytearray()
        while len(answer) <= limits.FRAME_BYTES_MAX:
            sock.settimeout(deadline.remaining())
            chunk = response.read1(READ_BYTES)
            if not chunk:
                return _checked(response, bytes(answer))
            answer += chunk
        raise MemoreeError(Code.TRANSPORT_ERROR, f"the answer has more than {limits.FRAME_BYTES_MAX} bytes")

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if self.strong:
            headers["Memoree-Consistency"] = "strong"
        return headers


def _checked(response: http.client.HTTPResponse, body: bytes) -> bytes:
    """The body, if it says that it is JSON; the page of a proxy does not."""
    if response.length:
        raise MemoreeError(Code.TRANSPORT_ERROR, f"the answer ended {response.length} bytes early")
    if response.headers.get_content_type() != "application/json":
        error = not_an_envelope(body)
        raise MemoreeError(error.code, f"HTTP status {response.status}: {error.message}")
    return body

"""`POST /v1/call` over HTTP or HTTPS, with the standard library: a larger client takes longer to import than to use."""

from __future__ import annotations

import http.client
import ssl

from memoree import limits
from memoree.client.deadline import CONNECT_SECONDS_MAX, Deadline
from memoree.client.request import Outgoing, not_an_envelope
from memoree.errors import Code, MemoreeError

CALL_PATH = "/v1/call"
READ_BYTES = 256 * limits.KIB


class HttpEndpoint:
    """One server. Redirects are not followed: a token goes to the address it was meant for, and nowhere else."""

    def __init__(self, host: str, port: int | None, *, tls: bool, path: str = "", token: str | None = None) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._path = path.rstrip("/") + CALL_PATH
        self._token = token

    def exchange(self, request: Outgoing) -> bytes:
        connection = self._connection()
        try:
            return self._exchange(connection, request)
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise MemoreeError(Code.TRANSPORT_ERROR, f"the server at {self._host} did not answer: {reason}") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_SECONDS_MAX, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS_MAX)

    def _exchange(self, connection: http.client.HTTPConnection, request: Outgoing) -> bytes:
        deadline = Deadline()
        connection.connect()
        sock = connection.sock  # the connection forgets it once the response owns it
        sock.settimeout(deadline.remaining())
        connection.request("POST", self._path, body=request.body, headers=self._headers())
        response = connection.getresponse()
        body = bytearray()
        while len(body) <= limits.FRAME_BYTES_MAX:
            sock.settimeout(deadline.remaining())
            chunk = response.read1(READ_BYTES)
            if not chunk:
                return _checked(response, bytes(body))
            body += chunk
        raise MemoreeError(Code.TRANSPORT_ERROR, f"the answer has more than {limits.FRAME_BYTES_MAX} bytes")

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers


def _checked(response: http.client.HTTPResponse, body: bytes) -> bytes:
    """The body, if it says that it is JSON; the page of a proxy does not."""
    if response.length:
        raise MemoreeError(Code.TRANSPORT_ERROR, f"the answer ended {response.length} bytes early")
    if response.headers.get_content_type() != "application/json":
        error = not_an_envelope(body)
        raise MemoreeError(error.code, f"HTTP status {response.status}: {error.message}")
    return body

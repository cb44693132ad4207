"""The client finds large answers of functions, and takes its token nowhere but to the server it is for."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from blake3 import blake3

from memoree.client.download import download
from memoree.client.http import HttpEndpoint
from memoree.errors import MemoreeError

Reply = tuple[int, str, bytes]
CONTENT = b"\x00large" * 1000


class Server(ThreadingHTTPServer):
    """Answers every request with one reply, and remembers what came."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply = reply
        self.asked: list[tuple[str, str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization")))
        status, header, body = self.server.reply
        self.send_response(status)
        self.send_header("Location" if status == 303 else "Content-Type", header)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""


@contextmanager
def serving(reply: Reply) -> Iterator[Server]:
    with Server(reply) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def endpoint(server: Server) -> HttpEndpoint:
    return HttpEndpoint("127.0.0.1", server.server_address[1], tls=False, token="secret")


@pytest.mark.proves("operations-66")
def test_a_large_answer_is_fetched_without_the_token() -> None:
    with serving((200, "application/json", b'{"ok":true}')) as store, serving((303, f"{store.url}/a?b=c", b"")) as api:
        assert endpoint(api).post("/v1/call", b"{}") == b'{"ok":true}'
    assert api.asked == [("POST", "/v1/call", "Bearer secret")]
    assert store.asked == [("GET", "/a?b=c", None)]


@pytest.mark.proves("operations-66")
def test_large_content_is_fetched_from_the_store_and_held_against_its_digest() -> None:
    record = {"artifact_id": "a", "revision_id": "r", "blob_hash": blake3(CONTENT).hexdigest()}
    with serving((200, "image/jpeg", CONTENT)) as store, serving((303, f"{store.url}/blob", b"")) as api:
        file = io.BytesIO()
        download(endpoint(api), record, file)
        assert file.getvalue() == CONTENT
        with pytest.raises(MemoreeError, match="not the one"):
            download(endpoint(api), record | {"blob_hash": "0" * 64}, io.BytesIO())
    assert [authorization for _, _, authorization in store.asked] == [None, None]


@pytest.mark.parametrize("location", ["", "ftp://elsewhere/x", "http:///x"])
def test_a_place_that_is_none_is_an_error_in_words(location: str) -> None:
    with serving((303, location, b"")) as api, pytest.raises(MemoreeError, match="sends its clients on to"):
        endpoint(api).post("/v1/call", b"{}")

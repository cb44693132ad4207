"""Where requests go, and what is made of the answers."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from memoree.client import operations
from memoree.client.endpoint import find_token
from memoree.errors import MemoreeError
from memoree.operations.registry import catalogue

from .conftest import Json, Shell, answering, respond

Handler = BaseHTTPRequestHandler


def success(request_id: str, **result: Any) -> bytes:
    return json.dumps({"v": 1, "request_id": request_id, "ok": True, "result": result, "warnings": []}).encode()


def failure(request_id: str, code: str) -> bytes:
    error = {"code": code, "message": "no", "retryable": code == "WRITE_PENDING", "details": None}
    return json.dumps({"v": 1, "request_id": request_id, "ok": False, "error": error, "warnings": []}).encode()


def always(status: int, body: bytes, content_type: str = "application/json") -> Callable[[Handler, bytes], None]:
    return lambda handler, _: respond(handler, status, content_type, body)


def test_the_client_knows_the_same_operations_as_the_catalogue() -> None:
    assert len(operations.NAMES) == 38
    assert set(catalogue()) <= operations.NAMES
    for name, operation in catalogue().items():
        assert operations.needs_context(name) is operation.needs_context, name
        assert operations.changes_store(name) is operation.side_effecting, name


def test_a_request_goes_to_the_call_route_with_its_token(shell: Shell, tmp_path: Path) -> None:
    seen: list[tuple[str, str | None, Json]] = []

    def echo(handler: Handler, body: bytes) -> None:
        seen.append((handler.path, handler.headers.get("Authorization"), json.loads(body)))
        respond(handler, 200, "application/json; charset=utf-8", success("req_test", answered=True))

    secret = tmp_path / "token"
    secret.write_text("from-file\n")
    with answering(echo) as url:
        assert shell.having(MEMOREE_ENDPOINT=f"{url}/base/").call("doctor").result == {"answered": True}
        assert shell.having(MEMOREE_TOKEN="from-env").call("doctor", None, "--endpoint", url).result
        assert (
            shell.having(MEMOREE_TOKEN="from-env")
            .call("doctor", None, "--endpoint", url, "--token-file", str(secret))
            .result
        )
    assert [(path, token) for path, token, _ in seen] == [
        ("/base/v1/call", None),
        ("/v1/call", "Bearer from-env"),
        ("/v1/call", "Bearer from-file"),
    ]
    assert seen[0][2] == {"request_id": "req_test", "op": "doctor", "input": {}}
    assert not shell.home.exists()


NO_ENVELOPES = {
    "the page of a proxy": always(502, b"<html>Bad gateway</html>", "text/html"),
    "an envelope that is no JSON by its type": always(200, success("req_test"), "text/plain"),
    "broken JSON": always(200, b"{"),
    "JSON that is no envelope": always(200, b'{"message":"Internal server error"}'),
    "an envelope of another version": always(200, success("req_test").replace(b'"v": 1', b'"v": 2')),
    "the answer to another request": always(200, success("req_other")),
    "a success without a result": always(200, b'{"v":1,"request_id":"req_test","ok":true,"warnings":[]}'),
    "a redirect": always(307, b""),
    "an answer that ends early": lambda handler, _: handler.wfile.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    ),
    "no answer": lambda handler, _: handler.connection.shutdown(socket.SHUT_RDWR),
}


@pytest.mark.parametrize("handle", NO_ENVELOPES.values(), ids=NO_ENVELOPES)
def test_anything_but_an_envelope_is_a_retryable_transport_error(
    shell: Shell, handle: Callable[[Handler, bytes], None]
) -> None:
    with answering(handle) as url:
        run = shell.call("doctor", None, "--endpoint", url)
    assert run.refused("TRANSPORT_ERROR", 1)["retryable"] is True
    assert run.envelope["request_id"] == "req_test"


def test_a_server_that_is_down_is_a_retryable_transport_error(project: Shell, tmp_path: Path) -> None:
    for address in ("http://127.0.0.1:9", f"unix://{tmp_path}/none.sock"):
        run = project.run("claim", "assert", "fact", "x", "--no-autostart", "--endpoint", address)
        assert run.refused("TRANSPORT_ERROR", 1)["retryable"] is True
    assert not project.home.exists()


@pytest.mark.parametrize(
    ("code", "status"), [("WRITE_PENDING", 1), ("UNAUTHENTICATED", 1), ("SOME_NEW_CODE", 1), ("NOT_FOUND", 3)]
)
def test_the_envelope_of_a_server_is_printed_as_it_is(shell: Shell, code: str, status: int) -> None:
    body = failure("req_test", code)
    with answering(always(202, body)) as url:
        run = shell.call("doctor", None, "--endpoint", url)
    assert (run.status, run.stdout) == (status, body + b"\n")


def test_a_refusal_before_reading_gets_the_id_of_the_request(shell: Shell) -> None:
    with answering(always(401, failure("req_transport", "UNAUTHENTICATED"))) as url:
        assert shell.call("doctor", None, "--endpoint", url).envelope["request_id"] == "req_test"


@pytest.mark.parametrize(
    "address",
    [
        "ftp://host",
        "localhost:80",
        "http://",
        "http://h:99999",
        "http://host/?q=1",
        "http://user:secret@host",
        "tcp://127.0.0.1:1",
        "unix://",
        "unix:relative",
        "unix://" + "s" * 108,
    ],
)
def test_an_address_of_another_kind_is_a_configuration_error(shell: Shell, address: str) -> None:
    error = shell.call("doctor", None, "--endpoint", address).refused("CONFIG_ERROR", 2)
    assert "secret" not in error["message"]


def test_a_tokens_file_of_one_token_serves_as_a_token_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text('{\n  "s3cret": {"tenant": "local", "scopes": ["recall"]}\n}\n')
    assert find_token(path) == "s3cret"


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        ('{"one": {}, "two": {}}', "holds 2 tokens"),
        ("{}", "holds 0 tokens"),
        ('{"sha256:ab": {}}', "holds the digest"),
        ('{"one": ', "not valid JSON"),
    ],
)
def test_a_tokens_file_that_does_not_say_which_token_is_refused(tmp_path: Path, tokens: str, reason: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(tokens)
    with pytest.raises(MemoreeError, match=reason) as caught:
        find_token(path)
    assert "one" not in caught.value.message.replace("the one to use", "")


def test_a_token_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(MemoreeError) as caught:
        find_token(tmp_path / "token")
    assert caught.value.message == f"the token file {tmp_path / 'token'} cannot be read: No such file or directory"


@pytest.mark.parametrize("token", [b"", b" \n", b"two words", b"\xff", b"x" * 9000])
def test_a_token_file_holds_exactly_one_token(shell: Shell, tmp_path: Path, token: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(token)
    line = ["--endpoint", "http://127.0.0.1:9", "--token-file", str(path)]
    shell.call("doctor", None, *line).refused("CONFIG_ERROR", 2)


# --- the framed transport ---------------------------------------------------------------------------------------


@contextmanager
def framed_server(path: Path, answer: bytes) -> Iterator[list[bytes]]:
    """Takes one connection, keeps the frame it got, sends bytes as they are and closes."""
    got: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as stream:
            (size,) = struct.unpack(">I", stream.read(4))
            got.append(stream.read(size))
            connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        thread = threading.Thread(target=serve)
        thread.start()
        yield got
        thread.join(30)


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def test_a_unix_address_speaks_frames(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with framed_server(path, framed(success("req_test", answered=True))) as got:
        assert shell.call("doctor", None, "--endpoint", f"unix://{path}").result == {"answered": True}
    assert json.loads(got[0])["op"] == "doctor"


@pytest.mark.parametrize(
    "answer", [b"", b"\0\0", framed(success("req_test"))[:-1], struct.pack(">I", 2**32 - 1), framed(b"{")]
)
def test_a_broken_frame_is_a_retryable_transport_error(shell: Shell, tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "s"
    with framed_server(path, answer):
        run = shell.call("doctor", None, "--endpoint", f"unix://{path}")
    assert run.refused("TRANSPORT_ERROR", 1)["retryable"] is True

"""`memoree artifact upload`: content that is too large for a request."""

from __future__ import annotations

import json
import urllib.request
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from memoree import limits
from memoree.cli.files import materialized
from memoree.client.download import download
from memoree.client.http import HttpEndpoint
from memoree.errors import MemoreeError

from .conftest import Json, Shell, answering, respond
from .test_serve import serving

Handler = BaseHTTPRequestHandler
CUT = b""
"""For a connection that ends before the content does."""
UPLOAD_ID = "upl_01M8PVKAFTXJPBWHQYHMGZTQAT"


class Deployment:
    """A service that takes uploads, or says why not: what it is asked for, in order."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.seen: list[tuple[str, str, str | None, bytes]] = []

    def __call__(self, handler: Handler, body: bytes) -> None:
        self.seen.append((handler.command, handler.path, handler.headers.get("Authorization"), body))
        if handler.command == "PUT":
            status, told = self.answers.get("put", (204, b""))
            respond(handler, status, "application/xml", told)
        elif handler.path.endswith("/uploads"):
            ticket = {"upload_id": UPLOAD_ID, "url": f"/v1/artifacts/uploads/{UPLOAD_ID}/content", "headers": {}}
            declared = self.answers.get("declare", ticket)
            respond(handler, 201, "application/json", json.dumps(declared).encode())
        else:
            answer = self.answers.get("call", [{"ok": True, "result": {"artifact_id": "art_1"}}])
            told = answer.pop(0) if len(answer) > 1 else answer[0]
            request_id = json.loads(body)["request_id"]
            envelope = {"v": 1, "request_id": request_id, "warnings": []} | told
            respond(handler, 200, "application/json", json.dumps(envelope).encode())


def refusal(code: str, **more: Any) -> Json:
    return {"ok": False, "error": {"code": code, "message": "no", "retryable": False, "details": None} | more}


@pytest.fixture
def film(project: Shell) -> Path:
    path = project.cwd / "film.mp4"
    path.write_bytes(b"frame " * 100)
    return path


def test_a_large_file_is_stored_and_served_but_not_in_an_envelope(project: Shell) -> None:
    log = project.cwd / "log.txt"
    log.write_bytes(b"cone 6\n" * (limits.ARTIFACT_BYTES_MAX // 7 + 1))
    with serving(project, "--port", "0") as address:
        remote = project.having(MEMOREE_ENDPOINT=f"http://{address}", MEMOREE_ACTOR="potter")
        remote.run("artifact", "put", log).refused("CONTENT_TOO_LARGE", 2)
        made = remote.run("artifact", "upload", log, "--kind", "log", "--title", "Kiln log").result
        assert (made["title"], made["kind"], made["media_type"]) == ("Kiln log", "log", "text/plain")
        assert (made["provenance"], made["actor"]) == ({"source": str(log)}, "potter")
        assert (made["size_bytes"], made["blob_hash"]) == (log.stat().st_size, blake3(log.read_bytes()).hexdigest())
        name, revision = made["artifact_id"], made["revision_id"]
        content = f"http://{address}/v1/artifacts/{name}/revisions/{revision}/content"
        with urllib.request.urlopen(content, timeout=60) as answer:
            assert answer.read() == log.read_bytes()
        assert "content" not in remote.run("artifact", "get", name, "--metadata-only").result
        copy = project.cwd / "copy.txt"
        fetched = remote.run("artifact", "get", f"{name}@{revision}", "--output", copy).result
        assert (fetched["materialized_path"], fetched["blob_hash"]) == (str(copy), made["blob_hash"])
        assert copy.read_bytes() == log.read_bytes()
        remote.run("artifact", "get", name, "--output", copy).refused("INVALID_REQUEST", 2)
        remote.run("artifact", "get", name).refused("CONTENT_TOO_LARGE", 2)
        error = remote.run("citation", "get", f"memoree://artifact/{name}@{revision}#0-6").refused("CITATION_ERROR", 2)
        assert error["details"]["citation_error"] == "non_text_content"
        assert error["details"]["total_byte_count"] == made["size_bytes"]


def test_a_file_is_declared_sent_and_named(project: Shell, film: Path) -> None:
    service = Deployment()
    with answering(service) as url:
        run = project.having(MEMOREE_TOKEN="secret").run("artifact", "upload", film, "--endpoint", f"{url}/base")
    assert run.result == {"artifact_id": "art_1"}
    declare, put, call = service.seen
    assert declare[:3] == ("POST", "/base/v1/artifacts/uploads", "Bearer secret")
    assert json.loads(declare[3]) == {"size_bytes": 600, "blob_hash": blake3(film.read_bytes()).hexdigest()}
    assert put == ("PUT", f"/base/v1/artifacts/uploads/{UPLOAD_ID}/content", "Bearer secret", film.read_bytes())
    request = json.loads(call[3])
    assert (request["op"], request["idempotency_key"]) == ("artifact.put", f"auto_{request['request_id']}")
    assert request["input"] == {
        "kind": "document",
        "title": str(film),
        "media_type": "video/mp4",
        "content": {"type": "upload", "upload_id": UPLOAD_ID},
        "provenance": {"source": str(film)},
    }


def test_the_token_goes_to_the_server_and_not_to_its_store(project: Shell, film: Path) -> None:
    store = Deployment()
    with answering(store) as elsewhere:
        ticket = {"upload_id": UPLOAD_ID, "url": f"{elsewhere}/bucket/key?signed=1", "headers": {"X-Signed": "1"}}
        service = Deployment(declare=ticket)
        with answering(service) as url:
            assert project.having(MEMOREE_TOKEN="secret").run("artifact", "upload", film, "--endpoint", url).result
    assert store.seen == [("PUT", "/bucket/key?signed=1", None, film.read_bytes())]
    assert [entry[0] for entry in service.seen] == ["POST", "POST"]


def test_a_pending_outcome_is_asked_for_by_the_identical_request(project: Shell, film: Path) -> None:
    service = Deployment(call=[refusal("WRITE_PENDING"), {"ok": True, "result": {"artifact_id": "art_1"}}])
    with answering(service) as url:
        assert project.run("artifact", "upload", film, "--endpoint", url).result == {"artifact_id": "art_1"}
    first, second = (entry[3] for entry in service.seen if entry[1] == "/v1/call")
    assert first == second
    assert sum(entry[0] == "PUT" for entry in service.seen) == 1


@pytest.mark.parametrize(
    ("answers", "code", "status"),
    [
        ({"declare": refusal("FORBIDDEN")}, "FORBIDDEN", 1),
        ({"declare": refusal("NEW_CODE")}, "TRANSPORT_ERROR", 1),
        ({"declare": {"ok": True}}, "TRANSPORT_ERROR", 1),
        ({"declare": {"upload_id": UPLOAD_ID, "url": "file:///etc/passwd"}}, "TRANSPORT_ERROR", 1),
        ({"put": (403, b"<Error>AccessDenied</Error>")}, "TRANSPORT_ERROR", 1),
        ({"put": (302, b"")}, "TRANSPORT_ERROR", 1),
        ({"put": (400, json.dumps(refusal("INVALID_REQUEST")).encode())}, "INVALID_REQUEST", 2),
    ],
    ids=str,
)
def test_content_that_is_not_taken_is_not_named(
    project: Shell, film: Path, answers: Json, code: str, status: int
) -> None:
    service = Deployment(**answers)
    with answering(service) as url:
        project.run("artifact", "upload", film, "--endpoint", url).refused(code, status)
    assert all(path != "/v1/call" for _, path, *_ in service.seen)


def test_what_cannot_be_uploaded_is_refused_before_anything_is_sent(shell: Shell, project: Shell, film: Path) -> None:
    service = Deployment()
    empty = project.cwd / "empty"
    empty.touch()
    with answering(service) as url:
        project.run("artifact", "upload", film).refused("CONFIG_ERROR", 2)
        project.run("artifact", "upload", film, "--endpoint", "unix:///nowhere").refused("CONFIG_ERROR", 2)
        project.run("artifact", "upload", empty, "--endpoint", url).refused("INVALID_REQUEST", 2)
        project.run("artifact", "upload", project.cwd, "--endpoint", url).refused("INVALID_REQUEST", 2)
        project.run("artifact", "upload", "missing", "--endpoint", url).refused("INVALID_REQUEST", 2)
        shell.run("artifact", "upload", film, "--endpoint", url).refused("NO_AMBIENT_CONTEXT", 5)
    assert service.seen == []


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ((200, b"frame frame"), "INTEGRITY_ERROR"),
        ((200, b"frame"), "INTEGRITY_ERROR"),
        ((200, CUT), "TRANSPORT_ERROR"),
        ((503, b"busy"), "TRANSPORT_ERROR"),
        ((403, json.dumps(refusal("FORBIDDEN")).encode()), "FORBIDDEN"),
    ],
    ids=["other bytes", "too few bytes", "an early end", "the page of a proxy", "a refusal"],
)
def test_content_that_is_not_what_the_record_says_makes_no_file(
    tmp_path: Path, answer: tuple[int, bytes], code: str
) -> None:
    record = {"artifact_id": "art/1", "revision_id": "arev 1", "blob_hash": blake3(b"frame frame ").hexdigest()}
    seen: list[tuple[str, str | None]] = []

    def give(handler: Handler, _: bytes) -> None:
        seen.append((handler.path, handler.headers.get("Authorization")))
        if answer[1] == CUT:
            handler.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 12\r\n\r\nframe ")
        else:
            respond(handler, answer[0], "text/plain", answer[1])

    with answering(give) as url:
        port = int(url.rpartition(":")[2])
        endpoint = HttpEndpoint("127.0.0.1", port, tls=False, path="/base", token="secret")
        with pytest.raises(MemoreeError) as caught:
            materialized({}, lambda file: download(endpoint, record, file), tmp_path / "copy", replace=False)
    assert caught.value.code == code
    assert seen == [("/base/v1/artifacts/art%2F1/revisions/arev%201/content", "Bearer secret")]
    assert list(tmp_path.iterdir()) == []

"""The program as its users run it: a real process, a home of its own, a directory to stand in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from memoree.cli.commands import run
from memoree.cli.invocation import Invocation
from memoree.cli.main import guarded

Json = dict[str, Any]

PROGRAM = Path(sys.executable).with_name("memoree")
RUN_SECONDS_MAX = 60.0
CONTEXT: Json = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}


@dataclass(frozen=True)
class Run:
    """What a process left behind."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def envelope(self) -> Json:
        """Standard output, which must be exactly one JSON document and a newline."""
        assert self.stdout.endswith(b"\n"), self
        answer: Json = json.loads(self.stdout)
        assert answer["v"] == 1
        assert isinstance(answer["warnings"], list)
        if not answer["ok"]:
            assert not {"context", "commit_seq", "result"} & set(answer)
            assert "details" in answer["error"]
        return answer

    @property
    def result(self) -> Json:
        envelope = self.envelope
        assert envelope["ok"], f"refused: {envelope['error']}"
        assert self.status == 0
        result: Json = envelope["result"]
        return result

    def refused(self, code: str, status: int) -> Json:
        """The `error` of a failure with this code and exit status."""
        envelope = self.envelope
        assert not envelope["ok"], envelope
        error: Json = envelope["error"]
        assert error["code"] == code, error
        assert self.status == status
        return error


@dataclass(frozen=True)
class Shell:
    """Where commands are run."""

    home: Path
    cwd: Path
    variables: dict[str, str] = field(default_factory=dict)

    def at(self, cwd: Path) -> Shell:
        return replace(self, cwd=cwd)

    def having(self, **variables: str) -> Shell:
        return replace(self, variables={**self.variables, **variables})

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MEMOREE_")}
        return {**inherited, "MEMOREE_HOME": str(self.home), **self.variables}

    def run(self, *arguments: str | Path, stdin: bytes = b"") -> Run:
        done = subprocess.run(
            [PROGRAM, *arguments],
            input=stdin,
            capture_output=True,
            cwd=self.cwd,
            env=self.environment,
            timeout=RUN_SECONDS_MAX,
        )
        return Run(done.returncode, done.stdout, done.stderr.decode())

    def call(self, op: str, given: Any = None, *options: str, **members: Any) -> Run:
        """`memoree call` with a request built around an operation."""
        request = {"request_id": "req_test", "op": op, "input": {} if given is None else given, **members}
        return self.run("call", *options, stdin=json.dumps(request).encode())


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Outside any project."""
    cwd = tmp_path / "elsewhere"
    cwd.mkdir()
    return Shell(tmp_path / "home", cwd)


@pytest.fixture
def project(shell: Shell) -> Shell:
    """Inside a project, chosen by the session variable."""
    return shell.having(MEMOREE_CONTEXT=json.dumps(CONTEXT))


@pytest.fixture
def inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., Run]:
    """The command line in this process, in a project: for what does not need a process of its own."""
    for name in [name for name in os.environ if name.startswith("MEMOREE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MEMOREE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MEMOREE_CONTEXT", json.dumps(CONTEXT))
    monkeypatch.chdir(tmp_path)

    def run_line(*line: str) -> Run:
        status = guarded(lambda invocation: run(line, invocation), Invocation())
        printed = capsysbinary.readouterr()
        return Run(status, printed.out, printed.err.decode())

    return run_line


@contextmanager
def answering(handle: Callable[[BaseHTTPRequestHandler, bytes], None]) -> Iterator[str]:
    """An HTTP server on a free port whose answers a test makes up; gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            handle(self, self.rfile.read(int(self.headers["Content-Length"])))

        do_PUT = do_POST

        def do_GET(self) -> None:
            handle(self, b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def respond(handler: BaseHTTPRequestHandler, status: int, content_type: str, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", content_type)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)

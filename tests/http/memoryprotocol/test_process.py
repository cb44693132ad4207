"""`memoree serve` as a process of its own: where it listens, how it stops, whose pages may ask (contract §1)."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from http_support import DEADLINE_SECONDS, wait_for, write_tokens

from .conftest import OpenProtocol
from .protocol import ABSENT, Protocol

PROGRAM = "from memoree.cli.main import main; main()"
SLOW = """
import sys, time
from memoree.embedded import EmbeddedService

read = EmbeddedService.answer

def slowly(service, request, stop=None):
    if request.call.operation.name == "episode.recall":
        sys.stderr.write("SERVING\\n")
        sys.stderr.flush()
        time.sleep(1.5)
    return read(service, request, stop)

EmbeddedService.answer = slowly
"""
START_SECONDS_MAX = 10.0
GRACE_SECONDS = 30.0


class Served:
    """One process; its standard error line by line, read by a thread so that waiting for it has an end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._coming: queue.Queue[str | None] = queue.Queue()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._coming.put(line.rstrip("\n"))
        self._coming.put(None)

    def line(self, beginning: str, seconds: float = DEADLINE_SECONDS) -> str:
        """The next line that begins so."""
        deadline = time.monotonic() + seconds
        while (line := self._next(max(0.0, deadline - time.monotonic()))) is not None:
            self.lines.append(line)
            if line.startswith(beginning):
                return line
        raise AssertionError(f"it did not say {beginning} within {seconds:g} s: {self.lines}")

    def _next(self, seconds: float) -> str | None:
        """The next line; `None` after the last one, or when none comes in that time."""
        try:
            return self._coming.get(timeout=seconds)
        except queue.Empty:
            return None

    def rest(self) -> list[str]:
        """All it said until its end."""
        while (line := self._next(DEADLINE_SECONDS)) is not None:
            self.lines.append(line)
        return self.lines

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def served(directory: Path, *options: str, before: str = "", **variables: str) -> Iterator[Served]:
    arguments = [sys.executable, "-c", before + PROGRAM, "serve", "--data", str(directory), "--port", "0", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMOREE_")} | variables
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, env=environment, text=True, bufsize=1)
    server = Served(process)
    try:
        yield server
    finally:
        server.end()


def address_in(line: str) -> str:
    return f"http://{line.removeprefix('LISTENING_ON ')}"


@pytest.mark.proves("memoryprotocol-101")
def test_a_process_on_any_free_port_says_which_and_answers_there(tmp_path: Path) -> None:
    with served(tmp_path / "store") as server:
        url = address_in(server.line("LISTENING_ON 127.0.0.1:", START_SECONDS_MAX))
        assert (urlsplit(url).port or 0) > 0
        assert httpx.get(f"{url}/healthz", trust_env=False).json().get("ok") is True
        server.process.send_signal(signal.SIGTERM)
        assert sum(line.startswith("LISTENING_ON") for line in server.rest()) == 1


@pytest.mark.proves("memoryprotocol-102")
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_a_process_that_is_to_stop_answers_what_it_began_and_exits_with_0(tmp_path: Path, accept: str) -> None:
    with served(tmp_path / "store", before=SLOW) as server:
        url = address_in(server.line("LISTENING_ON "))
        caller = Protocol(url)
        caller.ingest("cone 6 reached at 21:40")
        answers: list[httpx.Response] = []
        asking = threading.Thread(
            target=lambda: answers.append(
                caller.http.post("/v1/recall", json={"query": "cone"}, headers={"Accept": accept})
            )
        )
        asking.start()
        server.line("SERVING")
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: is_refused(url), "the end of new connections")
        assert answers == [], "it was still at work"
        asking.join(DEADLINE_SECONDS)
        assert [(answer.status_code, "cone 6 reached" in answer.text) for answer in answers] == [(200, True)]
        assert server.process.wait(GRACE_SECONDS) == 0
        caller.close()


def is_refused(url: str) -> bool:
    try:
        httpx.get(f"{url}/livez", trust_env=False)
    except httpx.ConnectError:
        return True
    except httpx.TransportError:
        return False  # it was accepted when the server closed its doors
    return False


def preflight(url: str, origin: str, path: str = "/v1/recall") -> httpx.Response:
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    return httpx.options(f"{url}{path}", headers=asked, trust_env=False)


def allowed_origin(response: httpx.Response) -> str | None:
    return response.headers.get("access-control-allow-origin")


@pytest.mark.proves("memoryprotocol-104")
def test_a_preflight_is_answered_by_origin(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens.json", {"tok": {"tenant": "local", "scopes": ["recall"]}})
    with served(tmp_path / "store", "--tokens", str(tokens), "--cors-origins", "https://a.example") as server:
        url = address_in(server.line("LISTENING_ON "))
        allowed = preflight(url, "https://a.example")
        assert (allowed.status_code, allowed_origin(allowed)) == (200, "https://a.example")
        assert "POST" in allowed.headers.get("access-control-allow-methods", "")
        assert "authorization" in allowed.headers.get("access-control-allow-headers", "")
        other = preflight(url, "https://b.example")
        assert (other.status_code, allowed_origin(other)) == (400, None)
        asked = httpx.post(f"{url}/v1/recall", headers={"Origin": "https://a.example"}, trust_env=False)
        assert (asked.status_code, allowed_origin(asked)) == (401, "https://a.example")
        exposed = asked.headers.get("access-control-expose-headers", "")
        assert "X-Request-Id" in exposed and "Memoree-Commit-Seq" in exposed


@pytest.mark.proves("memoryprotocol-104")
def test_a_preflight_spends_nothing(open_protocol: OpenProtocol) -> None:
    slow = {"rate_per_second": 1, "rate_burst": 2000, "processes": 1000}
    caller = open_protocol(cors_origins=("https://a.example",), **slow)("tok-a")
    for origin in ("https://a.example", "https://b.example") * 5:
        preflight(str(caller.http.base_url).rstrip("/"), origin)
    assert [caller.get(ABSENT).status_code for _ in range(3)] == [404, 404, 429]


@pytest.mark.proves("memoryprotocol-97")
@pytest.mark.parametrize(
    ("options", "variables"),
    [(["--metrics-disabled"], {}), ([], {"MEMOREE_METRICS": "false"})],
    ids=["flag", "variable"],
)
def test_metrics_are_switched_off_at_the_start(tmp_path: Path, options: list[str], variables: dict[str, str]) -> None:
    with served(tmp_path / "store", *options, **variables) as server:
        url = address_in(server.line("LISTENING_ON "))
        response = httpx.get(f"{url}/metrics", trust_env=False)
        assert (response.status_code, response.text) == (404, "metrics disabled at startup via --metrics-disabled")

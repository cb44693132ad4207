"""A page of another origin reads a recall as it comes: `fetch` in a real browser, headless.

The page tells what it sees to the server that it came from, and is asked for nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from isolation.serving import serving, write_tokens
from memoree.http.app import create_app
from memoree.http.memoryprotocol import sse
from memoree.http.settings import HttpSettings
from memoree.service import Check, Reply, Request, read_reply

BROWSER = shutil.which("chromium-headless-shell")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium-headless-shell: run scripts/install-browser")

TOKEN = "tok-browser"
SEEN_SECONDS_MAX = 40.0
"""Of a browser that starts on a busy machine."""
KEEP_ALIVE_SECONDS = 0.1

PAGE = """<!doctype html><script>
const tell = what => fetch("/seen", {method: "POST", body: JSON.stringify(what)});
const leave = new AbortController();
const asked = {
  method: "POST", signal: leave.signal, body: JSON.stringify({query: "kiln"}),
  headers: {"Authorization": "Bearer %(token)s", "Accept": "text/event-stream", "Content-Type": "application/json"},
};
(async () => {
  const answer = await fetch("%(api)s/v1/recall", asked);
  const names = ["content-type", "memoree-commit-seq", "x-request-id"];
  await tell({status: answer.status, headers: names.map(name => answer.headers.get(name))});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return await tell({ended: true});
    await tell({read: value});
    if (%(impatient)s) { leave.abort(); return await tell({left: true}); }
  }
})().catch(error => tell({failed: String(error)}));
</script>
"""


class Patient:
    """A service whose reads wait until they are let go; it knows how many of them there are."""

    def __init__(self) -> None:
        self.under_way = 0
        self.given_up = threading.Event()
        self._let_go: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def call(self, tenant: str, request: Request, *, wait_seconds: float = 10.0, strong: bool = False) -> Reply:
        self._loop, self._let_go = asyncio.get_running_loop(), asyncio.Event()
        self.under_way += 1
        try:
            await self._let_go.wait()
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        finally:
            self.under_way -= 1
        return read_reply(request.call, {"hits": [{"text": "cone 6"}, {"text": "cone 7"}], "degraded": False}, 7)

    def let_go(self) -> None:
        assert self._loop is not None and self._let_go is not None, "nothing was asked"
        self._loop.call_soon_threadsafe(self._let_go.set)

    def granted(self, tenant: str) -> None:
        """No quota."""

    async def queue_lag(self, tenant: str) -> bool:
        return False

    async def readiness(self) -> list[Check]:
        return []

    async def close(self) -> None: ...


class Site:
    """Where a page comes from, and where it tells what it sees."""

    def __init__(self) -> None:
        self.page = b""
        self._seen: queue.Queue[Any] = queue.Queue()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(site.page)

            def do_POST(self) -> None:
                site._seen.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self.server.server_port}"

    def next_seen(self) -> Any:
        try:
            return self._seen.get(timeout=SEEN_SECONDS_MAX)
        except queue.Empty:
            pytest.fail("the page told nothing")

    def sees(self, last: str) -> list[Any]:
        """What the page tells until it tells that."""
        seen = [self.next_seen()]
        while last not in seen[-1]:
            assert "failed" not in seen[-1], seen
            seen.append(self.next_seen())
        return seen

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.server.serve_forever, name="page server")
        thread.start()
        try:
            yield
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()


@contextmanager
def browsing(url: str, profile: Path) -> Iterator[None]:
    """A browser that shows the page until the block ends."""
    assert BROWSER is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"]
    process = subprocess.Popen(
        [BROWSER, *options, f"--user-data-dir={profile}", url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the program is a script, and the browser its child
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def service() -> Patient:
    return Patient()


@pytest.fixture
def site() -> Iterator[Site]:
    opened = Site()
    with opened.running():
        yield opened


@pytest.fixture
def show(service: Patient, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Show the page in a browser until the end of the test; `origins` are those that the service lets read."""
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", KEEP_ALIVE_SECONDS)
    tokens = write_tokens(tmp_path / "tokens.json", {TOKEN: {"tenant": "A", "scopes": ["recall"]}})
    with ExitStack() as opened:

        def shown(*, origins: tuple[str, ...], impatient: bool = False) -> None:
            made: Any = create_app(service, HttpSettings(tokens_file=tokens, cors_origins=origins))
            api = opened.enter_context(serving(made))
            site.page = (PAGE % {"api": api, "token": TOKEN, "impatient": json.dumps(impatient)}).encode()
            opened.enter_context(browsing(site.origin, tmp_path / "profile"))

        yield shown


@pytest.mark.proves("isolation-11", "memoryprotocol-52")
@pytest.mark.fault_class(59)
def test_a_page_of_another_origin_reads_what_comes_when_it_comes(service: Patient, site: Site, show: Any) -> None:
    show(origins=(site.origin,))
    begun = site.sees("read")
    assert begun[0]["status"] == 200
    assert begun[0]["headers"][0].startswith("text/event-stream")
    assert begun[0]["headers"][1] is None or begun[0]["headers"][1] == "7"
    assert begun[0]["headers"][2], "an exposed header"
    assert begun[-1]["read"].startswith(": "), "a comment is read while the work goes on"
    assert service.under_way == 1

    service.let_go()
    rest = "".join(each.get("read", "") for each in (*begun, *site.sees("ended")))
    frames = [frame for frame in rest.split("\n\n") if frame and not frame.startswith(":")]
    assert [frame.split("\n")[0] for frame in frames] == ["event: hit", "event: hit", "event: done"]
    assert [json.loads(frame.split("\n")[1].removeprefix("data: ")).get("text") for frame in frames[:2]] == [
        "cone 6",
        "cone 7",
    ]


@pytest.mark.proves("isolation-12", "memoryprotocol-54")
def test_a_page_that_gives_up_ends_the_work(service: Patient, site: Site, show: Any) -> None:
    show(origins=("*",), impatient=True)
    site.sees("left")
    assert service.given_up.wait(SEEN_SECONDS_MAX), "the work goes on for nobody"
    assert service.under_way == 0


@pytest.mark.proves("isolation-11")
def test_a_page_of_an_origin_that_is_not_allowed_reads_nothing(service: Patient, site: Site, show: Any) -> None:
    show(origins=("https://a.example",))
    assert "failed" in site.next_seen()
    assert service.under_way == 0, "the preflight was refused before anything was asked"

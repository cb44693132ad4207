"""The HTTP application under its real server, in a thread of this process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from starlette.applications import Starlette

from memoree.http.server import HttpServer, address_of, listen

START_SECONDS_MAX = 60.0
"""On a busy machine."""


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """On a free port; yields its base URL."""
    listener = listen("127.0.0.1", 0)
    server = HttpServer(app, listener)
    thread = threading.Thread(target=server.run, name="http server")
    thread.start()
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not server.started:
            assert thread.is_alive() and time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)
        yield f"http://{address_of(listener)}"
    finally:
        server.stop()
        thread.join(START_SECONDS_MAX)
        assert not thread.is_alive(), "the server did not stop"


def write_tokens(path: Path, entries: Mapping[str, object]) -> Path:
    path.write_text(json.dumps(entries))
    path.chmod(0o600)
    return path

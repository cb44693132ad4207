"""A real SeaweedFS for tests: one per test process, on loopback, killed at the end.

Use the fixture from a folder's `conftest.py`:

    from stack_support import seaweedfs  # noqa: F401

and give every test keys of its own (`unique_prefix`), since the bucket is shared.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from memoree.objects.s3 import S3Settings
from memoree.stack.seaweedfs import SeaweedServer

R = TypeVar("R")

START_SECONDS_MAX = 60.0


class BackgroundLoop:
    """An event loop in a thread, for what must outlive the `asyncio.run` of a single test."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stack support", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(START_SECONDS_MAX)

    def close(self) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS_MAX)
        self._loop.close()


@contextlib.contextmanager
def running_server(directory: Path, *, bucket: str = "memoree") -> Iterator[SeaweedServer]:
    """A started server in `directory`, killed (SIGKILL) on leaving."""
    loop = BackgroundLoop()
    server = SeaweedServer(directory, bucket=bucket)
    try:
        loop.run(server.start())
        yield server
    finally:
        loop.run(server.kill())
        loop.close()


@contextlib.contextmanager
def running_seaweedfs(directory: Path, *, bucket: str = "memoree") -> Iterator[S3Settings]:
    """What to connect with to a server that runs inside the `with` block."""
    with running_server(directory, bucket=bucket) as server:
        yield server.settings


_shared: SeaweedServer | None = None


def _shared_server(request: pytest.FixtureRequest, directories: pytest.TempPathFactory) -> SeaweedServer:
    global _shared
    if _shared is None:
        running = contextlib.ExitStack()
        _shared = running.enter_context(running_server(directories.mktemp("seaweedfs")))
        request.session.addfinalizer(running.close)
    return _shared


@pytest.fixture(scope="session")
def seaweedfs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> S3Settings:
    """What to connect with to the test process's own server, which all importing folders share."""
    return _shared_server(request, tmp_path_factory).settings


@pytest.fixture(scope="session")
def seaweed_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SeaweedServer:
    """That server itself. Do not stop it."""
    return _shared_server(request, tmp_path_factory)


def unique_prefix() -> str:
    """A key prefix nobody else uses, ending in `/`: a tenant of the test's own."""
    return f"tenants/{uuid.uuid4().hex}/"

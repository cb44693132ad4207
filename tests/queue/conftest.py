"""The queues under test: a SQLite file, and ministack as a child process from its own virtual environment."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from memoree.queue import RECEIVE_COUNT_MAX, CommandQueue
from memoree.queue.sqlite import SqliteQueue
from memoree.queue.sqs import SqsEndpoint, SqsQueue
from memoree.queue.sqs_setup import ensure_queues

ROOT = Path(__file__).parents[2]
MINISTACK_START_SECONDS_MAX = 30.0

T = TypeVar("T")


class Backend(Protocol):
    """Makes queues of one kind. Each test has a new one, and may open it several times."""

    async def open(self, *, receive_count_max: int = RECEIVE_COUNT_MAX) -> CommandQueue: ...


class SqliteBackend:
    def __init__(self, path: Path) -> None:
        self.path = path

    async def open(self, *, receive_count_max: int = RECEIVE_COUNT_MAX) -> CommandQueue:
        return SqliteQueue(self.path, receive_count_max=receive_count_max)


class SqsBackend:
    def __init__(self, endpoint: SqsEndpoint) -> None:
        self.endpoint = endpoint
        self.name = f"commands-{uuid.uuid4().hex[:12]}"

    async def open(self, *, receive_count_max: int = RECEIVE_COUNT_MAX) -> CommandQueue:
        urls = await ensure_queues(self.name, endpoint=self.endpoint, receive_count_max=receive_count_max)
        return SqsQueue(urls.url, urls.dead_letter_url, endpoint=self.endpoint)


@pytest.fixture(
    params=["sqlite", pytest.param("sqs", marks=pytest.mark.xdist_group("ministack"))],
)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "queue.db")
    return SqsBackend(request.getfixturevalue("sqs_endpoint"))


@pytest.fixture
def with_queue(backend: Backend) -> Callable[..., None]:
    """Runs a scenario, an async function of an open queue."""

    def run(scenario: Callable[[CommandQueue], Awaitable[None]], **options: int) -> None:
        async def opened() -> None:
            queue = await backend.open(**options)
            try:
                await scenario(queue)
            finally:
                await queue.close()

        asyncio.run(opened())

    return run


@pytest.fixture(scope="session")
def sqs_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsEndpoint]:
    """A ministack of this test process."""
    install_ministack(tmp_path_factory.getbasetemp().parent / "install-ministack.lock")
    port = free_port()
    home = tmp_path_factory.mktemp("ministack")
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [ROOT / ".venv-ministack/bin/python", "-m", "ministack"],
            cwd=home,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "TMPDIR": str(home),
                "BIND_HOST": "127.0.0.1",
                "GATEWAY_PORT": str(port),
                "SERVICES": "sqs",
                "LOG_LEVEL": "WARNING",
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for_port(port, process, home / "log")
        yield SqsEndpoint(
            endpoint_url=f"http://127.0.0.1:{port}",
            region="us-east-1",
            access_key_id="test",
            secret_access_key="test",
        )
    finally:
        process.kill()
        process.wait()


def install_ministack(lock: Path) -> None:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        subprocess.run([ROOT / "scripts/install-ministack"], check=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + MINISTACK_START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"ministack did not start:\n{log.read_text()}")

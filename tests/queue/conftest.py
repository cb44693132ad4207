"""The queues under test: a SQLite file, and ministack as a child process from its own virtual environment."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from sqlite_support import ManualClock

from memoree.queue import RECEIVE_COUNT_MAX, CommandQueue
from memoree.queue.sqlite import SqliteQueue
from memoree.queue.sqs import SqsEndpoint, SqsQueue
from memoree.queue.sqs_setup import ensure_queues
from ministack_support import install_ministack, running_ministack

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
    with running_ministack(tmp_path_factory.mktemp("ministack")) as endpoint:
        yield endpoint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()

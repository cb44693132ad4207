"""The ingest queue of a real deployment, whose processes are killed under load."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from faults.site import Site, Writer, child_pids
from memoree.assembly import ingestion
from memoree.database import sources
from memoree.ids import new_ulid
from memoree.ingest.ingestion import Ingestion
from memoree.ingest.message import (
    Checkpoint,
    Ingest,
    IngestMessage,
    InlineContent,
    MessageContext,
    Register,
    SourceReference,
)
from memoree.jobs.replicated import ReplicatedTenancy
from memoree.objects.s3 import S3Settings
from memoree.owner import Owner
from memoree.settings import StackSettings
from stack_support import seaweedfs  # noqa: F401 - a fixture

pytestmark = pytest.mark.stack

CONTEXT = MessageContext(workspace_id="wsp_e2e", project_id="prj_ingest")
SOURCES = ("alpha", "beta", "gamma")
ROUNDS = 10
ROUNDS_OF_A_NIGHT = 59
ITEMS = 5
DRAINED_SECONDS_MAX = 90.0
PAUSE_SECONDS = 0.3
PAUSE_BEFORE_KILL_SECONDS = (0.5, 2.0)


class Deployment:
    """A writer, a worker of the ingest queue, and a tenant that nobody wrote to before."""

    def __init__(self, directory: Path, s3: S3Settings) -> None:
        self.tokens = directory / "tokens.json"
        overrides = {
            "ingest_queue_url": f"sqlite://{directory / 'ingest.sqlite3'}",
            "ingest_visibility_seconds": 1.0,
        }
        self.site = Site(directory, s3, overrides)
        self.tokens.touch(mode=0o600)
        self.tokens.write_text(f'{{"{new_ulid() * 2}": {{"tenant": "{self.tenant}", "scopes": ["ingest"]}}}}')
        self.log = directory / "ingest.log"

    @property
    def tenant(self) -> str:
        return self.site.tenant

    @property
    def settings(self) -> StackSettings:
        return self.site.settings

    @contextlib.contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """The worker's process, killed on leaving."""
        values = self.settings.model_dump(exclude_none=True) | {"secret_access_key": self.site.s3.secret_access_key}
        settings = {f"MEMOREE_{name.upper()}": _text(value) for name, value in values.items()}
        settings["MEMOREE_TOKENS_FILE"] = str(self.tokens)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "memoree.stack.processes", "ingest"],
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait(10)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Ingestion]:
        async with ingestion(self.settings) as found:
            yield found

    def message(self, source: str) -> dict[str, Any]:
        return {
            "tenant": self.tenant,
            "source": SourceReference(system="e2e", name=source),
            "context": CONTEXT,
        }

    def item(self, source: str, number: int, round_: int, **changes: Any) -> Ingest:
        given = {
            "external_id": f"item-{number}",
            "external_revision": f"v{round_}",
            "kind": "document",
            "title": f"Item {number}",
            "content": InlineContent.of(f"{source}, item {number}, round {round_}".encode()),
            "observed_at": f"2026-03-02T20:{round_:02}:00Z",
        }
        return Ingest(**{**self.message(source), **given, **changes})


@pytest.fixture
def deployment(tmp_path: Path, seaweedfs: S3Settings) -> Deployment:  # noqa: F811 - the fixture
    return Deployment(tmp_path, seaweedfs)


@pytest.mark.proves("operations-47")
@pytest.mark.fault_class(11)
@pytest.mark.timeout(240)
def test_whoever_is_killed_under_load_every_message_is_applied_once_or_told(deployment: Deployment) -> None:
    asyncio.run(_load_and_kill(deployment, ROUNDS))


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_long_load_under_kills(deployment: Deployment) -> None:
    asyncio.run(_load_and_kill(deployment, ROUNDS_OF_A_NIGHT))


async def _load_and_kill(deployment: Deployment, rounds: int) -> None:
    """SIGKILL to the worker, the writer or its Litestream child, again and again while messages come in."""
    dice = random.Random()
    async with deployment.opened() as opened:
        loading = asyncio.create_task(_load(deployment, opened, rounds))
        with contextlib.ExitStack() as writers, contextlib.ExitStack() as workers:
            writer = writers.enter_context(deployment.site.writer())
            workers.enter_context(deployment.worker())
            while not loading.done():
                await asyncio.sleep(dice.uniform(*PAUSE_BEFORE_KILL_SECONDS))
                match dice.choice(("worker", "writer", "litestream")):
                    case "worker":
                        workers.close()
                        workers.enter_context(deployment.worker())
                    case "writer":
                        writers.close()
                        writer = writers.enter_context(deployment.site.writer())
                    case _:
                        _kill_litestream(writer)
            await loading
            await _drained(opened)
            await _check(deployment, opened, rounds)


async def _load(deployment: Deployment, opened: Ingestion, rounds: int) -> None:
    """Every item of every source in every round; in each round one message that cannot be applied."""
    await opened.publisher.publish([Register(**deployment.message(source)) for source in SOURCES])
    for round_ in range(rounds):
        messages: list[IngestMessage] = [
            deployment.item(source, number, round_) for source in SOURCES for number in range(ITEMS)
        ]
        messages.append(deployment.item("alpha", 0, round_, kind="another", observed_at="2026-03-02T19:00:00Z"))
        for source in SOURCES:
            instant = f"2026-03-02T20:{round_:02}:30Z"
            messages.append(Checkpoint(**deployment.message(source), cursor=f"round-{round_}", observed_at=instant))
        await opened.publisher.publish(messages)
        await asyncio.sleep(PAUSE_SECONDS)


def _kill_litestream(writer: Writer) -> None:
    for pid in child_pids(writer.process.pid)[:1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def _drained(opened: Ingestion) -> None:
    deadline = time.monotonic() + DRAINED_SECONDS_MAX
    while (stats := await opened.queue.stats()).waiting + stats.in_flight:
        assert time.monotonic() < deadline, f"the queue does not drain: {stats}"
        await asyncio.sleep(0.05)


async def _check(deployment: Deployment, opened: Ingestion, rounds: int) -> None:
    tenancy = opened.worker.site.tenancy(deployment.tenant)
    assert isinstance(tenancy, ReplicatedTenancy)
    (found, cursors), meta = await tenancy.snapshot(_items)
    assert found == {(source, f"item-{number}", f"v{rounds - 1}") for source in SOURCES for number in range(ITEMS)}
    assert cursors == dict.fromkeys(SOURCES, f"round-{rounds - 1}")
    letters = [letter async for letter in opened.dead.letters()]
    assert {letter.code for letter in letters} == {"REVISION_CONFLICT"}
    assert sorted(letter.summary()["external_revision"] for letter in letters) == sorted(
        f"v{round_}" for round_ in range(rounds)
    )
    applied = len(SOURCES) * (1 + rounds * (ITEMS + 1))
    assert meta.commit_seq == applied, "each exactly once"


def _items(db: apsw.Connection) -> tuple[set[tuple[str, str, str]], dict[str, str | None]]:
    owner = Owner(CONTEXT.workspace_id, CONTEXT.project_id, None, None)
    found, cursors = set(), {}
    for name in SOURCES:
        source_id = sources.named(db, owner, name)
        source = sources.find(db, source_id) if source_id is not None else None
        assert source is not None, f"source {name} is not registered"
        cursors[name] = source.cursor
        items = (sources.find_item(db, source, f"item-{number}") for number in range(ITEMS))
        found |= {(name, item.external_id, item.external_revision) for item in items if item is not None}
    return found, cursors


def _text(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)

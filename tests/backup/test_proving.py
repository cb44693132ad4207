"""A large copy is proved by a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from memoree.backup import proving
from memoree.backup.checkpoint import take
from memoree.database import meta
from memoree.database.connection import open_reader
from memoree.database.meta import Meta
from memoree.errors import Code, MemoreeError

from .workshop import Workshop

END_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Copied:
    database: Path
    seen: Meta


@pytest.fixture
def copied(filled: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copied:
    """A copy that counts as large, and the counters of what it was made from."""
    monkeypatch.setattr(proving, "APART_BYTES_MIN", 1)
    database = tmp_path / "copy.db"
    with closing(open_reader(filled.database, immutable=False)) as db:
        take(db, database)
        return Copied(database, meta.read(db))


async def prove(database: Path, seen: Meta) -> None:
    """Of a copy that is made already."""
    copied: asyncio.Future[Meta] = asyncio.get_running_loop().create_future()
    copied.set_result(seen)
    await proving.prove(database, proving.APART_BYTES_MIN, copied)


def children() -> set[int]:
    text = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return {int(pid) for pid in text.split()}


@pytest.mark.proves("operations-17")
def test_a_large_copy_is_proved_and_backed_up_as_any_other(copied: Copied, filled: Workshop) -> None:
    asyncio.run(prove(copied.database, copied.seen))
    assert filled.back_up().commit_seq == copied.seen.commit_seq


@pytest.mark.proves("operations-17", "machine-215")
def test_what_the_process_finds_is_told_as_it_is(copied: Copied) -> None:
    with pytest.raises(MemoreeError, match="the snapshot at") as found:
        asyncio.run(prove(copied.database, replace(copied.seen, commit_seq=copied.seen.commit_seq + 1)))
    assert found.value.code is Code.INTEGRITY_ERROR


def test_the_process_starts_while_the_copy_is_made(copied: Copied) -> None:
    async def early() -> None:
        before = children()
        made: asyncio.Future[Meta] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(proving.prove(copied.database, proving.APART_BYTES_MIN, made))
        while not children() - before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        made.set_result(copied.seen)
        await running

    asyncio.run(early())


def test_a_process_that_ends_without_a_verdict_proves_nothing(copied: Copied) -> None:
    with pytest.raises(MemoreeError, match="could not be proved: status 1") as found:
        asyncio.run(prove(copied.database.parent, copied.seen))  # a directory, and no database
    assert found.value.code is Code.INTERNAL_ERROR


def test_a_killed_process_proves_nothing(copied: Copied) -> None:
    async def killed() -> None:
        before = children()
        running = asyncio.create_task(prove(copied.database, copied.seen))
        while not (started := children() - before):  # noqa: ASYNC110 - the kernel tells
            await asyncio.sleep(0.01)
        for pid in started:
            os.kill(pid, signal.SIGKILL)
        await running

    with pytest.raises(MemoreeError, match="could not be proved: status -9"):
        asyncio.run(killed())


def test_nobody_reads_on_for_a_backup_that_was_cancelled(copied: Copied) -> None:
    async def cancelled() -> None:
        before = children()
        running = asyncio.create_task(prove(copied.database, copied.seen))
        while not children() - before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()
        assert children() - before == set()

    began = time.monotonic()
    asyncio.run(cancelled())
    assert time.monotonic() - began < END_SECONDS_MAX

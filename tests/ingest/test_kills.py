"""A message that kills whoever applies it ends in the dead letters, and takes nobody with it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memoree import limits

from .conftest import OpenBench, checkpoint, item, register

WORKER = Path(__file__).with_name("killed_worker.py")
INNOCENTS = 12


@pytest.mark.fault_class(4)
@pytest.mark.proves("fault-4", "operations-49")
def test_a_message_that_kills_its_worker_is_given_up_and_nothing_else(open_bench: OpenBench, tmp_path: Path) -> None:
    async def publish() -> None:
        async with open_bench() as bench:
            innocents = [item(f"innocent-{number}") for number in range(INNOCENTS)]
            await bench.publish(register(), *innocents[:6], item("killer"), *innocents[6:], checkpoint("c-1"))

    async def look() -> None:
        async with open_bench() as bench:
            [letter] = await bench.letters()
            assert letter.summary()["external_id"] == "killer"
            assert letter.tries == limits.INGEST_TRIES_MAX
            assert "the process that applied it ended" in letter.reason
            assert all(bench.item(f"innocent-{number}") is not None for number in range(INNOCENTS))
            assert bench.source is not None and bench.source.cursor == "c-1"
            assert bench.commit_seq == INNOCENTS + 2, "each was applied exactly once"

    asyncio.run(publish())
    statuses = [run(tmp_path / "store") for _ in range(limits.INGEST_TRIES_MAX + 2)]
    assert statuses == [-signal.SIGKILL] * (limits.INGEST_TRIES_MAX + 1) + [0]
    asyncio.run(look())


def run(store: Path) -> int:
    return subprocess.run([sys.executable, str(WORKER), str(store)], check=False, timeout=60).returncode

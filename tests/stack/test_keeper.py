"""Children are started again whenever they end, and whatever keeps them from starting."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from memoree.stack import keeper as keeper_module
from memoree.stack.child import Child
from memoree.stack.keeper import Keeper

FOREVER = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
FAILING = [sys.executable, "-S", "-c", "print('what went wrong'); raise SystemExit(3)"]


async def until(reached: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


class Bench:
    def __init__(self, directory: Path, argv: Sequence[str]) -> None:
        self.said: list[str] = []
        self.started = 0
        self.keeper = Keeper(
            "child",
            argv,
            environment=os.environ,
            directory=directory,
            log_path=directory / "child.log",
            say=self.said.append,
            started=self._count,
        )

    def _count(self) -> None:
        self.started += 1


def test_a_child_that_was_killed_is_started_again_and_said_so(tmp_path: Path) -> None:
    async def run() -> None:
        bench = Bench(tmp_path, FOREVER)
        await until(lambda: bench.started == 1)
        first = bench.keeper.pid
        assert first is not None
        os.killpg(first, signal.SIGKILL)
        await until(lambda: bench.started == 2)
        assert bench.keeper.pid not in (None, first)
        assert "the child ended with status" in bench.said[0]
        await bench.keeper.stop(1.0)
        assert bench.keeper.pid is None

    asyncio.run(run())


def test_a_child_that_always_fails_is_started_ever_more_slowly_and_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "RESTART_SECONDS_MIN", 0.01)

    async def run() -> None:
        bench = Bench(tmp_path, FAILING)
        await until(lambda: len(bench.said) == 4)
        assert [line.split(" in ")[1].split("\n")[0] for line in bench.said] == ["0.0 s", "0.0 s", "0.0 s", "0.1 s"]
        assert "status 3" in bench.said[0] and "what went wrong" in bench.said[0]
        await bench.keeper.stop(1.0)

    asyncio.run(run())


@pytest.mark.fault_class(2)
def test_a_child_that_cannot_even_be_started_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, faults = Child.start, [OSError(11, "Resource temporarily unavailable")] * 2

    async def scarce(*arguments: Any, **how: Any) -> Child:
        if faults:
            raise faults.pop()
        return await start(*arguments, **how)

    monkeypatch.setattr(Child, "start", scarce)
    monkeypatch.setattr(keeper_module, "RESTART_SECONDS_MIN", 0.01)

    async def run() -> None:
        bench = Bench(tmp_path, FOREVER)
        await until(lambda: bench.started == 1)
        assert len(bench.said) == 2 and "could not be kept running" in bench.said[0]
        await bench.keeper.stop(1.0)

    asyncio.run(run())


def test_a_child_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )

    async def run() -> None:
        bench = Bench(tmp_path, [sys.executable, "-S", "-c", deaf])
        await until(lambda: bench.keeper.last_lines == ["deaf"])
        pid = bench.keeper.pid
        await bench.keeper.stop(0.1)
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(run())

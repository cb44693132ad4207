"""How long a container takes to import its handler, and what it imports."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS = 4
SECONDS_MAX = {"api": 0.7, "writer": 0.45, "ingest": 0.45, "backup": 0.45, "verify": 0.45, "gc": 0.45}
"""The promise, on a machine of its own. Here others run as well, so that the yardstick runs beside it."""
YARDSTICK = "asyncio, json, email.message, http.client, logging, decimal, concurrent.futures, argparse, unittest"
YARDSTICK_SECONDS = 0.06
"""What that took where the promise was measured."""
BESIDE_OTHERS = 1.3
"""Other tests run on the same cores and push each other's memory out of their caches."""
NOWHERE = {"boto3", "uvicorn", "memoree.cli.main", "memoree.stack.seaweedfs"}
NOT_IN = {
    "api": {"memoree.writer.worker", "memoree.jobs"},
    "writer": {"starlette", "mangum", "memoree.http.app", "memoree.reader.service", "memoree.jobs"},
    "ingest": {"mangum", "memoree.http.app", "memoree.writer.worker"},
    "backup": {"mangum", "memoree.http.app"},
    "verify": {"mangum", "memoree.http.app"},
    "gc": {"mangum", "memoree.http.app"},
}


@dataclass(frozen=True)
class Import:
    """`seconds` are of CPU, the least of a few fresh interpreters."""

    seconds: float
    modules: frozenset[str]


def imported(names: str) -> Import:
    code = (
        f"import sys, time; began = time.process_time(); import {names}; "
        "print(time.process_time() - began, *sys.modules)"
    )
    command = [sys.executable, "-c", code]
    runs = [subprocess.check_output(command, cwd=ROOT, text=True).split() for _ in range(RUNS)]
    return Import(min(float(seconds) for seconds, *_ in runs), frozenset(runs[0][1:]))


@pytest.fixture(scope="module")
def yardstick() -> float:
    return imported(YARDSTICK).seconds


@pytest.mark.proves("operations-62")
@pytest.mark.parametrize("name", SECONDS_MAX)
def test_a_handler_is_imported_in_time_and_without_what_it_does_not_need(name: str, yardstick: float) -> None:
    found = imported(f"functions.{name}.handler")
    slower = BESIDE_OTHERS * max(1.0, yardstick / YARDSTICK_SECONDS)
    assert found.seconds <= SECONDS_MAX[name] * slower, f"the yardstick took {yardstick:.3f} s"
    assert f"functions.{name}.handler" in found.modules
    assert found.modules & (NOWHERE | NOT_IN[name]) == set()

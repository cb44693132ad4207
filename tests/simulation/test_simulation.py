"""The commit protocol in a world where everything goes wrong that may, judged after every step (docs/simulation.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from planted.table import ROOT
from simulation.litestream import Habits
from simulation.plan import Plan
from simulation.run import quiet_collector, run_seed, scratch_root
from simulation.store import Weather

SEEDS = range(1, 121)
SEEDS_AT_A_TIME = 20
FOCUSED_SEEDS = range(1, 25)
NIGHTLY_SEEDS = range(1, 10_001)
TRACED_SEEDS = (3, 40)
"""A short one and a long one."""

protocol = pytest.mark.proves("fault-43", "fault-44", "fault-47", "operations-2", "operations-3")


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with TemporaryDirectory(prefix="simulation-", dir=scratch_root()) as directory, quiet_collector():
        yield Path(directory)


@protocol
@pytest.mark.fault_class(43)
@pytest.mark.fault_class(44)
@pytest.mark.fault_class(45)
@pytest.mark.fault_class(47)
@pytest.mark.parametrize("first", SEEDS[::SEEDS_AT_A_TIME])
def test_every_invariant_holds_after_every_step(first: int, scratch: Path) -> None:
    for seed in range(first, first + SEEDS_AT_A_TIME):
        run_seed(seed, scratch)


def rivals_at_birth(plan: Plan) -> Plan:
    return replace(plan, is_born=True, writers=2, disasters=2, callbacks_between=30, weather=Weather(late=0.15))


def rivals_over_one_tenant(plan: Plan) -> Plan:
    return replace(plan, writers=2, disasters=3, callbacks_between=60, weather=Weather(answer_lost=0.04, late=0.04))


def uploads_that_nobody_covered(plan: Plan) -> Plan:
    habits = Habits(own_change=0.5, compaction=0.9, ambiguous=0.2, orphan_seconds_max=15.0)
    return replace(plan, disasters=4, at_head_share=0.9, api_deaths=3, callbacks_between=60, habits=habits)


def garbage_that_is_wanted_again(plan: Plan) -> Plan:
    return replace(
        plan, collects=True, clients=2, writes_per_client=4, thinking_seconds=1.0, clock_offset_seconds_max=5
    )


def many_who_write_and_look(plan: Plan) -> Plan:
    return replace(
        plan, apis=1, clients=3, writes_per_client=8, thinking_seconds=0.0, disasters=0, weather=Weather(slow=0.1)
    )


def a_head_that_vanishes(plan: Plan) -> Plan:
    return replace(plan, loses_head=True, disasters=0)


@protocol
@pytest.mark.fault_class(47)
@pytest.mark.parametrize(
    "focus",
    [
        rivals_at_birth,
        rivals_over_one_tenant,
        uploads_that_nobody_covered,
        garbage_that_is_wanted_again,
        many_who_write_and_look,
        a_head_that_vanishes,
    ],
    ids=lambda focus: focus.__name__,
)
def test_every_invariant_holds_among(focus: Callable[[Plan], Plan], scratch: Path) -> None:
    for seed in FOCUSED_SEEDS:
        run_seed(seed, scratch, focus=focus)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_every_invariant_holds_in_ten_thousand_runs(scratch: Path) -> None:
    for seed in NIGHTLY_SEEDS:
        run_seed(seed, scratch)


@pytest.mark.proves("operations-1")
@pytest.mark.parametrize("seed", TRACED_SEEDS)
def test_one_seed_gives_one_trace_byte_for_byte(seed: int, scratch: Path) -> None:
    here = run_seed(seed, scratch, keep_trace=True).trace
    again = run_seed(seed, scratch, keep_trace=True).trace
    elsewhere = subprocess.run(
        [sys.executable, "-m", "simulation.main", "--seed", str(seed), "--trace"],
        env={**os.environ, "PYTHONHASHSEED": "11", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert here == again
    assert here == elsewhere.stdout.splitlines()[:-1]
    assert len(here) > 100


def test_another_seed_is_another_run(scratch: Path) -> None:
    first, second = (run_seed(seed, scratch, keep_trace=True).trace for seed in TRACED_SEEDS)
    assert first != second

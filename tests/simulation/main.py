"""Simulated runs of the commit protocol by the thousand, or one with its trace. See `scripts/simulate --help`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from planted.table import FAULTS, ROOT, SHARED, read_faults
from simulation.run import SeedFailed, quiet_collector, run_seed, scratch_root

SEEDS = "1..10000"
CHUNK_SEEDS = 50
OWN_FAULTS = FAULTS / "simulation.toml"


@dataclass(frozen=True, slots=True)
class Tally:
    """What some runs amounted to."""

    seeds: int
    epochs: int
    commits: int
    virtual_seconds: float
    failed: Sequence[tuple[int, str]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", default=SEEDS, metavar="A..B", help=f"run these, both included (default {SEEDS})")
    parser.add_argument("--seed", type=int, help="run only this one")
    parser.add_argument("--trace", action="store_true", help="show all that happened in the one run")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at once (default: one per core)")
    parser.add_argument("--keep-going", action="store_true", help="run all seeds, also after one that failed")
    parser.add_argument(
        "--planted",
        nargs="*",
        metavar="ID",
        help="plant the faults of tests/planted/faults/simulation.toml, or these, and tell which seed finds each",
    )
    asked = parser.parse_args()
    first, last = (asked.seed, asked.seed) if asked.seed is not None else _range(asked.seeds)
    if asked.planted is not None:
        return _plant(asked.planted, first, last, asked.processes)
    if asked.seed is not None:
        return _one(asked.seed, trace=asked.trace)
    return _many(first, last, asked.processes, keep_going=asked.keep_going)


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("..")
    return int(first), int(last or first)


def _one(seed: int, *, trace: bool) -> int:
    with _scratch() as scratch:
        try:
            lines, verdict = run_seed(seed, scratch, keep_trace=trace).trace, f"seed {seed} is sound"
        except SeedFailed as failed:
            lines, verdict = failed.trace, str(failed)
    print(*lines, verdict, sep="\n")
    return 0 if verdict.endswith("is sound") else 1


def _many(first: int, last: int, processes: int, *, keep_going: bool) -> int:
    began = time.monotonic()
    chunks = [range(start, min(start + CHUNK_SEEDS, last + 1)) for start in range(first, last + 1, CHUNK_SEEDS)]
    seeds = epochs = commits = 0
    virtual_seconds, failed = 0.0, 0
    with ProcessPoolExecutor(processes) as pool:
        for tally in pool.map(partial(_chunk, keep_going=keep_going), chunks):
            seeds, epochs, commits = seeds + tally.seeds, epochs + tally.epochs, commits + tally.commits
            virtual_seconds += tally.virtual_seconds
            for _, what in tally.failed:
                failed += 1
                print(what, flush=True)
            if failed and not keep_going:
                pool.shutdown(cancel_futures=True)
                break
    print(
        f"{seeds} seeds, {failed} failed: {epochs} epochs, {commits} commits, {virtual_seconds / 3600:.1f} hours of "
        f"virtual time in {time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


def _chunk(seeds: range, *, keep_going: bool) -> Tally:
    epochs = commits = 0
    virtual_seconds, failed = 0.0, []
    with _scratch() as scratch, quiet_collector():
        for seed in seeds:
            try:
                outcome = run_seed(seed, scratch)
            except SeedFailed as error:
                failed.append((seed, str(error)))
                if not keep_going:
                    break
            else:
                epochs, commits = epochs + outcome.epochs, commits + outcome.commits
                virtual_seconds += outcome.virtual_seconds
    return Tally(len(seeds), epochs, commits, virtual_seconds, failed)


def _plant(ids: Sequence[str], first: int, last: int, processes: int) -> int:
    """Each fault in a copy of the package, until a seed finds it."""
    survived = 0
    for fault in read_faults():
        if f'id = "{fault.id}"' not in OWN_FAULTS.read_text(encoding="utf-8") or (ids and fault.id not in ids):
            continue
        with tempfile.TemporaryDirectory(prefix="simulate-") as directory:
            copy = Path(directory) / "shared"
            shutil.copytree(SHARED, copy)
            fault.plant(copy)
            done = subprocess.run(
                [sys.executable, "-m", "simulation.main", f"--seeds={first}..{last}", f"--processes={processes}"],
                env={**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{ROOT / 'tests'}"},
                capture_output=True,
                text=True,
            )
        survived += done.returncode == 0
        found = (done.stdout or done.stderr[-1000:]).splitlines()[0] if done.returncode else "SURVIVED"
        print(f"{fault.id:50} {found[:200]}", flush=True)
    return 1 if survived else 0


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=scratch_root()) as directory:
        yield Path(directory)


if __name__ == "__main__":
    sys.exit(main())

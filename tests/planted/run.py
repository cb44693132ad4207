"""Plant every fault of the table, one at a time, in a copy of the package, and see which tests notice.

For each fault exactly the tests run whose `proves` marker names an assertion it breaks; for each of these assertions
at least one test must fail, by a judgement of its own and not by falling over. The same tests must pass where nothing
is planted. Exits 1 when a fault survives, or when a proving test fails under no fault at all.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from conformance import collect
from planted.table import PACKAGE, ROOT, SHARED, Fault, read_faults

TESTS = ROOT / "tests"
LEFT_OUT = ("tests/faults/",)
"""Tests that kill real processes and take minutes; only faults that ask for the stack run them."""
SELECTED = {"quick": "not stack and not nightly", "stack": "not nightly", "nightly": ""}
"""Pytest's markers by what a fault says of its tests."""
PROCESSES = 2
RUN_SECONDS_MAX = 600.0
TEST_SECONDS_MAX = 60


@dataclass(frozen=True)
class Outcome:
    """What became of the tests of some assertions: per assertion the test functions that failed by judgement and those
    that passed; and those that fell over, with how."""

    caught: Mapping[str, Sequence[str]]
    passed: Mapping[str, Sequence[str]]
    crashed: Mapping[str, str]


@dataclass(frozen=True)
class Bed:
    """Where faults are planted: a copy of `shared` made at the start, so that edits meanwhile change nothing, and the
    test files that prove each assertion."""

    shared: Path
    files: Mapping[str, Sequence[str]]

    def run(self, keys: Iterable[str], fault: Fault | None = None, *, tests: str = "quick") -> Outcome:
        """Run the proving tests of that kind against a fresh copy. Raises `RuntimeError` when pytest could not run."""
        wanted = sorted(keys)
        with tempfile.TemporaryDirectory(prefix="planted-") as directory:
            copy, report = Path(directory) / "shared", Path(directory) / "report.json"
            shutil.copytree(self.shared, copy)
            if fault is not None:
                fault.plant(copy)
            done = subprocess.run(
                self._command(wanted, copy, report, tests),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{TESTS}"},
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS_MAX,
            )
            if not report.exists():
                name = fault.id if fault else "nothing planted"
                raise RuntimeError(f"{name}: pytest could not run:\n{done.stdout}\n{done.stderr}")
            return Outcome(**json.loads(report.read_text(encoding="utf-8")))

    def _command(self, keys: Sequence[str], copy: Path, report: Path, tests: str) -> list[str]:
        left_out = LEFT_OUT if tests == "quick" else ()
        proving = {file for key in keys for file in self.files.get(key, ())}
        files = sorted(file for file in proving if not file.startswith(left_out))
        options = ["-p", "planted.plugin", "-p", "no:cacheprovider", "--tb=short", f"--timeout={TEST_SECONDS_MAX}"]
        planted = [f"--proving={','.join(keys)}", f"--package-in={copy}", f"--report={report}"]
        return [sys.executable, "-m", "pytest", *options, "-m", SELECTED[tests], *planted, *files]


def proving_files() -> dict[str, list[str]]:
    """Assertion keys to the files with tests that prove them."""
    return {key: sorted({test.partition("::")[0] for test in tests}) for key, tests in collect().items()}


def chosen(faults: Sequence[Fault], only: Sequence[str]) -> Sequence[Fault]:
    """Raises `SystemExit` for an id that no fault has."""
    if unknown := set(only) - {fault.id for fault in faults}:
        sys.exit(f"no such fault: {', '.join(sorted(unknown))}")
    return [fault for fault in faults if not only or fault.id in only]


def survived(fault: Fault, outcome: Outcome) -> list[str]:
    """The assertions whose tests all overlooked the fault."""
    return [key for key in fault.breaks if not outcome.caught.get(key)]


def show(fault: Fault, outcome: Outcome) -> None:
    lost = survived(fault, outcome)
    print(f"{'SURVIVED' if lost else 'caught':9} {fault.id}", flush=True)
    for key in fault.breaks:
        tests = outcome.caught.get(key, ())
        print(f"          {key:12} {len(tests)} of {len(tests) + len(outcome.passed.get(key, ()))} tests failed")
    if lost:
        for test, how in outcome.crashed.items():
            print(f"          fell over: {test}: {how}")


def untested_tests(outcomes: Iterable[Outcome], sound: Iterable[Outcome]) -> list[str]:
    """Proving tests that no planted fault made fail: what they would notice, nobody has seen."""
    failed: defaultdict[str, set[str]] = defaultdict(set)
    for outcome in outcomes:
        for key, tests in outcome.caught.items():
            failed[key].update(tests)
    passed = {(key, test) for each in sound for key, tests in each.passed.items() for test in tests}
    return [f"{key} {test}" for key, test in sorted(passed) if test not in failed[key]]


def plant_all(faults: Sequence[Fault], processes: int, *, complete: bool) -> int:
    """Returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="planted-bed-") as directory:
        shared = Path(directory) / "shared"
        shutil.copytree(SHARED, shared)
        assert (shared / PACKAGE / "__init__.py").exists()
        bed = Bed(shared, proving_files())
        with ThreadPoolExecutor(processes) as pool:
            baselines = [
                pool.submit(
                    bed.run, {key for fault in faults if fault.tests == tests for key in fault.breaks}, tests=tests
                )
                for tests in dict.fromkeys(fault.tests for fault in faults)
            ]
            running = [(fault, pool.submit(bed.run, fault.breaks, fault, tests=fault.tests)) for fault in faults]
            outcomes = []
            for fault, future in running:
                outcomes.append((fault, future.result()))
                show(*outcomes[-1])
            sound = [baseline.result() for baseline in baselines]
    broken = sorted(
        {test for each in sound for tests in each.caught.values() for test in tests}
        | {test for each in sound for test in each.crashed}
    )
    lost = [f"{key} {fault.id}" for fault, outcome in outcomes for key in survived(fault, outcome)]
    idle = untested_tests([outcome for _, outcome in outcomes], sound) if complete else []
    for title, lines in (
        ("These tests fail where nothing is planted:", broken),
        ("These faults were overlooked by every test of the assertion:", lost),
        ("These tests failed under no fault:", idle),
    ):
        if lines:
            print(title, *lines, sep="\n  ")
    print(f"{len(faults)} faults planted, {len({line.split()[1] for line in lost})} survived")
    return 1 if broken or lost or idle else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/planted", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="plant only this one; repeatable")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="pytest processes at once (%(default)s)")
    options = parser.parse_args(arguments)
    faults = chosen(read_faults(), options.only)
    return plant_all(faults, options.processes, complete=not options.only)


if __name__ == "__main__":
    sys.exit(main())

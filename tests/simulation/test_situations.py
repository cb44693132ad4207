"""The runs meet what they are for: a simulation in which nothing dangerous happens proves nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from simulation.run import quiet_collector, run_seed, scratch_root
from simulation.test_simulation import garbage_that_is_wanted_again

SEEDS = range(1001, 1061)
COLLECTING_SEEDS = range(1001, 1011)
KEPT_COMMITS = "a takeover keeps commits that no head had covered"
_HEAD_REFUSED = re.compile(r"(writer\d+) +PUT \S+head\.json -> PreconditionFailed 412")
_UPLOAD = re.compile(r"(writer\d+)\.ls +PUT ")
_DISASTER = re.compile(r"(writer\d+) +is (killed|thawed)$")
_EVERYWHERE = {
    "head moved, and the answer is lost": r"PUT \S+head\.json \(nobody hears",
    "a writer is refused because another one moved head": r"writer\d+ +PUT \S+head\.json -> PreconditionFailed 412",
    "a head that was given up for lost arrives late": r"head\.json.* \(nobody hears",
    "a file vanishes while a reader wants it": r"api\d+ +GET \S+\.ltx -> ObjectMissing",
    "raw change files are compacted": r"\.ls +PUT \S+/000[12]/",
    "an acknowledgement is not heard": r"writer\d+ +ACK \S+ \(nobody hears",
    "a command is tried again": r"PUT \S+/tries/",
    "a client hears nothing in time": r"WRITE_PENDING",
    "a message is given back": r"HIDE \S+ 0\.",
    "the collector deletes a blob": r"DELETE \S+/blobs/",
}


@pytest.mark.proves("fault-47")
@pytest.mark.fault_class(47)
def test_the_runs_meet_every_danger() -> None:
    met: Counter[str] = Counter()
    with TemporaryDirectory(prefix="simulation-", dir=scratch_root()) as directory, quiet_collector():
        runs = [partial(run_seed, seed) for seed in SEEDS]
        runs += [partial(run_seed, seed, focus=garbage_that_is_wanted_again) for seed in COLLECTING_SEEDS]
        for run in runs:
            outcome = run(Path(directory), keep_trace=True)
            met.update(_situations(outcome.trace))
            met[KEPT_COMMITS] += outcome.kept
    wanted = {*_EVERYWHERE, KEPT_COMMITS, "killed, and its child uploads", "thawed, and refused"}
    assert wanted - {name for name, times in met.items() if times} == set()


def _situations(trace: Sequence[str]) -> Iterator[str]:
    whole = "\n".join(trace)
    yield from (name for name, pattern in _EVERYWHERE.items() if re.search(pattern, whole))
    fate: dict[str, str] = {}
    for line in trace:
        if found := _DISASTER.search(line):
            fate[found[1]] = found[2]
        elif (found := _UPLOAD.search(line)) and fate.get(found[1]) == "killed":
            yield "killed, and its child uploads"
        elif (found := _HEAD_REFUSED.search(line)) and fate.get(found[1]) == "thawed":
            yield "thawed, and refused"

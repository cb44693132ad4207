"""Everything at once, for as long as it is told to: no acknowledged write is lost or doubled, no number is missing, no
tenant sees another's rows."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from e2e.deployment import deployment
from faults.checker import Checker
from faults.site import Site
from faults.storm import Storm

MINUTES_DEFAULT = 3.0
CLIENTS = 32
TENANTS = ("north", "south", "west")
STORE_FREE_SECONDS = 60.0


@pytest.mark.nightly
@pytest.mark.stack
@pytest.mark.timeout(24 * 3600)
@pytest.mark.proves("operations-4")
@pytest.mark.fault_class(44)
def test_a_storm_loses_doubles_and_mixes_up_nothing(tmp_path: Path) -> None:
    minutes = float(os.environ.get("MEMOREE_STORM_MINUTES") or MINUTES_DEFAULT)
    seed = int(os.environ.get("MEMOREE_TORTURE_SEED") or random.randrange(2**32))
    print(f"\nto repeat this storm: scripts/torture --minutes {minutes:g} --seed {seed}", flush=True)
    with deployment(tmp_path / "stack") as stack:
        stack.use_tokens(TENANTS)
        stack.start("--api-processes", "2")
        storm = Storm(stack, TENANTS, random.Random(seed), tmp_path)
        began = time.monotonic()
        storm.rage(minutes * 60, clients=CLIENTS)
        stack.wait_until_ready()
        _report(storm, time.monotonic() - began)
        for tenant in TENANTS:
            Checker(Site(tmp_path, stack.s3, tenant=tenant), tmp_path).check(storm.acknowledged)


def _report(storm: Storm, seconds: float) -> None:
    epochs = {
        tenant: Checker(Site(storm.directory, storm.stack.s3, tenant=tenant), storm.directory).head()["epoch"]
        for tenant in storm.tenants
    }
    print(f"{seconds:.0f} s, {len(storm.acknowledged)} acknowledged writes, takeovers {sum(epochs.values())}: {epochs}")
    for what, times in storm.counts.most_common():
        print(f"  {times:6} {what}")

"""The contract suite, unchanged, through the HTTP door of a running stack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.deployment import Deployment

pytestmark = pytest.mark.stack

TESTS = Path(__file__).resolve().parent.parent
REPRESENTATIVE = (
    "after_every_edit or bytes_come_back or binary or exact_repeat or conflict or stale or status "
    "or forgotten or retract or never_changes or limit"
)
LEFT_OUT = "identifier or long_history"
"""Half a minute each over the stack."""


def run(stack: Deployment, tenant: str, seconds: float, *arguments: str | Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "--tb=short"),
            *(f"--door=http:{stack.url}", "-o", f"timeout={seconds:.0f}", *arguments),
        ],
        env={**os.environ, "MEMOREE_TEST_TOKEN": stack.tokens[tenant]},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


@pytest.mark.timeout(300)
@pytest.mark.fault_class(61)
@pytest.mark.fault_class(62)
def test_a_representative_part_of_the_contract_holds_over_the_stack(stack: Deployment, tenant: str) -> None:
    run(stack, tenant, 280, TESTS / "contract", "-k", f"({REPRESENTATIVE}) and not ({LEFT_OUT})")


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_whole_contract_holds_over_the_stack(stack: Deployment, tenant: str) -> None:
    run(stack, tenant, 1700, TESTS / "contract")

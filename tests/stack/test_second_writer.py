"""`memoree worker writer` on the queue of a running stack, beside the writer that is there."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.client import claim, in_parallel
from e2e.deployment import PROGRAM, ROLE_OF_WRITER, STOP_SECONDS_MAX, Deployment, environment, memoree, refusal, until
from e2e.shared_stack import fresh_tenant

pytestmark = pytest.mark.stack

CLIENTS = 8
WRITES_PER_CLIENT = 6


@contextmanager
def second_writer(stack: Deployment, log_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """With only `deployment.env` to go by; killed if it still runs."""
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, "worker", "writer"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(**stack.deployment_variables()),
            cwd="/",
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def write(stack: Deployment, tenants: list[str], name: str) -> None:
    def one(number: int) -> None:
        with stack.client(tenants[number % len(tenants)]) as client:
            for count in range(WRITES_PER_CLIENT):
                key = f"{name}/{number}/{count}"
                client.decided("claim.assert", claim(f"statement {key}"), key=key)

    in_parallel(CLIENTS, one)


def test_two_writers_share_the_tenants_and_lose_nothing(stack: Deployment, tmp_path: Path) -> None:
    tenants = [fresh_tenant(), fresh_tenant()]
    with second_writer(stack, tmp_path / "second.log") as second:
        write(stack, tenants, "both run")
        (leader,) = stack.pids(ROLE_OF_WRITER)
        os.killpg(leader, signal.SIGKILL)
        write(stack, tenants, "one was killed")
        second.terminate()
        assert second.wait(STOP_SECONDS_MAX) == 0, (tmp_path / "second.log").read_text()
        stack.wait_until_replaced(ROLE_OF_WRITER, leader)
        write(stack, tenants, "one has gone")
    for tenant in tenants:
        with stack.client(tenant) as client:
            assert client.last_commit_seq() == 3 * CLIENTS * WRITES_PER_CLIENT / len(tenants)


def test_a_second_writer_takes_over_from_one_that_hangs(stack: Deployment, tenant: str, tmp_path: Path) -> None:
    with stack.client(tenant) as client:
        client.decided("claim.assert", claim("by the first"), key="first")
        with second_writer(stack, tmp_path / "second.log"), stack.stopped_writer():
            client.decided("claim.assert", claim("by the second"), key="second")
            assert client.last_commit_seq() == 2
        until(lambda: stack.readiness()[0] == 200, "readiness")
        client.decided("claim.assert", claim("by either"), key="third")
        assert client.last_commit_seq() == 3


def test_a_writer_without_a_deployment_says_what_is_missing() -> None:
    assert "MEMOREE_BUCKET" in refusal(memoree("worker", "writer"))

"""Children that die come back, and it is said that they did."""

from __future__ import annotations

import os
import signal

import pytest

from e2e.client import claim
from e2e.deployment import ROLE_OF_API, ROLE_OF_WRITER, Deployment, until

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("role", [ROLE_OF_WRITER, ROLE_OF_API])
def test_a_killed_child_comes_back(stack: Deployment, tenant: str, role: str) -> None:
    with stack.client(tenant) as client:
        before = client.decided("claim.assert", claim("said before"), key="before")["result"]
    former = stack.kill_child(role)
    stack.wait_until_replaced(role, former)
    with stack.client(tenant) as client:
        client.decided("claim.assert", claim("said afterwards"), key="after")
        assert client.ok("claim.get", {"claim_id": before["claim_id"]})["statement"] == "said before"
    assert f"the {role} ended with status" in stack.progress()
    assert "starting it again in" in stack.progress()


def test_a_killed_store_comes_back_with_everything(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        before = client.decided("claim.assert", claim("said before"), key="before")["result"]
        (former,) = stack.store_pids()
        os.kill(former, signal.SIGKILL)
        until(lambda: stack.store_pids() not in ([], [former]), "a new store")
        stack.wait_until_ready()
        client.decided("claim.assert", claim("said afterwards"), key="after")
        assert client.decided("claim.assert", claim("said before"), key="before")["result"] == {
            **before,
            "created": False,
        }
        assert client.last_commit_seq() == 2
    assert "SeaweedFS" in stack.progress() and "starting it again" in stack.progress()


def test_while_the_store_is_frozen_reads_are_served_and_readiness_is_red(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        written = client.claim("known to the replica")
        (store,) = stack.store_pids()
        os.kill(store, signal.SIGSTOP)
        try:
            until(lambda: stack.readiness()[0] == 503, "a red readiness", 10)
        finally:
            os.kill(store, signal.SIGCONT)
        stack.wait_until_ready()
        assert client.ok("claim.get", {"claim_id": written["claim_id"]})["statement"] == "known to the replica"

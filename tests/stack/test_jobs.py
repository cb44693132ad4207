"""The schedule of a running stack, and its jobs by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.deployment import Deployment, memoree, until

pytestmark = pytest.mark.stack


@pytest.mark.fault_class(2)
def test_the_status_tells_of_the_jobs_and_a_dead_scheduler_is_started_again(stack: Deployment) -> None:
    def told() -> Any:
        return json.loads(memoree("status", "--data", stack.data_dir).stdout)["jobs"]

    jobs = until(told, "the first words of the schedule")
    assert jobs.keys() == {"backup", "verify", "gc"}
    assert not any(job["overdue"] for job in jobs.values())
    stack.wait_until_replaced("jobs", stack.kill_child("jobs"))


def test_a_tenant_is_verified_and_cleaned_by_hand(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        client.note("kept")
    where = ("--tenant", tenant, "--data", stack.data_dir)
    verified = memoree("verify", *where)
    assert verified.returncode == 0, verified
    result = json.loads(verified.stdout)["result"]
    assert (result["ok"], result["issues"], result["epochs"]) == (True, [], 1)
    cleaned = memoree("gc", *where)
    assert cleaned.returncode == 0, cleaned
    assert json.loads(cleaned.stdout)["result"]["blobs"]["deleted_blobs"] == 0


def test_nothing_is_cleaned_of_a_tenant_that_is_none(stack: Deployment) -> None:
    refused = memoree("gc", "--tenant", "nobody", "--data", stack.data_dir)
    assert refused.returncode == 3, refused
    assert json.loads(refused.stdout)["error"]["code"] == "NOT_FOUND"

"""Readiness and metrics tell what is really so: the store, the queue, the replicas."""

from __future__ import annotations

import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from e2e import bucket
from e2e.client import Client, claim
from e2e.deployment import Deployment, memoree, refusal, until

pytestmark = pytest.mark.stack

RED_SECONDS_MAX = 10.0
CHECKS = {"store", "queue", "replicas", "tokens"}


def samples(stack: Deployment, name: str) -> list[float]:
    """A metric's value in every api process that has it."""
    families = (family for text in stack.metrics() for family in text_string_to_metric_families(text))
    return [sample.value for family in families for sample in family.samples if sample.name == name]


def verdicts(stack: Deployment, check: str) -> list[float]:
    """Of every api process: 1 when the readiness check is green."""
    families = (family for text in stack.metrics() for family in text_string_to_metric_families(text))
    return [
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "memoree_check_ok" and sample.labels["check"] == check
    ]


def red_detail(stack: Deployment, check: str) -> str:
    """What the process that happens to answer says about a check; empty while it is ready."""
    status, report = stack.readiness()
    return report["checks"][check]["detail"] if status == 503 else ""


def applied(client: Client, operation_url: str) -> httpx.Response | None:
    answer = client.http.get(operation_url)
    assert answer.status_code == 200, answer.text
    return answer if answer.json()["state"] == "applied" else None


@pytest.mark.fault_class(1)
@pytest.mark.fault_class(2)
@pytest.mark.fault_class(57)
def test_a_stopped_writer_makes_writes_pending_and_readiness_red_until_it_goes_on(
    stack: Deployment, tenant: str
) -> None:
    with stack.client(tenant) as client:
        client.claim("said while the writer ran")
        with stack.stopped_writer():
            began = time.monotonic()
            answer = client.post("claim.assert", claim("said meanwhile"), key="k", headers={"Prefer": "wait=1"})
            assert answer.status_code == 202
            assert answer.headers["Preference-Applied"] == "wait=1"
            assert time.monotonic() - began < RED_SECONDS_MAX
            error = answer.json()["error"]
            assert (error["code"], error["retryable"]) == ("WRITE_PENDING", True)
            operation_url = error["details"]["operation_url"]
            status = client.http.get(operation_url)
            assert (status.status_code, status.json()["state"]) == (200, "pending")
            assert status.headers["Retry-After"]

            left = RED_SECONDS_MAX - (time.monotonic() - began)
            until(lambda: verdicts(stack, "queue") == [0, 0], "a red queue in both processes", left)
            status_code, report = stack.readiness()
            assert (status_code, report["checks"]["store"]["ok"]) == (503, True)
            assert "is the writer running" in report["checks"]["queue"]["detail"]
            assert min(samples(stack, "memoree_queue_oldest_age_seconds")) > 5

            assert client.last_commit_seq() == 1, "nothing shows what is not durable"
            assert client.http.get(operation_url).json()["state"] == "pending"
        outcome = until(lambda: applied(client, operation_url), "the pending write").json()
        assert outcome["commit_seq"] == 2
        repeated = client.ok("claim.assert", claim("said meanwhile"), key="k")
        assert repeated == {**outcome["result"], "created": False}
        stack.wait_until_ready()
        until(lambda: max(samples(stack, "memoree_queue_oldest_age_seconds")) == 0, "an empty queue in the metrics")


def test_respond_async_does_not_wait_at_all(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        answer = client.post("claim.assert", claim("later"), headers={"Prefer": "respond-async"})
        assert answer.status_code == 202
        until(lambda: applied(client, answer.json()["error"]["details"]["operation_url"]), "the write")


def test_readiness_reports_the_store_the_queue_and_the_ages_of_replicas_and_heads(
    stack: Deployment, tenant: str
) -> None:
    with stack.client(tenant) as client:
        client.claim("in use")
        until(lambda: max(samples(stack, "memoree_replicas_head_age_seconds")) > 0, "an age of head")
    status, report = stack.readiness()
    assert (status, set(report["checks"])) == (200, CHECKS)
    assert all(set(check) == {"ok", "detail", "measures"} for check in report["checks"].values())
    assert set(report["checks"]["queue"]["measures"]) == {"waiting", "in_flight", "dead", "oldest_age_seconds"}
    assert {"replica_age_seconds", "head_age_seconds"} <= set(report["checks"]["replicas"]["measures"])
    assert report["checks"]["store"]["measures"]["seconds"] > 0
    for name in ("memoree_store_seconds", "memoree_queue_waiting", "memoree_replicas_replica_age_seconds"):
        assert len(samples(stack, name)) == 2, f"{name} in both processes"


@pytest.mark.fault_class(56)
def test_operations_are_counted(stack: Deployment, tenant: str) -> None:
    def counted() -> float:
        families = (family for text in stack.metrics() for family in text_string_to_metric_families(text))
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "memoree_http_requests_total" and sample.labels["op"] == "claim.assert"
        )

    before = counted()
    with stack.client(tenant) as client:
        client.claim("one")
        client.claim("two")
    assert counted() == before + 2


def test_a_lost_head_is_refused_everywhere_and_rebuilt_by_the_command_line(stack: Deployment, tenant: str) -> None:
    strong = {"Memoree-Consistency": "strong"}
    with stack.client(tenant) as client:
        written = client.claim("before the damage")
        bucket.delete(stack, tenant, "head.json")
        client.refused("INTEGRITY_ERROR", "claim.get", {"claim_id": written["claim_id"]}, headers=strong)
        until(lambda: red_detail(stack, "replicas").startswith("head of 1 tenants is missing"), "a red readiness")

        rebuilt = memoree("head", "rebuild", "--tenant", tenant, "--data", stack.data_dir)
        assert rebuilt.returncode == 0, rebuilt
        assert "exists" in refusal(memoree("head", "rebuild", "--tenant", tenant, "--data", stack.data_dir))

        assert client.ok("claim.get", {"claim_id": written["claim_id"]}, headers=strong)["statement"]
        client.decided("claim.assert", claim("after the repair"), key="after")
        assert client.last_commit_seq() == 2
    stack.wait_until_ready()

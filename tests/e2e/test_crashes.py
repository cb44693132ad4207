"""Processes that die while clients write: what was acknowledged stays, what was not is decided by a retry."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import httpx
import pytest

from e2e import bucket
from e2e.api_process import Api, api_process
from e2e.client import Client, claim, in_parallel, note
from e2e.deployment import ROLE_OF_API, ROLE_OF_WRITER, Deployment

pytestmark = pytest.mark.stack

CLIENTS = 8
KILL_WITHIN_SECONDS = 0.06
BLOB_BYTES = 100 * 1024


def kill_in_the_gap(stack: Deployment, tenant: str, api: Api, name: str) -> dict[str, str | None]:
    """Claims sent to an api process that dies meanwhile: key to claim id, or None when nothing was acknowledged."""

    def one(number: int) -> tuple[str, str | None]:
        key = f"{name}/{number}"
        if number == CLIENTS:
            time.sleep(random.uniform(0, KILL_WITHIN_SECONDS))  # the moment of the kill is what is random
            api.process.kill()
            return key, None
        with stack.client(tenant, url=api.url) as client, contextlib.suppress(httpx.TransportError):
            answer = client.post("claim.assert", claim(f"statement {key}"), key=key)
            if answer.status_code == httpx.codes.OK:
                return key, answer.json()["result"]["claim_id"]
        return key, None

    return dict(in_parallel(CLIENTS + 1, one)[:CLIENTS])


def hunt(stack: Deployment, tenant: str, rounds: int, directory: Path) -> None:
    outcomes: dict[str, str | None] = {}
    with contextlib.ExitStack() as opened:
        coming = opened.enter_context(api_process(stack, directory / "0"))
        for number in range(rounds):
            current, coming = coming, opened.enter_context(api_process(stack, directory / f"{number + 1}"))
            current.wait_until_live()
            outcomes |= kill_in_the_gap(stack, tenant, current, f"round {number}")
    with stack.client(tenant) as client:
        check(client, outcomes)


def check(client: Client, outcomes: dict[str, str | None]) -> None:
    """The acknowledged are there under their ids; the others are missing or complete, and a retry makes them one."""
    ids = set()
    for key, claim_id in outcomes.items():
        again = client.decided("claim.assert", claim(f"statement {key}"), key=key)["result"]
        ids.add(again["claim_id"])
        if claim_id is not None:
            assert (again["claim_id"], again["created"]) == (claim_id, False), f"{key} was acknowledged and lost"
    assert len(ids) == len(outcomes) == client.last_commit_seq()


@pytest.mark.fault_class(3)
def test_an_api_process_killed_in_the_gap_never_acknowledged_what_is_not_stored(
    stack: Deployment, tenant: str, tmp_path: Path
) -> None:
    hunt(stack, tenant, 12, tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.fault_class(3)
def test_two_hundred_kills_of_an_api_process_lose_nothing(stack: Deployment, tenant: str, tmp_path: Path) -> None:
    hunt(stack, tenant, 200, tmp_path)


@pytest.mark.fault_class(11)
def test_a_crash_between_the_blob_and_the_commit_leaves_no_orphan_and_a_retry_makes_one_artifact(
    stack: Deployment, tenant: str, tmp_path: Path
) -> None:
    payload = note("orphan " + "x" * BLOB_BYTES, title="large and unlucky")
    with api_process(stack, tmp_path / "api") as api:
        api.wait_until_live()
        with stack.stopped_writer():
            with stack.client(tenant, url=api.url) as client:
                assert client.post("artifact.put", payload, key="k", headers={"Prefer": "wait=0"}).status_code == 202
            api.process.kill()
            (leader,) = stack.pids(ROLE_OF_WRITER)
            blobs = bucket.keys(stack, tenant, "blobs/")
            assert len(blobs) == 1
            with stack.client(tenant) as client:
                assert client.ok("search", {"query": "orphan"})["hits"] == []
                assert client.last_commit_seq() == 0
            os.killpg(leader, signal.SIGKILL)
    stack.wait_until_replaced(ROLE_OF_WRITER, leader)
    with stack.client(tenant) as client:
        first = client.decided("artifact.put", payload, key="k")["result"]
        again = client.decided("artifact.put", payload, key="k")["result"]
        assert (again["artifact_id"], again["revision_id"]) == (first["artifact_id"], first["revision_id"])
        assert [hit["entity_id"] for hit in client.ok("search", {"query": "orphan"})["hits"]] == [first["artifact_id"]]
        assert client.last_commit_seq() == 1
    assert bucket.keys(stack, tenant, "blobs/") == blobs


def test_killed_api_processes_of_the_stack_are_replaced_while_clients_write(stack: Deployment, tenant: str) -> None:
    def one(number: int) -> str | None:
        if number == CLIENTS:
            former = stack.kill_child(ROLE_OF_API)
            stack.wait_until_replaced(ROLE_OF_API, former)
            return None
        with stack.client(tenant) as client:
            return str(client.decided("claim.assert", claim(f"claim {number}"), key=str(number))["result"]["claim_id"])

    assert len(set(in_parallel(CLIENTS + 1, one))) == CLIENTS + 1
    with stack.client(tenant) as client:
        assert client.last_commit_seq() == CLIENTS

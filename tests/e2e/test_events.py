"""The change feed of a running stack: what one process stored wakes who waits at another."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from e2e.client import Client
from e2e.deployment import Deployment
from e2e.test_consistency import one_client_per_process

pytestmark = pytest.mark.stack

ROUNDS = 5


def changes(client: Client, after: int, wait: int) -> httpx.Response:
    return client.http.get("/v1/events", params={"after": after, "wait": wait})


def test_every_commit_wakes_who_waits_at_any_process(stack: Deployment, tenant: str) -> None:
    with one_client_per_process(stack, tenant) as (writer, follower), ThreadPoolExecutor(1) as pool:
        for number in range(ROUNDS):
            waiting = pool.submit(changes, follower, number, 20)
            time.sleep(0.2)
            began = time.monotonic()
            stored = writer.http.post("/v1/ingest", json={"source": "kiln:log", "content": f"firing {number}"})
            assert stored.status_code == httpx.codes.OK, stored.text
            page = waiting.result().json()
            assert [event["commit_seq"] for event in page["events"]] == [number + 1]
            assert page["next_after"] == number + 1
            assert time.monotonic() - began < 10
        assert changes(follower, ROUNDS + 1, 0).status_code == httpx.codes.GONE

"""MemoryProtocol over a running stack: two api processes, a writer, a bucket."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from e2e.client import Client
from e2e.deployment import Deployment, until
from e2e.test_consistency import one_client_per_process

pytestmark = pytest.mark.stack

Json = dict[str, Any]
ROUNDS = 10
AT_ONCE = 64
WORKERS = 16
LARGE = "a needle in a large text. " * 20_000
"""A blob."""


def numbered(number: int) -> str:
    return f"01KJR4GZXJDFPSG3SB9V6{number:05}"


def ingest(client: Client, body: Json, **headers: str) -> httpx.Response:
    return client.http.post("/v1/ingest", json={"source": "kiln:log", **body}, headers=headers)


def lsn_of(answer: httpx.Response) -> tuple[int, int]:
    assert answer.status_code == httpx.codes.OK, answer.text
    document = answer.json()
    assert set(document) == {"lsn", "queue_lag_warn"} and document["queue_lag_warn"] is False
    return document["lsn"]["wall_ms"], document["lsn"]["counter"]


def test_what_one_process_stored_the_other_shows_at_once(stack: Deployment, tenant: str) -> None:
    with one_client_per_process(stack, tenant) as clients:
        before = (0, 0)
        for number in range(ROUNDS):
            writer, reader = clients[number % 2], clients[(number + 1) % 2]
            content = LARGE if number == 0 else f"firing {number}"
            lsn = lsn_of(ingest(writer, {"id": numbered(1), "content": content}))
            assert lsn > before
            before = lsn
            found = reader.http.get(f"/v1/episode/{numbered(1)}").json()
            assert (found["content"], found["scope"]) == (content, tenant)
            assert found["bt"]["sys"][0] == {"wall_ms": lsn[0], "counter": lsn[1], "node_id": 0}


def test_a_repeat_through_the_other_process_is_no_second_episode(stack: Deployment, tenant: str) -> None:
    with one_client_per_process(stack, tenant) as (first, second):
        by_id = {"id": numbered(2), "content": "cone 6", "metadata": {"n": 1}}
        assert lsn_of(ingest(first, by_id)) == lsn_of(ingest(second, by_id))
        by_key = {"content": "the damper sticks"}
        answers = [ingest(client, by_key, **{"Idempotency-Key": "standup"}) for client in (first, second)]
        assert lsn_of(answers[0]) == lsn_of(answers[1])
        assert first.ok("doctor", {})["last_commit_seq"] == 2
        refused = ingest(second, {"content": "another"}, **{"Idempotency-Key": "standup"})
        assert (refused.status_code, refused.json()["error"]) == (422, "validate")


@pytest.mark.proves("memoryprotocol-22")
def test_many_at_once_have_lsns_of_their_own(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:

        def store(number: int) -> tuple[int, int]:
            return lsn_of(ingest(client, {"id": numbered(number), "content": f"text {number}"}))

        with ThreadPoolExecutor(WORKERS) as pool:
            lsns = list(pool.map(store, range(AT_ONCE)))
        assert len(set(lsns)) == AT_ONCE
        assert lsn_of(ingest(client, {"content": "after them all"})) > max(lsns)
        assert client.ok("verify", {})["issues"] == []


def test_a_write_that_is_not_decided_in_time_is_503_and_is_there_later(stack: Deployment, tenant: str) -> None:
    """While the writer stands still; the identical request with its key finds out."""
    body, key = {"id": numbered(3), "content": "late"}, {"Idempotency-Key": "late"}
    with stack.client(tenant) as client:
        lsn_of(ingest(client, {"content": "the tenant's first"}))
        with stack.stopped_writer():
            pending = ingest(client, body, **key)
            assert (pending.status_code, pending.json()["error"]) == (503, "write_pending")
            assert int(pending.headers["retry-after"]) >= 1
        until(lambda: ingest(client, body, **key).status_code == httpx.codes.OK, "the outcome")
        assert client.http.get(f"/v1/episode/{numbered(3)}").json()["content"] == "late"

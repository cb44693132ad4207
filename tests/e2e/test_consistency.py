"""Two api processes over one store: what one of them acknowledged, the other one shows when asked to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from e2e.client import Client
from e2e.deployment import Deployment

pytestmark = pytest.mark.stack

CONNECTIONS_MAX = 200
ROUNDS = 25


@contextlib.contextmanager
def one_client_per_process(stack: Deployment, tenant: str) -> Iterator[list[Client]]:
    """Connections are kept alive, and each belongs to one of the two api processes that share the socket."""
    found: dict[int, Client] = {}
    with contextlib.ExitStack() as opened:
        for _ in range(CONNECTIONS_MAX):
            client = opened.enter_context(stack.client(tenant))
            found.setdefault(client.ok("doctor", {})["daemon_pid"], client)
            if len(found) == 2:
                yield list(found.values())
                return
        raise AssertionError(f"{CONNECTIONS_MAX} connections went to {len(found)} processes")


def test_min_commit_seq_reads_the_writes_of_the_other_process(stack: Deployment, tenant: str) -> None:
    with one_client_per_process(stack, tenant) as clients:
        for number in range(ROUNDS):
            writer, reader = clients[number % 2], clients[(number + 1) % 2]
            statement = f"crosswise statement number {number}"
            answer = writer.post("claim.assert", {"claim_type": "fact", "statement": statement})
            written = answer.json()
            found = reader.post(
                "search", {"query": f"crosswise number {number}", "min_commit_seq": written["commit_seq"]}
            )
            assert found.status_code == 200, found.text
            assert int(found.headers["Memoree-Commit-Seq"]) >= written["commit_seq"]
            assert written["result"]["claim_id"] in {hit["entity_id"] for hit in found.json()["result"]["hits"]}


def test_a_process_reads_its_own_writes_without_asking(stack: Deployment, tenant: str) -> None:
    with one_client_per_process(stack, tenant) as clients:
        for number in range(ROUNDS):
            client = clients[number % 2]
            claim_id = client.claim(f"own {number}")["claim_id"]
            assert client.ok("claim.get", {"claim_id": claim_id})["statement"] == f"own {number}"


def test_what_one_process_acknowledged_is_never_said_not_to_exist_by_the_other(stack: Deployment, tenant: str) -> None:
    with one_client_per_process(stack, tenant) as clients:
        for number in range(ROUNDS):
            writer, reader = clients[number % 2], clients[(number + 1) % 2]
            claim_id = writer.claim(f"looked up {number}")["claim_id"]
            assert reader.ok("claim.get", {"claim_id": claim_id})["statement"] == f"looked up {number}"


def test_strong_reads_see_what_was_acknowledged_anywhere(stack: Deployment, tenant: str) -> None:
    with one_client_per_process(stack, tenant) as clients:
        for number in range(ROUNDS):
            writer, reader = clients[number % 2], clients[(number + 1) % 2]
            claim_id = writer.claim(f"strong {number}")["claim_id"]
            read = reader.ok("claim.get", {"claim_id": claim_id}, headers={"Memoree-Consistency": "strong"})
            assert read["statement"] == f"strong {number}"


def test_a_commit_from_the_future_is_not_ready_and_says_so(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        client.claim("the only one")
        answer = client.post("search", {"query": "only", "min_commit_seq": 1000})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["retryable"]) == (503, "INDEX_NOT_READY", True)
        assert answer.headers["Retry-After"]
        assert (error["details"]["requested_commit_seq"], error["details"]["current_commit_seq"]) == (1000, 1)

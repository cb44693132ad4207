"""Many writers at once: nothing lost, nothing counted twice, one winner."""

from __future__ import annotations

import pytest

from e2e.client import claim, in_parallel, note
from e2e.deployment import Deployment

pytestmark = pytest.mark.stack

PARALLEL = 64


@pytest.mark.fault_class(44)
def test_parallel_asserts_all_survive_with_dense_commit_numbers(stack: Deployment, tenant: str) -> None:
    def one(number: int) -> tuple[str, int]:
        with stack.client(tenant) as client:
            envelope = client.decided("claim.assert", claim(f"parallel {number}"), key=f"parallel/{number}")
            return envelope["result"]["claim_id"], envelope["commit_seq"]

    written = in_parallel(PARALLEL, one)
    assert sorted(commit_seq for _, commit_seq in written) == list(range(1, PARALLEL + 1))
    with stack.client(tenant) as client:
        for number, (claim_id, _) in enumerate(written):
            assert client.ok("claim.get", {"claim_id": claim_id})["statement"] == f"parallel {number}"


@pytest.mark.fault_class(45)
def test_of_two_revises_of_one_revision_one_wins_and_the_other_learns_the_current_one(
    stack: Deployment, tenant: str
) -> None:
    with stack.client(tenant) as client:
        for number in range(5):
            artifact = client.note(f"first text {number}")

            def revise(side: int, artifact: dict[str, object] = artifact) -> tuple[int, dict[str, object]]:
                payload = {
                    "artifact_id": artifact["artifact_id"],
                    "if_revision": artifact["revision_id"],
                    "content": {"type": "text", "data": f"second text, of side {side}"},
                }
                with stack.client(tenant) as other:
                    answer = other.post("artifact.revise", payload)
                    return answer.status_code, answer.json()

            answers = in_parallel(2, revise)
            assert sorted(status for status, _ in answers) == [200, 409]
            (won,) = (answer["result"] for status, answer in answers if status == 200)
            (lost,) = (answer["error"] for status, answer in answers if status == 409)
            assert isinstance(won, dict) and isinstance(lost, dict)
            assert lost["code"] == "REVISION_CONFLICT"
            assert lost["details"]["current_revision"] == won["revision_id"]
            strong = {"Memoree-Consistency": "strong"}
            head = client.ok("artifact.get", {"artifact_id": artifact["artifact_id"]}, headers=strong)
            assert head["revision_id"] == won["revision_id"]


def test_one_key_sent_many_times_at_once_is_one_write(stack: Deployment, tenant: str) -> None:
    def one(_: int) -> tuple[str, int, bool]:
        with stack.client(tenant) as client:
            envelope = client.decided("artifact.put", note("the same"), key="the same")
            return envelope["result"]["artifact_id"], envelope["commit_seq"], envelope["result"]["created"]

    answers = in_parallel(PARALLEL, one)
    assert len({(artifact_id, commit_seq) for artifact_id, commit_seq, _ in answers}) == 1
    assert sum(created for *_, created in answers) == 1

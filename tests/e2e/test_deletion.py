"""What was deleted for good is in no file of the processes and in no log, a short while after the receipt and without
another request: change files, backups and the store's own files are told of by the receipt."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from e2e.client import Client
from e2e.deployment import Deployment, memoree, until
from e2e.shared_stack import fresh_tenant
from e2e.test_consistency import one_client_per_process
from e2e.test_memoryprotocol import ingest, numbered
from jobs.test_erase import holds_piece, marker
from memoree import limits

pytestmark = pytest.mark.stack

OBJECTS = "seaweedfs"
"""Where the store keeps its objects, which the receipt tells of."""
EPISODES = 60
BOUND = limits.ERASED_FROM_COPIES_SECONDS


def files_of_processes(stack: Deployment, secret: str) -> list[Path]:
    """Databases, logs and whatever else the processes of a stack keep, where a piece of a text is in it."""
    kept = [path for path in stack.data_dir.rglob("*") if OBJECTS not in path.parts and path.is_file()]
    return [path for path in (*kept, stack.progress_path) if holds_piece(_bytes(path), secret)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def recalled(client: Client, query: str) -> list[str]:
    answer = client.http.post("/v1/recall", json={"query": query})
    assert answer.status_code == 200, answer.text
    return [hit["text"] for hit in answer.json()]


def filled(client: Client, secret: str) -> None:
    """Pages that are split and merged leave copies of what stood on them."""
    for number in range(EPISODES):
        text = f"{secret} and firing {number}. " * (1 + number % 7)
        body = {"id": numbered(number), "content": text, "source": f"{secret}:{number}", "metadata": {"by": secret}}
        assert ingest(client, body).status_code == 200
    assert ingest(client, {"content": "it stays"}).status_code == 200


def deleted(client: Client, secret: str) -> dict[str, object]:
    target = {"Scope": {"BySource": secret}}
    dry_run = client.http.post("/v1/forget", json={"target": target, "dry_run": True})
    assert dry_run.json()["matched"] == EPISODES, dry_run.text
    body = {"target": target, "hard": True, "confirmation_token": dry_run.text}
    answer = client.http.post("/v1/forget", json=body)
    assert answer.status_code == 200, answer.text
    receipt: dict[str, object] = answer.json()
    assert receipt["rows_deleted"] == EPISODES
    return receipt


def gone_within(stack: Deployment, secret: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while found := files_of_processes(stack, secret):
        assert time.monotonic() < deadline, f"{seconds:.0f} s later it is in {found}"
        time.sleep(0.5)


@pytest.mark.proves("memoryprotocol-67")
@pytest.mark.timeout(240)
def test_what_was_deleted_is_on_no_disk_of_a_process_and_in_no_log(stack: Deployment) -> None:
    """Through MemoryProtocol of one tenant, by the operator of another; two processes had been asked just before."""
    forgetful, erasing = fresh_tenant(), fresh_tenant()
    forgotten, erased, asked = marker(), marker(), marker()
    with one_client_per_process(stack, forgetful) as (first, second), stack.client(erasing) as other:
        filled(first, forgotten)
        note = {"kind": "note", "title": erased, "content": {"type": "text", "data": f"a note of {erased}"}}
        artifact_id = other.ok("artifact.put", note)["artifact_id"]
        for client in (first, second):
            assert recalled(client, forgotten) and not recalled(client, f"{asked} {forgotten}")
        assert erased in json.dumps(other.ok("search", {"query": erased}))
        for secret in (forgotten, erased):
            assert files_of_processes(stack, secret), "a look that finds nothing proves nothing"
        began = datetime.now(UTC)
        receipt = deleted(first, forgotten)
    stores = receipt["stores"]
    assert isinstance(stores, dict)
    assert until_of(stores["database"]) <= began + timedelta(seconds=BOUND + 5)
    assert until_of(stores["replicas"]) > began + timedelta(seconds=limits.LOCAL_COPY_IDLE_SECONDS_MAX)
    assert until_of(stores["ltx_history"]) > began + timedelta(seconds=limits.POINT_IN_TIME_SECONDS)
    assert until_of(stores["backups"]) > began + timedelta(seconds=limits.ERASED_IN_BACKUPS_SECONDS)
    assert (stores["blobs"], stores["second_bucket"]) == ("erased", "erased")
    gone_within(stack, forgotten, BOUND)

    done = memoree("erase", artifact_id, "--reason", "a test", "--tenant", erasing, "--data", stack.data_dir)
    assert done.returncode == 0, done
    gone_within(stack, erased, BOUND)
    assert files_of_processes(stack, asked) == []
    with stack.client(forgetful) as client:
        assert recalled(client, forgotten) == []
        assert recalled(client, "stays") == ["it stays"]
        assert client.ok("verify", {})["issues"] == []


def until_of(line: str) -> datetime:
    assert line.startswith("retained_until "), line
    return datetime.fromisoformat(line.removeprefix("retained_until "))


def test_a_writer_that_is_killed_after_a_deletion_leaves_nothing_either(stack: Deployment, tenant: str) -> None:
    secret = marker()
    with stack.client(tenant) as client:
        filled(client, secret)
        deleted(client, secret)
    stack.wait_until_replaced("supervised-writer", stack.kill_child("supervised-writer"))
    gone_within(stack, secret, BOUND)
    with stack.client(tenant) as client:
        until(lambda: ingest(client, {"content": "after"}).status_code == 200, "a write")

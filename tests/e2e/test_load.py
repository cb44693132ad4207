"""Sixty-four clients for ten minutes: every answer is a success or says when to come back, memory stays bounded, the
queue drains."""

from __future__ import annotations

import os
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from e2e.client import claim, note
from e2e.deployment import ROLE_OF_API, ROLE_OF_WRITER, Deployment, child_pids, deployment, until

pytestmark = [pytest.mark.nightly, pytest.mark.stack, pytest.mark.timeout(3600)]

CLIENTS = 64
TENANTS = ("north", "south", "west", "east")
MINUTES_DEFAULT = 10.0
MEMORY_GROWTH_MAX = 1.5
MEMORY_BYTES_MAX = 400 * 1024 * 1024
LARGE_NOTE = "a paragraph of what was said. " * 2000


def test_ten_minutes_of_load_end_with_an_empty_queue(tmp_path: Path) -> None:
    minutes = float(os.environ.get("MEMOREE_LOAD_MINUTES") or MINUTES_DEFAULT)
    answers: Counter[str] = Counter()
    over = threading.Event()
    with deployment(tmp_path / "stack") as stack:
        stack.use_tokens(TENANTS)
        stack.start("--api-processes", "2")

        def work(number: int) -> None:
            with stack.client(TENANTS[number % len(TENANTS)]) as client:
                for turn in range(1_000_000):
                    if over.is_set():
                        return
                    statement = f"statement {number}/{turn} {uuid.uuid4().hex}"
                    requests = [
                        ("claim.assert", claim(statement)),
                        ("search", {"query": statement}),
                        ("memory.recall", {"query": f"what of {number}/{turn}"}),
                    ]
                    if turn % 10 == 0:
                        requests.append(("artifact.put", note(LARGE_NOTE, title=statement)))
                    for op, payload in requests:
                        answers[_judged(client.post(op, payload))] += 1

        with ThreadPoolExecutor(CLIENTS) as pool:
            running = [pool.submit(work, number) for number in range(CLIENTS)]
            over.wait(minutes * 60 / 3)
            early = memory(stack)
            over.wait(minutes * 60 * 2 / 3)
            late = memory(stack)
            over.set()
            for each in running:
                each.result()
        drained = lambda: stack.readiness()[1]["checks"]["queue"]["measures"]["waiting"] == 0  # noqa: E731
        until(drained, "an empty queue")
    print(f"\n{dict(answers)}; resident memory in MiB after a third {early}, at the end {late}")
    assert answers["200"] > CLIENTS
    for name, size in late.items():
        assert size < max(MEMORY_BYTES_MAX / 2**20, MEMORY_GROWTH_MAX * early[name]), (name, early, late)


def _judged(answer: httpx.Response) -> str:
    status = str(answer.status_code)
    if status == "200":
        return status
    assert status in ("202", "429", "503"), answer.text
    assert answer.json()["error"]["retryable"], answer.text
    assert answer.headers["Retry-After"], answer.text
    return f"{status} {answer.json()['error']['code']}"


def memory(stack: Deployment) -> dict[str, int]:
    """MiB by role, of the largest process."""
    found: dict[str, int] = {}
    for role in (ROLE_OF_API, ROLE_OF_WRITER):
        for leader in stack.pids(role):
            for pid in (leader, *child_pids(leader)):
                found[role] = max(found.get(role, 0), resident(pid))
    return found


def resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0

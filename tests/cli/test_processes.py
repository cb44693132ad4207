"""Several processes on one data directory: nothing acknowledged is lost, no commit number is given twice."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memoree.assembly import embedded_service
from memoree.embedded import EmbeddedService

from .conftest import CONTEXT, PROGRAM, Json, Shell

WRITES = 64
PROCESSES_AT_ONCE = 4
KILLS = 20
SOONER, LATER = 0.9, 1.2


def claim_request(number: int) -> bytes:
    request = {
        "request_id": f"req_{number}",
        "op": "claim.assert",
        "idempotency_key": f"key/{number}",
        "input": {"claim_type": "observation", "statement": f"Shelf {number} holds a bowl."},
    }
    return json.dumps(request).encode()


@pytest.mark.timeout(300)
def test_writes_of_four_processes_at_once_are_all_durable_and_densely_numbered(project: Shell) -> None:
    with ThreadPoolExecutor(PROCESSES_AT_ONCE) as pool:
        runs = list(pool.map(lambda number: project.run("call", stdin=claim_request(number)), range(WRITES)))
    assert sorted(run.envelope["commit_seq"] for run in runs) == list(range(1, WRITES + 1))
    found = project.call("search", {"query": "bowl", "limit": 100}).result["hits"]
    assert {hit["entity_id"] for hit in found} == {run.result["claim_id"] for run in runs}


@pytest.mark.timeout(300)
@pytest.mark.fault_class(43)
def test_killing_writers_loses_no_acknowledged_write(project: Shell) -> None:
    """Each round kills a writer; the delay follows the moment of the answer, so that kills fall around the commit."""
    began = time.monotonic()
    assert project.run("call", stdin=claim_request(0)).result
    delay_seconds = time.monotonic() - began
    acknowledged: dict[int, Json] = {}
    for number in range(1, KILLS + 1):
        if answer := killed_after(project, claim_request(number), delay_seconds):
            acknowledged[number] = json.loads(answer)
        delay_seconds *= SOONER if answer else LATER
    assert acknowledged and len(acknowledged) < KILLS, "the kills did not fall around the answer"
    service = embedded_service(project.home / "data")
    try:
        again = [sent_again(service, number) for number in range(KILLS + 1)]
    finally:
        service.close_sync()
    for number, first in acknowledged.items():
        assert again[number]["result"] == first["result"] | {"created": False}
    assert sorted(answer["commit_seq"] for answer in again) == list(range(1, KILLS + 2))


def sent_again(service: EmbeddedService, number: int) -> Json:
    """The answer to the identical request: the first outcome if there was one, else it takes effect now."""
    request = json.loads(claim_request(number)) | {"context": CONTEXT}
    answer: Json = json.loads(service.call_bytes(json.dumps(request).encode()))
    return answer


def killed_after(shell: Shell, body: bytes, seconds: float) -> bytes:
    """Standard output of a call that was killed, empty if it had not answered."""
    process = subprocess.Popen(
        [PROGRAM, "call"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=shell.cwd,
        env=shell.environment,
    )
    assert process.stdin and process.stdout
    process.stdin.write(body)
    process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    answer = process.stdout.read()
    process.stdout.close()
    process.wait()
    return answer


def test_the_data_directory_and_its_files_are_private(project: Shell) -> None:
    big = {"type": "text", "data": "x" * 100_000}
    given = {"kind": "log", "title": "Large", "content": big}
    assert project.call("artifact.put", given, idempotency_key="k").result
    data = project.home / "data"
    for path in (data, *data.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o077 == 0, f"{path.relative_to(data)} has mode {mode:o}"


def test_a_shared_directory_with_foreign_files_is_left_alone(project: Shell, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    (shared / "thesis.tex").write_text("draft")
    elsewhere = project.having(MEMOREE_DATA_DIR=str(shared))
    elsewhere.run("claim", "assert", "fact", "x").refused("CONFIG_ERROR", 2)
    assert [entry.name for entry in shared.iterdir()] == ["thesis.tex"]
    (shared / "thesis.tex").unlink()
    assert elsewhere.run("claim", "assert", "fact", "x").result["created"]
    assert stat.S_IMODE(shared.stat().st_mode) == 0o700


@pytest.mark.parametrize("op", ["capabilities", "schema", "instructions", "doctor"])
def test_discovery_creates_nothing(shell: Shell, op: str) -> None:
    assert shell.call(op).result
    assert not shell.home.exists()

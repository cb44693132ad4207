"""The whole stack on one host: started, hurt, asked, stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from memoree.errors import Code, MemoreeError
from memoree.stack import control
from memoree.stack.instance import STATE_NAME, Instance, published_state, running_pid

pytestmark = pytest.mark.stack

UP = """
import sys
from pathlib import Path
from memoree.stack.control import up
from memoree.stack.options import UpOptions
up(UpOptions(Path(sys.argv[1]), api_processes=2), [])
"""
START_SECONDS_MAX = 60.0
CONTEXT = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}


class Stack:
    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.log = data_dir.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", UP, str(data_dir)], stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.state: dict[str, Any] = json.loads(line)
        tokens = json.loads(Path(self.state["tokens_file"]).read_bytes())
        self.client = httpx.Client(
            base_url=self.state["url"],
            headers={"Authorization": f"Bearer {next(iter(tokens))}"},
            timeout=30,
            trust_env=False,
        )

    def write(self, key: str) -> int:
        """Send one write until it is decided; its commit number."""
        body = {
            "request_id": "r",
            "op": "claim.assert",
            "idempotency_key": key,
            "context": CONTEXT,
            "input": {"claim_type": "fact", "statement": key},
        }
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                answer = self.client.post("/v1/call", json=body).json()
                if answer["ok"]:
                    return int(answer["commit_seq"])
                assert answer["error"]["retryable"], answer
            except httpx.TransportError:
                pass  # an api process died under the request; the other one takes the next
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def child(self, name: str) -> int:
        state = published_state(self.data_dir)
        assert state is not None
        return next(int(child["pid"]) for child in state["children"] if child["name"] == name)

    def stop(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("up") / "data")
    yield stack
    stack.stop()


def printed(capfdbinary: pytest.CaptureFixture[bytes]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capfdbinary.readouterr().out)
    return document


@pytest.mark.fault_class(2)
@pytest.mark.parametrize("name", ["supervised-writer", "api"])
def test_a_killed_child_is_replaced_and_what_was_acknowledged_is_there(stack: Stack, name: str) -> None:
    before = stack.write(f"before {uuid.uuid4()}")
    os.killpg(stack.child(name), signal.SIGKILL)

    assert [stack.write(f"after {number} {uuid.uuid4()}") for number in range(3)] == [before + n for n in (1, 2, 3)]


def test_status_says_that_it_runs_and_is_ready(stack: Stack, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    stack.write(str(uuid.uuid4()))

    assert control.status(stack.data_dir) == 0
    found = printed(capfdbinary)
    assert (found["running"], found["ready"], found["url"]) == (True, True, stack.state["url"])


def test_a_second_stack_on_the_same_directory_is_refused(stack: Stack) -> None:
    with pytest.raises(MemoreeError) as refused, Instance.hold(stack.data_dir):
        pass
    assert refused.value.code is Code.CONFIG_ERROR
    assert running_pid(stack.data_dir) == stack.process.pid


def test_each_api_process_has_a_log_of_its_own_and_secrets_are_private(stack: Stack) -> None:
    names = {path.name for path in stack.data_dir.iterdir()}

    assert {"api-1.log", "api-2.log", "supervised-writer.log"} <= names
    assert stack.data_dir.stat().st_mode & 0o077 == 0


@pytest.mark.fault_class(43)
def test_status_survives_a_damaged_state_file(stack: Stack, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = stack.data_dir / STATE_NAME
    sound = path.read_bytes()
    try:
        path.write_bytes(sound + b"\xff")
        assert control.status(stack.data_dir) == 1
        assert printed(capfdbinary)["running"] is True
    finally:
        path.write_bytes(sound)


def test_down_stops_everything_and_the_data_is_there_after_the_next_start(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    first = Stack(tmp_path / "data")
    try:
        assert first.write("kept") == 1
        children = [first.child(name) for name in ("supervised-writer", "api")]
        assert control.down(first.data_dir) == 0
        assert printed(capfdbinary) == {"running": False, "stopped": True}
        assert first.process.wait(30) == 0
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
        assert control.status(first.data_dir) == 1
        assert printed(capfdbinary) == {"running": False}
        assert control.down(first.data_dir) == 0
    finally:
        first.stop()
    second = Stack(tmp_path / "data")
    try:
        assert (second.write("kept"), second.write("new")) == (1, 2)
    finally:
        second.stop()

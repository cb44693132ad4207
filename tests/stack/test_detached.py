"""A stack in the background: `up --detach`, `status`, `down`."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from e2e.deployment import memoree, processes_of, refusal, until

pytestmark = pytest.mark.stack


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory whose stack, if there is one, is stopped after the test."""
    yield tmp_path / "stack"
    memoree("down", "--data", tmp_path / "stack")
    until(lambda: not processes_of(tmp_path / "stack"), "the end of the stack")


def test_a_stack_is_started_looked_at_and_stopped(data_dir: Path) -> None:
    assert json.loads(memoree("status", "--data", data_dir).stdout) == {"running": False}
    assert json.loads(memoree("down", "--data", data_dir).stdout) == {"running": False, "stopped": False}

    started = memoree("up", "--data", data_dir, "--detach")
    assert started.returncode == 0, started
    state = json.loads(started.stdout)
    assert httpx.get(f"{state['url']}/livez", trust_env=False).status_code == 200
    until(lambda: memoree("status", "--data", data_dir).returncode == 0, "readiness")
    shown = json.loads(memoree("status", "--data", data_dir).stdout)
    assert (shown["pid"], shown["url"], shown["ready"]) == (state["pid"], state["url"], True)

    os.killpg(state["children"][-1]["pid"], signal.SIGSTOP)
    assert memoree("status", "--data", data_dir).returncode == 1, "an api that does not answer is not ready"
    os.killpg(state["children"][-1]["pid"], signal.SIGCONT)

    stopped = memoree("down", "--data", data_dir)
    assert (stopped.returncode, json.loads(stopped.stdout)) == (0, {"running": False, "stopped": True})
    until(lambda: processes_of(data_dir) == [], "the end of the supervisor", 2)
    assert memoree("status", "--data", data_dir).returncode == 1


def test_a_stack_that_cannot_start_in_the_background_says_why(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "settings").write_text("MEMOREE_QUEUE_URL=amqp://nowhere\n")
    failed = memoree("up", "--data", data_dir, "--detach", "--settings", tmp_path / "settings")
    said = refusal(failed)
    assert "amqp://nowhere" in said and '"ok"' not in said, "the reason itself, not the envelope that it came in"
    assert processes_of(data_dir) == []

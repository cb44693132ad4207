"""`memoree serve`, with the same program as its client."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import PROGRAM, Shell


@contextmanager
def serving(shell: Shell, *options: str | Path) -> Iterator[str]:
    """A running server; gives the address it says it listens on, and asks it to end well afterwards."""
    process = subprocess.Popen(
        [PROGRAM, "serve", *options], stderr=subprocess.PIPE, cwd=shell.cwd, env=shell.environment, text=True
    )
    assert process.stderr
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("LISTENING_ON "):
                break
        assert lines and lines[-1].startswith("LISTENING_ON "), lines
        yield lines[-1].split()[1]
        process.send_signal(signal.SIGTERM)
        assert process.stderr.read() is not None
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_the_store_is_served_over_http_and_stays_open_to_others(project: Shell) -> None:
    before = project.run("claim", "assert", "fact", "Written before.").result
    with serving(project, "--port", "0") as address:
        remote = project.having(MEMOREE_ENDPOINT=f"http://{address}")
        during = remote.run("claim", "assert", "fact", "Written through HTTP.").result
        beside = project.run("claim", "assert", "fact", "Written beside the server.").result
        assert [each["commit_seq"] for each in (before, during, beside)] == [1, 2, 3]
        assert len(remote.run("search", "written").result["hits"]) == 3
        assert remote.call("search", {"query": "x", "min_commit_seq": 9}).refused("INDEX_NOT_READY", 6)
    assert project.call("doctor").result["last_commit_seq"] == 3


@pytest.mark.proves("machine-24")
def test_the_store_is_served_at_a_private_socket(project: Shell, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with serving(project, "--socket", path) as address:
        assert address == str(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        remote = project.having(MEMOREE_ENDPOINT=f"unix://{path}")
        assert remote.run("claim", "assert", "fact", "Written through frames.").result["commit_seq"] == 1
        project.run("serve", "--socket", path).refused("TRANSPORT_ERROR", 1)
    assert not path.exists()


def test_the_socket_has_a_place_of_its_own(project: Shell) -> None:
    with serving(project, "--socket") as address:
        assert address == str(project.home / "run" / "memoree.sock")
        assert stat.S_IMODE((project.home / "run").stat().st_mode) == 0o700


def test_tokens_are_asked_for_when_they_are_configured(project: Shell, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({"open-sesame": {"tenant": "local", "scopes": ["recall"]}}))
    tokens.chmod(0o600)
    with serving(project, "--port", "0", "--tokens", tokens) as address:
        remote = project.having(MEMOREE_ENDPOINT=f"http://{address}")
        remote.call("doctor").refused("UNAUTHENTICATED", 1)
        allowed = remote.having(MEMOREE_TOKEN="open-sesame")
        assert allowed.call("context.resolve").result["resolved"]
        allowed.run("claim", "assert", "fact", "x").refused("FORBIDDEN", 1)


def test_no_open_door_leaves_this_machine(project: Shell) -> None:
    project.run("serve", "--host", "0.0.0.0", "--port", "0").refused("CONFIG_ERROR", 2)
    assert not project.home.exists()


def test_a_writer_without_a_deployment_says_what_is_missing(shell: Shell) -> None:
    for command in (["worker", "writer"], ["head", "rebuild", "--tenant", "local"]):
        message = shell.run(*command).refused("CONFIG_ERROR", 2)["message"]
        assert "MEMOREE_BUCKET: is not set" in message and "--data DIR" in message


def test_a_writer_is_told_which_stack_it_works_for(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "deployment.env").write_text("MEMOREE_BUCKET=lab\n")
    assert (
        "MEMOREE_QUEUE_URL" in shell.run("worker", "writer", "--data", tmp_path).refused("CONFIG_ERROR", 2)["message"]
    )
    missing = shell.run("worker", "writer", "--data", tmp_path / "nowhere").refused("CONFIG_ERROR", 2)
    assert "deployment.env" in missing["message"]


def test_settings_of_the_stack_are_named_lines(shell: Shell) -> None:
    (shell.cwd / "wrong").write_text("# intervals\n\nLEASE_TTL_SECONDS=3\n")
    message = shell.run("up", "--settings", "wrong").refused("CONFIG_ERROR", 2)["message"]
    assert "line 3" in message
    assert not shell.home.exists()


def test_a_stack_that_does_not_run_has_no_status(shell: Shell) -> None:
    assert shell.run("status").status == 1
    assert shell.run("down").status == 0
    assert not shell.home.exists()

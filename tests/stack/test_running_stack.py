"""What a running stack shows: its one line, its files, its refusals."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path

import httpx
import pytest

from e2e.client import note
from e2e.deployment import (
    ROLE_OF_WRITER,
    Deployment,
    child_pids,
    command_line,
    deployment,
    described,
    memoree,
    processes_of,
    refusal,
    until,
)
from memoree.stack.instance import STATE_NAME

pytestmark = pytest.mark.stack

SECRET_FILES = ("seaweedfs/s3.json", "deployment.env")


def test_one_line_of_json_says_where_everything_is(stack: Deployment) -> None:
    state = stack.state
    assert httpx.get(f"{state['url']}/livez", trust_env=False).status_code == 200
    assert len(state["metrics_urls"]) == 2
    for url in state["metrics_urls"]:
        assert "memoree_http_requests" in httpx.get(url, trust_env=False).text
    assert httpx.get(f"{state['url']}/metrics", trust_env=False).status_code == 404
    assert httpx.get(state["s3_url"], trust_env=False).status_code == 403, "the store asks for credentials"
    assert (state["data_dir"], state["bucket"]) == (str(stack.data_dir), "memoree")


def test_progress_is_on_stderr(stack: Deployment) -> None:
    progress = stack.progress()
    for step in ("starting SeaweedFS", "proving the store", "starting the writer", "api process 2 of 2", "ready"):
        assert step in progress


def test_nothing_in_the_directory_is_for_other_users(stack: Deployment) -> None:
    assert stat.S_IMODE(stack.data_dir.stat().st_mode) == 0o700
    for name in SECRET_FILES:
        assert stat.S_IMODE((stack.data_dir / name).stat().st_mode) == 0o600
    secrets = {stack.deployment_variables()["MEMOREE_SECRET_ACCESS_KEY"].encode()}
    holders = [
        path.relative_to(stack.data_dir)
        for path in stack.data_dir.rglob("*")
        if path.is_file() and path.stat().st_mode & 0o077 and any(secret in path.read_bytes() for secret in secrets)
    ]
    assert holders == []


def test_no_secret_is_visible_in_a_command_line(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        client.note("the writer has its Litestream child now")
    secrets = {*stack.tokens.values(), stack.deployment_variables()["MEMOREE_SECRET_ACCESS_KEY"]}
    for pid in processes_of(stack.data_dir):
        assert not any(secret in command_line(pid) for secret in secrets), described([pid])


def test_a_second_up_on_the_directory_is_refused(stack: Deployment) -> None:
    for options in ([], ["--detach"]):
        second = memoree("up", "--data", stack.data_dir, *options)
        assert f"a stack is running on {stack.data_dir} already (process {stack.state['pid']})" in refusal(second)
    assert stack.readiness()[0] == 200


def test_a_port_in_use_is_named_and_nothing_is_left(stack: Deployment, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for option in ("--port", "--metrics-port"):
            refused = memoree("up", "--data", tmp_path / "other", option, str(port))
            assert f"port {port} cannot be used: Address already in use" in refusal(refused)
    assert processes_of(tmp_path / "other") == []


def test_a_child_that_cannot_start_is_explained(tmp_path: Path) -> None:
    with deployment(tmp_path / "broken") as stack:
        process = stack.launch(settings={"MEMOREE_QUEUE_URL": "amqp://nowhere"})
        assert process.wait(60) == 2
        assert process.stdout is not None
        message = json.loads(process.stdout.read())["error"]["message"]
        assert "amqp://nowhere" in message and "is neither sqlite:///FILE nor an SQS URL" in message
        until(lambda: not processes_of(stack.data_dir), "the end of its children", 5)


def test_a_tokens_file_that_opens_nothing_is_named_at_once(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    for content in (None, "not json", '{"x": 1}'):
        if content is not None:
            tokens.write_text(content)
        refused = memoree("up", "--data", tmp_path / "locked", "--tokens", tokens)
        assert str(tokens) in refusal(refused)
    assert processes_of(tmp_path / "locked") == []


def test_status_shows_what_runs(stack: Deployment) -> None:
    shown = memoree("status", "--data", stack.data_dir)
    answer = json.loads(shown.stdout)
    assert shown.returncode == 0, shown
    assert answer["running"] is answer["ready"] is answer["readiness"]["ready"] is True
    assert answer["url"] == stack.url
    assert [child["name"] for child in answer["children"]] == ["supervised-writer", "ingest", "jobs", "api", "api"]


def test_every_process_has_a_log_of_its_own(stack: Deployment) -> None:
    assert {"api-1.log", "api-2.log", "supervised-writer.log"} <= {path.name for path in stack.data_dir.iterdir()}


@pytest.mark.fault_class(43)
def test_status_survives_a_damaged_state_file(stack: Deployment) -> None:
    path = stack.data_dir / STATE_NAME
    sound = path.read_bytes()
    try:
        path.write_bytes(sound + b"\xff")
        shown = memoree("status", "--data", stack.data_dir)
    finally:
        path.write_bytes(sound)
    assert shown.returncode == 1
    assert json.loads(shown.stdout)["running"] is True


def test_the_writer_runs_one_litestream_per_tenant_it_holds(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        client.ok("artifact.put", note("held now"))
    (leader,) = stack.pids(ROLE_OF_WRITER)
    (program,) = child_pids(leader)
    children = [command_line(each) for launcher in child_pids(program) for each in child_pids(launcher)]
    assert children and all("litestream" in line for line in children)

"""Standard input and output, line by line: what the official client would hide."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp_support import ANSWER_SECONDS_MAX, PROGRAM, Json, environment, stdio_model

VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")


def initialize(version: str = VERSIONS[0], number: int = 0) -> Json:
    client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return {"jsonrpc": "2.0", "id": number, "method": "initialize", "params": client}


INITIALIZED: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def tool_call(number: int, name: str, **arguments: Any) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def exchange(data_dir: Path, *lines: Json | str, context: str | None = None) -> list[Json]:
    """All at once, then the end of the input. Standard output must hold JSON-RPC lines and nothing else."""
    variables = {"MEMOREE_DATA_DIR": str(data_dir), **({} if context is None else {"MEMOREE_CONTEXT": context})}
    done = subprocess.run(
        [PROGRAM, "mcp"],
        input="".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines),
        capture_output=True,
        text=True,
        env=environment(**variables, HOME=str(data_dir)),
        cwd="/",
        timeout=ANSWER_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    return answers


@pytest.mark.proves("okf-67")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_that_is_known_is_echoed(tmp_path: Path, version: str) -> None:
    (answer,) = exchange(tmp_path, initialize(version))
    assert answer["result"]["protocolVersion"] == version
    assert answer["result"]["serverInfo"]["name"] == "memoree"
    assert set(answer["result"]["capabilities"]) >= {"tools", "resources", "prompts"}


@pytest.mark.proves("okf-67")
def test_another_version_is_answered_with_one_that_is_known(tmp_path: Path) -> None:
    (answer,) = exchange(tmp_path, initialize("1999-01-01"))
    assert answer["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.proves("okf-69", "okf-70")
def test_what_is_no_request_is_told_so_and_a_notification_is_not_answered(tmp_path: Path) -> None:
    answers = exchange(
        tmp_path,
        initialize(),
        INITIALIZED,
        {"jsonrpc": "2.0", "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/brew"},
        "{ no json",
        '["a", "batch"]',
        '{"id": 5, "method": "ping"}',
        {"jsonrpc": "2.0", "id": 2, "method": "ping"},
    )
    codes = [(answer["id"], answer.get("error", {}).get("code")) for answer in answers]
    assert sorted(codes, key=str) == sorted(
        [(0, None), (1, -32601), (None, -32700), (None, -32600), (None, -32600), (2, None)], key=str
    )


@pytest.mark.proves("okf-70", "okf-72")
def test_what_was_asked_before_the_input_ended_is_answered(tmp_path: Path) -> None:
    """The client writes everything and closes the pipe at once."""
    calls = [tool_call(number, "memory_remember", text=f"note {number}") for number in range(1, 9)]
    answers = exchange(tmp_path, initialize(), INITIALIZED, *calls, tool_call(9, "memory_brew"))
    by_id = {answer["id"]: answer["result"] for answer in answers}
    assert set(by_id) == set(range(10))
    assert all(by_id[number]["structuredContent"]["created"] for number in range(1, 9))
    assert by_id[9]["isError"] is True
    assert by_id[9]["content"][0]["text"] == "Unknown tool: memory_brew"


def test_without_a_context_the_tools_are_there_and_say_what_is_missing(tmp_path: Path) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answers = exchange(tmp_path, initialize(), INITIALIZED, listing, tool_call(2, "memory_health"), context=" ")
    by_id = {answer["id"]: answer["result"] for answer in answers}
    assert len(by_id[1]["tools"]) == 19
    assert by_id[2]["content"][0]["text"].startswith("Error [NO_AMBIENT_CONTEXT]: ")
    assert "memoree init" in by_id[2]["content"][0]["text"]


def test_a_read_leaves_no_store_where_none_was(tmp_path: Path) -> None:
    data_dir = tmp_path / "nothing"
    with stdio_model(data_dir) as model:
        assert model.ok("memory_browse") == {"items": []}
        assert not data_dir.exists()
        model.ok("memory_remember", text="now there is one")
        assert len(model.ok("memory_browse")["items"]) == 1
    assert data_dir.exists()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_clients_of_both_generations_are_served(tmp_path: Path, mode: str) -> None:
    with stdio_model(tmp_path, mode=mode) as model:
        assert model.client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        assert model.ok("memory_health")["concepts"] == 0


def test_a_mistake_in_the_command_is_told_on_standard_error_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "mcp", "--endpoint", "ftp://nowhere"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=ANSWER_SECONDS_MAX,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "CONFIG_ERROR" in done.stderr and os.linesep in done.stderr

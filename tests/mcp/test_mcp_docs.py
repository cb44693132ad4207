"""What the page about MCP prints is what works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_support import PROGRAM, Model

from mcp import Client
from memoree.cli.commands import COMMANDS
from memoree.mcp.tools import AGENT_TOOLS, BUNDLE_TOOLS
from memoree.operations.registry import operation

PAGE = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text()
OPERATIONS = {
    "memory_retrieve": ["memory.retrieve"],
    "memory_remember": ["artifact.put", "claim.assert"],
    "memory_browse": ["memory.list"],
    "memory_forget": ["artifact.forget"],
    "claim_retract": ["claim.retract"],
    "context_build": ["context.build"],
    "conflict_list": ["conflict.list"],
    "citation_get": ["citation.get"],
    "memory_answer_pack": ["answer.pack"],
    "memory_search": ["okf.search"],
    "memory_get": ["okf.get"],
    "memory_list": ["okf.list"],
    "memory_write_inbox": ["inbox.put"],
    "memory_handoff": ["okf.handoff"],
    "memory_health": ["okf.health"],
    "memory_ledger_append": ["ledger.append"],
    "memory_ledger_status": ["ledger.status"],
    "memory_fleet_status": [],
    "memory_fleet_assign": [],
}


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return found


@pytest.fixture
def newcomer(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who has installed the project and set nothing, in a project of theirs."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MEMOREE_")}
    environment = {
        **inherited,
        "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "share"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    (tmp_path / "my-project").mkdir()
    typed = [line[2:] for line in block("console").splitlines()]
    assert typed[0] == "pip install 'memoree[mcp]'"
    subprocess.run(
        ["bash", "-euc", "\n".join(typed[1:])], cwd=tmp_path, env=environment, check=True, capture_output=True
    )
    return environment


def test_the_server_entry_starts_a_server(tmp_path: Path, newcomer: dict[str, str]) -> None:
    (entry,) = json.loads(block("json"))["mcpServers"].values()
    parameters = StdioServerParameters(
        command=entry["command"], args=entry["args"], env={**newcomer, **entry["env"]}, cwd=tmp_path / "my-project"
    )

    def connecting() -> Callable[[AsyncExitStack], Awaitable[Client]]:
        async def connect(stack: AsyncExitStack) -> Client:
            return await stack.enter_async_context(Client(stdio_client(parameters)))

        return connect

    with Model(connecting()) as model:
        told = model.ok("memory_ledger_append", topic="kiln", phase="start", action="lit")
        assert told["actor"] == "claude-code"


def test_the_program_prints_what_the_page_says(tmp_path: Path, newcomer: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("python")],
        cwd=tmp_path / "my-project",
        env=newcomer,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "The kiln is booked until Friday.\n", done.stderr
    assert f"It prints `{done.stdout.strip()}`" in PAGE


def test_every_tool_stands_in_the_table_with_its_scope() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (?:`(\w+)`)? ?\|$", PAGE, flags=re.MULTILINE))
    assert list(rows) == [tool.name for tool in (*AGENT_TOOLS, *BUNDLE_TOOLS)] == list(OPERATIONS)
    for name, scope in rows.items():
        asked = [operation(op) for op in OPERATIONS[name]]
        assert {found.scope for found in asked if found is not None} == ({scope} if scope else set()), name


def test_the_command_is_there() -> None:
    assert COMMANDS["mcp"] == "memoree.cli.mcp:mcp_command"

"""What the page about MCP prints is what works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_support import PROGRAM, Model

from mcp import Client
from memoree.cli.commands import COMMANDS
from memoree.mcp.tools import AGENT_TOOLS, BUNDLE_TOOLS
from memoree.operations.registry import operation

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mcp.md").read_text()
README = (ROOT / "README.md").read_text()
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


def block(language: str, text: str = PAGE) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
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


def started(document: str, environment: dict[str, str], project: Path) -> Model:
    """A client of the server that a host finds in such a document."""
    (entry,) = json.loads(document)["mcpServers"].values()
    parameters = StdioServerParameters(
        command=entry["command"], args=entry["args"], env={**environment, **entry.get("env", {})}, cwd=project
    )

    async def connect(stack: AsyncExitStack) -> Client:
        return await stack.enter_async_context(Client(stdio_client(parameters)))

    return Model(connect)


def test_the_server_entry_starts_a_server(tmp_path: Path, newcomer: dict[str, str]) -> None:
    with started(block("json"), newcomer, tmp_path / "my-project") as model:
        told = model.ok("memory_ledger_append", topic="kiln", phase="start", action="lit")
        assert told["actor"] == "claude-code"


@pytest.mark.fault_class(7)
def test_what_the_readme_installs_is_a_memory_that_the_shell_shares(tmp_path: Path, newcomer: dict[str, str]) -> None:
    project = tmp_path / "my-project"
    section = README.partition("## Give it to an agent\n")[2].partition("\n## ")[0]
    typed = [line.removeprefix("$ ") for line in block("console", section).splitlines()]
    assert typed[-1] == "cat .mcp.json"
    printed = subprocess.run(
        ["bash", "-euc", "\n".join([f"{typed[0]} >&2", typed[1]])],
        cwd=project,
        env=newcomer,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    with started(printed, newcomer, project) as model:
        text = "The glaze for the tall vases is celadon."
        model.ok("memory_remember", text=text, claims=[{"statement": text, "quote": "celadon"}])
    line = ["memoree", "recall", "which glaze do the tall vases get", "--json"]
    answer = subprocess.run(line, cwd=project, env=newcomer, check=True, capture_output=True, text=True).stdout
    assert [claim["statement"] for claim in json.loads(answer)["result"]["claims"]] == [text]


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

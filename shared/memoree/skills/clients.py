"""Where each client looks for instructions and for MCP servers, and what is written there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, get_args

Client = Literal["claude-code", "codex", "cursor", "vscode", "gemini", "generic"]
Scope = Literal["project", "user"]
CLIENTS: tuple[Client, ...] = get_args(Client)
SCOPES: tuple[Scope, ...] = get_args(Scope)

SERVER = "memoree"
COMMAND = "memoree"
_DESCRIPTION = (
    "Answer from the project's memory and write to it. Use it for questions about past decisions, plans, preferences, "
    "people, organisations, the state of projects and tasks, and meeting preparation. Not for plain coding questions."
)


@dataclass(frozen=True, slots=True)
class Instructions:
    """A file that teaches the agent. With a `header` the file is this program's alone, and begins with it; without one
    the text is a block in a file of somebody else."""

    path: str
    header: str = ""


@dataclass(frozen=True, slots=True)
class Servers:
    """A file that names MCP servers: JSON with the servers under `member`, or TOML."""

    path: str
    member: str
    has_type: bool = False
    """Whether an entry says that it is a program to start."""

    @property
    def is_toml(self) -> bool:
        return self.path.endswith(".toml")


@dataclass(frozen=True, slots=True)
class Places:
    """What is written for a client in one scope, relative to the project or to the home directory. `by_hand` are the
    steps that nobody can take for the user."""

    instructions: Instructions | None
    servers: Servers | None
    by_hand: Sequence[str] = ()


_SKILL_HEADER = f"---\nname: {SERVER}\ndescription: {_DESCRIPTION}\n---\n"
_RULE_HEADER = f"---\ndescription: {_DESCRIPTION}\nalwaysApply: false\n---\n"
_SKILL = Instructions(".claude/skills/memoree/SKILL.md", _SKILL_HEADER)

_PLACES: Mapping[Client, Mapping[Scope, Places]] = {
    "claude-code": {
        "project": Places(_SKILL, Servers(".mcp.json", "mcpServers")),
        "user": Places(_SKILL, None, [f"claude mcp add --scope user {SERVER} -- {COMMAND} mcp"]),
    },
    "codex": {
        "project": Places(
            Instructions("AGENTS.md"),
            Servers(".codex/config.toml", "mcp_servers"),
            ["the server starts once the project is trusted"],
        ),
        "user": Places(Instructions(".codex/AGENTS.md"), Servers(".codex/config.toml", "mcp_servers")),
    },
    "cursor": {
        "project": Places(
            Instructions(".cursor/rules/memoree.mdc", _RULE_HEADER), Servers(".cursor/mcp.json", "mcpServers")
        ),
        "user": Places(
            None,
            Servers(".cursor/mcp.json", "mcpServers"),
            ["rules of a user are kept in the settings: paste what `memoree skill show` prints"],
        ),
    },
    "vscode": {
        "project": Places(
            Instructions(".github/copilot-instructions.md"), Servers(".vscode/mcp.json", "servers", has_type=True)
        ),
    },
    "gemini": {
        "project": Places(Instructions("GEMINI.md"), Servers(".gemini/settings.json", "mcpServers")),
        "user": Places(Instructions(".gemini/GEMINI.md"), Servers(".gemini/settings.json", "mcpServers")),
    },
    "generic": {
        "project": Places(Instructions("AGENTS.md"), None, [f"let the client start the MCP server `{COMMAND} mcp`"]),
    },
}


def places(client: Client, scope: Scope) -> Places | None:
    """`None` where the client has no files of that scope that could be written for the user."""
    return _PLACES[client].get(scope)


def text() -> str:
    """What the agent is taught, the same for every client."""
    return (resources.files(__package__) / "memory.md").read_text(encoding="utf-8")


def entry(servers: Servers, options: Sequence[str]) -> dict[str, Any]:
    """The server as the client starts it; `options` go before the command."""
    kind = {"type": "stdio"} if servers.has_type else {}
    return {**kind, "command": COMMAND, "args": [*options, "mcp"]}

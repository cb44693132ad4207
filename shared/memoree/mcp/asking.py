"""Who calls a tool, and how a tool asks the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memoree.mcp.keys import content_key

Result = Mapping[str, Any]
Ask = Callable[[str, Mapping[str, Any], str | None], Awaitable[Result]]
"""Runs an operation with its input and, where it writes, its idempotency key. Raises what it refused with, and never
ends with a write that is not decided."""


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a tool is called: `context` is the ambient one, `agent` the name that writes are ascribed to."""

    ask: Ask
    context: Mapping[str, Any]
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool. `window` keeps apart calls that are meant to count each time."""

    caller: Caller
    tool: str
    arguments: Mapping[str, Any]
    now: datetime
    window: tuple[str, ...] = ()

    @property
    def actor(self) -> dict[str, str]:
        """The member that says who writes, for the inputs that have one."""
        return {} if self.caller.agent is None else {"actor": self.caller.agent}

    async def read(self, op: str, input: Mapping[str, Any]) -> Result:
        return await self.caller.ask(op, input, None)

    async def write(self, op: str, input: Mapping[str, Any], *part: str) -> Result:
        """One of the call's writes; `part` tells it from the others."""
        key = content_key(self.tool, self.caller.context, self.arguments, input, *self.window, *part)
        return await self.caller.ask(op, input, key)

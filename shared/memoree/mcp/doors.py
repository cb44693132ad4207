"""The tools of a profile, free of any transport: what there is, and what becomes of a call."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from memoree import clock
from memoree.clock import Clock
from memoree.envelope import parse
from memoree.errors import Code, MemoreeError, shown
from memoree.mcp.asking import Call, Caller
from memoree.mcp.keys import minute_of
from memoree.mcp.refusals import text_of
from memoree.mcp.tools import PROFILE_DEFAULT, PROFILES, Tool

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to. `payload` is absent of a failure, whose reason is the text."""

    text: str
    payload: Mapping[str, Any] | None = None

    @property
    def is_error(self) -> bool:
        return self.payload is None


class ToolServer:
    """One caller's tools. Never raises for a call: a model reads what went wrong, and calls again."""

    def __init__(self, caller: Caller, *, profile: str = PROFILE_DEFAULT, clock_now: Clock = clock.utc_now) -> None:
        self.tools = PROFILES[profile]
        self._caller = caller
        self._clock = clock_now

    async def call(self, name: str, arguments: Mapping[str, Any] | None) -> Outcome:
        tool = self.tools.get(name)
        if tool is None:
            return Outcome(f"Unknown tool: {name[:120]}")
        try:
            payload = await self._run(tool, arguments or {})
        except MemoreeError as error:
            return Outcome(text_of(error))
        except Exception:
            log.exception("the tool %s failed", name)
            return Outcome(text_of(MemoreeError(Code.INTERNAL_ERROR, "the tool failed; see the log of the server")))
        text = orjson.dumps(payload, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
        return Outcome(text, payload)

    async def _run(self, tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        wanted = parse(tool.arguments, _without_nulls(tool, arguments))
        now = self._clock()
        window = (minute_of(now),) if tool.by_minute else ()
        call = Call(self._caller, tool.name, wanted.model_dump(exclude_none=True), now, window)
        return await tool.run(call, wanted)


def _without_nulls(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Models send null for what they leave out; that is the same as to leave it out, where it may be. Raises
    `INVALID_REQUEST` for a name the tool does not have."""
    known = tool.arguments.model_fields
    for name in arguments:
        if name not in known:
            offered = ", ".join(known) or "nothing"
            raise MemoreeError(
                Code.INVALID_REQUEST, f"{tool.name} does not know the argument {shown(name)}; it takes {offered}"
            )
    return {name: value for name, value in arguments.items() if value is not None or known[name].is_required()}

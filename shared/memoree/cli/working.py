"""`memoree worker writer`: the writer of a deployment as a process of its own."""

from __future__ import annotations

import asyncio

from pydantic import ValidationError

from memoree.errors import Code, MemoreeError
from memoree.settings import StackSettings
from memoree.stack.processes import configure_logging, run_writer


def work_as_writer() -> int:
    """Until SIGTERM or SIGINT. Raises `CONFIG_ERROR` when the environment does not describe a deployment."""
    configure_logging()
    asyncio.run(run_writer(_settings(), supervised=False))
    return 0


def _settings() -> StackSettings:
    try:
        return StackSettings()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = "MEMOREE_" + "_".join(str(part) for part in first["loc"]).upper()
        raise MemoreeError(Code.CONFIG_ERROR, f"{name}: {first['msg']}") from None

"""Commands that work on a deployment from inside: its writer, and repairs."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import asdict
from pathlib import Path

import orjson
from pydantic import ValidationError

from memoree.assembly import replicator, s3_settings
from memoree.cli.serving import read_deployment
from memoree.errors import Code, MemoreeError
from memoree.objects.s3 import S3Store
from memoree.replication.head import Head
from memoree.replication.rebuild import rebuild_head
from memoree.settings import StackSettings
from memoree.stack.processes import configure_logging, run_writer


def work_as_writer() -> int:
    """Until SIGTERM or SIGINT. Raises `CONFIG_ERROR` when the environment does not describe a deployment."""
    configure_logging()
    asyncio.run(run_writer(_settings(), supervised=False))
    return 0


def rebuild_head_of(tenant: str, data_dir: Path | None) -> int:
    """Prints the new head. `data_dir` is a running stack's; without it the environment describes the deployment."""
    if data_dir is not None:
        os.environ.update(read_deployment(data_dir))
    head = asyncio.run(_rebuild(_settings(), tenant))
    sys.stdout.buffer.write(orjson.dumps(asdict(head), option=orjson.OPT_APPEND_NEWLINE))
    return 0


async def _rebuild(settings: StackSettings, tenant: str) -> Head:
    async with S3Store(s3_settings(settings)) as store:
        return await rebuild_head(store, replicator(settings), tenant)


def _settings() -> StackSettings:
    try:
        return StackSettings()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = "MEMOREE_" + "_".join(str(part) for part in first["loc"]).upper()
        reason = first["msg"]
        if first["type"] == "missing":
            reason = "is not set; describe the deployment by MEMOREE_ variables, or name a running stack by --data DIR"
        raise MemoreeError(Code.CONFIG_ERROR, f"{name}: {reason}") from None

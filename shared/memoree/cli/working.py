"""Commands that work on a deployment from inside: its writer, and repairs."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path

import orjson

from memoree.assembly import replicator, s3_settings
from memoree.cli.jobs import deployment_settings
from memoree.objects.s3 import S3Store
from memoree.replication.head import Head
from memoree.replication.rebuild import rebuild_head
from memoree.settings import StackSettings
from memoree.stack.processes import configure_logging, run_jobs, run_writer


def work_as_writer(data_dir: Path | None) -> int:
    """Until SIGTERM or SIGINT. Raises `CONFIG_ERROR` when there is no such deployment."""
    settings = deployment_settings(data_dir)
    configure_logging()
    asyncio.run(run_writer(settings, supervised=False))
    return 0


def work_on_schedule(data_dir: Path | None) -> int:
    """Until SIGTERM or SIGINT. Raises `CONFIG_ERROR` when there is no such deployment."""
    settings = deployment_settings(data_dir)
    configure_logging()
    asyncio.run(run_jobs(settings))
    return 0


def rebuild_head_of(tenant: str, data_dir: Path | None) -> int:
    """Prints the new head. `data_dir` is a running stack's; without it the environment describes the deployment."""
    head = asyncio.run(_rebuild(deployment_settings(data_dir), tenant))
    sys.stdout.buffer.write(orjson.dumps(asdict(head), option=orjson.OPT_APPEND_NEWLINE))
    return 0


async def _rebuild(settings: StackSettings, tenant: str) -> Head:
    async with S3Store(s3_settings(settings)) as store:
        return await rebuild_head(store, replicator(settings), tenant)

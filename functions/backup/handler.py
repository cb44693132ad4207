"""Backups on AWS Lambda: `functions.backup.handler.handler`, for the schedule's `{"job": "backup"}`."""

from __future__ import annotations

from memoree.jobs import scheduled
from memoree.jobs.replicated import JobSite
from memoree.serverless.jobs import Finding, JobEvent, JobFunction


async def backup(site: JobSite, tenant: str, event: JobEvent) -> Finding:
    return Finding.of(await scheduled.back_up(site, tenant))


handler = JobFunction("backup", backup)

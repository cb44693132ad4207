"""Garbage collection on AWS Lambda: `functions.gc.handler.handler`, for the schedule's `{"job": "gc"}`."""

from __future__ import annotations

from memoree.jobs import scheduled
from memoree.jobs.replicated import JobSite
from memoree.serverless.jobs import Finding, JobEvent, JobFunction


async def gc(site: JobSite, tenant: str, event: JobEvent) -> Finding:
    return Finding.of(await scheduled.collect(site, tenant))


handler = JobFunction("gc", gc, unborn=True)

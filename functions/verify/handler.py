"""Verification on AWS Lambda: `functions.verify.handler.handler`, for the schedule's `{"job": "verify"}`."""

from __future__ import annotations

from memoree.jobs import scheduled
from memoree.jobs.replicated import JobSite
from memoree.replication import layout
from memoree.replication.head import HeadFile
from memoree.serverless.jobs import Finding, JobEvent, JobFunction

ISSUES = "Issues"
LEASE_SECONDS = "LeaseSeconds"
"""How long ago a head that nobody released was written: its writer died, and no later write took over."""


async def verify(site: JobSite, tenant: str, event: JobEvent) -> Finding:
    done = await scheduled.verify(site, tenant, full=event.full)
    reading = await HeadFile(site.store, layout.tenant_prefix(tenant)).read()
    is_held = reading is not None and reading.head.owner is not None and reading.head.released_at is None
    age = reading.age.total_seconds() if reading is not None and is_held else 0.0
    return Finding.of(done, {ISSUES: float(done.problems), LEASE_SECONDS: age})


handler = JobFunction("verify", verify, measured=(ISSUES, LEASE_SECONDS))

"""Scheduled jobs as functions: an event names the job, and one tenant or none for all of them.

    {"job": "backup"}    {"job": "verify", "tenant": "acme", "full": true}

A tenant that fails keeps no other from its turn. What came of all is logged as one line, counted as metrics, and
returned; an event in which anything failed, or for which the time did not suffice, ends in `JobFailed`, so that the
platform counts it as a failure too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from memoree.assembly import job_site
from memoree.errors import Code, MemoreeError
from memoree.jobs.replicated import JobSite
from memoree.jobs.schedule import Done
from memoree.objects import ObjectStoreError
from memoree.objects.blobs import check_tenant
from memoree.serverless.container import Container, Context, seconds_to_work
from memoree.settings import StackSettings

METRICS_NAMESPACE = "Memoree"
METRICS_DIMENSION = "Function"

log = logging.getLogger(__name__)


class JobEvent(BaseModel):
    """The input of a schedule. `full`: look at every byte where a job otherwise takes samples."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    job: str
    tenant: str | None = None
    full: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """What a job did for one tenant. `measures` become metrics: the worst of all tenants counts."""

    ok: bool
    result: Mapping[str, Any]
    measures: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, done: Done, measures: Mapping[str, float] | None = None) -> Finding:
        problem = {} if done.problem is None else {"problem": done.problem}
        return cls(done.problem is None, done.result | problem, measures or {})


Job = Callable[[JobSite, str, JobEvent], Awaitable[Finding]]


class JobFailed(Exception):
    """Something failed for some tenant; the message is the whole report."""


class JobFunction:
    """A handler for Lambda. `measured` are the metrics that the job tells, so that they are told as zero too; `unborn`
    says whether it also works on tenants that have objects and no history."""

    def __init__(self, name: str, job: Job, measured: tuple[str, ...] = (), *, unborn: bool = False) -> None:
        self.container = Container(lambda: job_site(StackSettings()))
        self._name = name
        self._job = job
        self._measured = measured
        self._unborn = unborn

    def __call__(self, event: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """The report. Raises `JobFailed`, and `CONFIG_ERROR` for an event that is not one of this job."""
        asked = self._asked(event)
        report = self.container.run(lambda site: self._run(site, asked, seconds_to_work(context)))
        if not report["ok"]:
            raise JobFailed(orjson.dumps(report).decode())
        return report

    def _asked(self, event: Mapping[str, Any]) -> JobEvent:
        try:
            asked = JobEvent.model_validate(event)
            if asked.tenant is not None:
                check_tenant(asked.tenant)
        except (ValidationError, MemoreeError) as error:
            raise MemoreeError(Code.CONFIG_ERROR, f"not the event of a job: {error}") from error
        if asked.job != self._name:
            raise MemoreeError(Code.CONFIG_ERROR, f"this function does {self._name}, not {asked.job}")
        return asked

    async def _run(self, site: JobSite, asked: JobEvent, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        tenants = [asked.tenant] if asked.tenant is not None else await self._all(site)
        random.shuffle(tenants)  # whom time did not suffice for, it does another day
        findings: dict[str, Finding] = {}
        for tenant in tenants:
            if (left := deadline - time.monotonic()) <= 0:
                break
            findings[tenant] = await self._of_tenant(site, tenant, asked, left)
        unreached = sorted(set(tenants) - findings.keys())
        report = {
            "job": self._name,
            "ok": not unreached and all(found.ok for found in findings.values()),
            "tenants": {tenant: found.result for tenant, found in findings.items()},
            "unreached": unreached,
        }
        log.info("%s", orjson.dumps(report).decode())
        self._tell(findings, unreached)
        return report

    async def _all(self, site: JobSite) -> list[str]:
        return [tenant async for tenant in (site.tenants() if self._unborn else site.tenants_with_history())]

    async def _of_tenant(self, site: JobSite, tenant: str, asked: JobEvent, seconds: float) -> Finding:
        try:
            async with asyncio.timeout(seconds):
                return await self._job(site, tenant, asked)
        except TimeoutError:
            return Finding(False, {"error": f"not done within the {seconds:.0f} s that were left"})
        except (MemoreeError, ObjectStoreError, OSError) as error:
            log.exception("%s of tenant %s failed", self._name, tenant)
            return Finding(False, {"error": str(error)})

    def _tell(self, findings: Mapping[str, Finding], unreached: list[str]) -> None:
        """CloudWatch's embedded metric format: one line of standard output."""
        measures = dict.fromkeys(self._measured, 0.0)
        for found in findings.values():
            for name, value in found.measures.items():
                measures[name] = max(measures[name], value)
        measures["Failures"] = sum(not found.ok for found in findings.values())
        measures["Unreached"] = len(unreached)
        metrics = [{"Name": name} for name in measures]
        directive = {"Namespace": METRICS_NAMESPACE, "Dimensions": [[METRICS_DIMENSION]], "Metrics": metrics}
        line = {
            "_aws": {"Timestamp": round(time.time() * 1000), "CloudWatchMetrics": [directive]},
            METRICS_DIMENSION: os.environ.get("AWS_LAMBDA_FUNCTION_NAME", self._name),
            **measures,
        }
        sys.stdout.write(orjson.dumps(line).decode() + "\n")
        sys.stdout.flush()

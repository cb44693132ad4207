"""What a scheduler tells of itself: a file for `memoree status`, and one that a metrics agent picks up. Both are on its
own host, so that looking costs the store nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from memoree import clock, limits
from memoree.private_file import write_private

if TYPE_CHECKING:
    from memoree.jobs.schedule import Planned, Scheduler

STATUS_NAME = "jobs-status.json"
METRICS_NAME = "jobs.prom"
TENANTS_TOLD_MAX = 20

_METRICS = {
    "memoree_job_last_success_timestamp_seconds": (
        "When the job last succeeded, or was of no use, for the tenant of which that is longest ago.",
        "last_success_at",
    ),
    "memoree_job_due_timestamp_seconds": ("When the job is due next.", "due_at"),
    "memoree_job_failing_tenants": ("Tenants of which the job's last run broke off.", "failing"),
    "memoree_job_problems": ("What the job's last runs found wrong.", "problems"),
}


def tell(scheduler: Scheduler[Any], directory: Path) -> None:
    """Write both files. Raises `OSError`."""
    told = {name: _of_job(scheduler, name) for name in scheduler.jobs}
    document = {name: {**facts, **_wire_instants(facts)} for name, facts in told.items()}
    write_private(directory / STATUS_NAME, orjson.dumps(document, option=orjson.OPT_INDENT_2))
    write_private(directory / METRICS_NAME, "".join(_exposition(told)).encode())


def read_status(directory: Path, now: datetime) -> dict[str, Any] | None:
    """What was told last, each job with whether it is `overdue`; `None` where nothing readable was."""
    try:
        jobs: dict[str, Any] = orjson.loads((directory / STATUS_NAME).read_bytes())
        for facts in jobs.values():
            due_at = facts["due_at"]
            late = timedelta(seconds=limits.JOBS_OVERDUE_SECONDS)
            facts["overdue"] = due_at is not None and datetime.fromisoformat(due_at) + late < now
    except (OSError, orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return jobs


def _of_job(scheduler: Scheduler[Any], name: str) -> dict[str, Any]:
    planned = {tenant: each for (job, tenant), each in scheduler.plan.items() if job == name}
    fine = [each.fine_at for each in planned.values() if each.fine_at is not None]
    return {
        "every_seconds": scheduler.jobs[name].every_seconds,
        "tenants": len(planned),
        "due_at": min((each.due for each in planned.values()), default=None),
        "last_success_at": min(fine) if fine and len(fine) == len(planned) else None,
        "failing": sum(each.runs.failures > 0 for each in planned.values()),
        "problems": sum(each.runs.problems for each in planned.values()),
        "told": dict(list(_told(planned))[:TENANTS_TOLD_MAX]),
    }


def _told(planned: Mapping[str, Planned]) -> Iterator[tuple[str, str]]:
    for tenant, each in sorted(planned.items()):
        if (text := each.runs.error or each.runs.problem) is not None:
            yield tenant, text


def _wire_instants(facts: Mapping[str, Any]) -> dict[str, str]:
    return {name: clock.wire(clock.stored(value)) for name, value in facts.items() if isinstance(value, datetime)}


def _exposition(told: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for metric, (help_, member) in _METRICS.items():
        yield f"# HELP {metric} {help_}\n# TYPE {metric} gauge\n"
        for name, facts in told.items():
            value = facts[member]
            if value is not None:
                yield f'{metric}{{job="{name}"}} {value.timestamp() if isinstance(value, datetime) else value}\n'
    if "verify" in told:
        yield "# HELP memoree_verify_issues Issues that the last verifications found.\n"
        yield f"# TYPE memoree_verify_issues gauge\nmemoree_verify_issues {told['verify']['problems']}\n"

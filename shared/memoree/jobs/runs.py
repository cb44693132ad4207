"""What is kept of a job's runs, in the store, so that no restart runs everything again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

import orjson

from memoree import clock
from memoree.objects import ObjectMissing, ObjectStore
from memoree.replication import layout
from memoree.replication.head import HeadFile


@dataclass(frozen=True, slots=True)
class Runs:
    """Of one job and tenant; instants are in stored form.

    `ran_at` is when the last run ended that got to its end, `problems` counts what that found wrong and `problem` says
    what; `succeeded_at` is when one last found nothing. `seen` tells the state of the tenant that it was about.
    `failures` of the runs since then broke off, the last at `failed_at` because of `error`.
    """

    ran_at: str | None = None
    succeeded_at: str | None = None
    seen: str | None = None
    problems: int = 0
    problem: str | None = None
    again_at: str | None = None
    failures: int = 0
    failed_at: str | None = None
    error: str | None = None

    @property
    def is_fine(self) -> bool:
        """Whether the last run got to its end and found nothing wrong."""
        return self.ran_at is not None and self.failures == 0 and self.problems == 0

    def after_run(
        self, now: datetime, seen: str, problems: int, problem: str | None, again_seconds: float | None
    ) -> Runs:
        ran_at = clock.stored(now)
        return Runs(
            ran_at=ran_at,
            succeeded_at=self.succeeded_at if problems else ran_at,
            seen=seen,
            problems=problems,
            problem=problem,
            again_at=None if again_seconds is None else clock.stored(now + timedelta(seconds=again_seconds)),
        )

    def after_failure(self, now: datetime, error: str) -> Runs:
        return replace(self, failures=self.failures + 1, failed_at=clock.stored(now), error=error)


async def read_runs(store: ObjectStore, job: str, tenant: str) -> Runs:
    """Of a job that never ran, and where nothing readable is kept of it, the first. Raises `StoreUnavailable`."""
    try:
        found = await store.get(layout.job_key(tenant, job))
    except ObjectMissing:
        return Runs()
    assert found is not None, "a GET without a condition always has a body"
    try:
        document = orjson.loads(found.body)
        runs = Runs(**{name: document[name] for name in Runs.__dataclass_fields__})
        for instant in (runs.ran_at, runs.again_at, runs.failed_at):
            if instant is not None:
                clock.from_stored(instant)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return Runs()
    return runs


async def write_runs(store: ObjectStore, job: str, tenant: str, runs: Runs) -> None:
    """Nothing is kept of a tenant that was deleted meanwhile. Raises `StoreUnavailable`: then the job may be run once
    more."""
    key = layout.job_key(tenant, job)
    await store.put(key, orjson.dumps(asdict(runs)))
    head = HeadFile(store, layout.tenant_prefix(tenant))
    try:
        await store.head(head.key)
    except ObjectMissing:
        if not await head.has_remains():
            await store.delete(key)

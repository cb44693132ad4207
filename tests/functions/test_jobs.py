"""What a scheduled function makes of its event: every tenant has its turn, and nothing that failed stays unsaid."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from functions_support import Json, Remaining

from memoree.errors import Code, MemoreeError
from memoree.objects import StoreUnavailable
from memoree.serverless import jobs
from memoree.serverless.container import SETTLING_SECONDS
from memoree.serverless.jobs import Finding, JobEvent, JobFailed, JobFunction

TENANTS = ("acme", "bolt", "cord")


class Tenants:
    """All that `JobFunction` itself asks of a deployment."""

    async def tenants_with_history(self) -> AsyncIterator[str]:
        for tenant in TENANTS:
            yield tenant


@pytest.fixture(autouse=True)
def deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def site(settings: object) -> AsyncIterator[Any]:
        yield Tenants()

    monkeypatch.setattr(jobs, "job_site", site)
    for name in ("BUCKET", "QUEUE_URL", "RUNTIME_DIR"):
        monkeypatch.setenv(f"MEMOREE_{name}", "unused")


class Work:
    """A job that fails, hangs or measures as it is told."""

    def __init__(self, **outcomes: BaseException | Finding | float) -> None:
        self.asked: list[JobEvent] = []
        self.served: set[str] = set()
        self._outcomes = outcomes

    async def __call__(self, site: object, tenant: str, event: JobEvent) -> Finding:
        self.asked.append(event)
        self.served.add(tenant)
        outcome = self._outcomes.get(tenant, Finding(True, {"done": tenant}))
        if isinstance(outcome, BaseException):
            raise outcome
        if isinstance(outcome, float):
            await asyncio.sleep(outcome)
            return Finding(True, {})
        return outcome


@pytest.fixture
def run() -> Iterator[Any]:
    made: list[JobFunction] = []

    def ran(work: Work, event: Json, seconds: float = 60.0) -> Json:
        function = JobFunction("count", work, measured=("Issues",))
        made.append(function)
        try:
            return function(event, Remaining(seconds))
        except JobFailed as failed:
            report: Json = json.loads(str(failed))
            assert not report["ok"]
            return report

    yield ran
    for function in made:
        function.container.close()


def metrics(text: str) -> Json:
    """The line of embedded metrics, which must say of each value that it is one."""
    line: Json = json.loads(text.strip().splitlines()[-1])
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Dimensions"] == [["Function"]] and directive["Namespace"] == "Memoree"
    return {metric["Name"]: line[metric["Name"]] for metric in directive["Metrics"]}


def test_every_tenant_has_its_turn(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    report = run(Work(), {"job": "count"})
    assert report == {
        "job": "count",
        "ok": True,
        "tenants": {tenant: {"done": tenant} for tenant in TENANTS},
        "unreached": [],
    }
    assert metrics(capsys.readouterr().out) == {"Issues": 0, "Failures": 0, "Unreached": 0}


def test_one_tenant_may_be_named(run: Any) -> None:
    work = Work()
    assert list(run(work, {"job": "count", "tenant": "other", "full": True})["tenants"]) == ["other"]
    assert [event.full for event in work.asked] == [True]


@pytest.mark.parametrize(
    "error", [StoreUnavailable("down"), MemoreeError(Code.INTEGRITY_ERROR, "broken"), OSError(28, "full")]
)
def test_a_tenant_that_fails_keeps_no_other_from_its_turn(
    run: Any, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    work = Work(bolt=error)
    report = run(work, {"job": "count"})
    assert work.served == set(TENANTS)
    assert (report["ok"], "error" in report["tenants"]["bolt"]) == (False, True)
    assert metrics(capsys.readouterr().out)["Failures"] == 1


def test_damage_that_was_found_is_a_failure_and_the_worst_of_all_tenants_is_told(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    work = Work(acme=Finding(False, {}, {"Issues": 3}), cord=Finding(True, {}, {"Issues": 1}))
    assert not run(work, {"job": "count"})["ok"]
    assert metrics(capsys.readouterr().out) == {"Issues": 3, "Failures": 1, "Unreached": 0}


def test_whom_time_did_not_suffice_for_is_named(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    work = Work(**dict.fromkeys(TENANTS, 30.0))
    report = run(work, {"job": "count"}, SETTLING_SECONDS + 0.05)
    (late,) = report["tenants"]
    assert "not done within" in report["tenants"][late]["error"]
    assert sorted([late, *report["unreached"]]) == list(TENANTS)
    assert metrics(capsys.readouterr().out) == {"Issues": 0, "Failures": 1, "Unreached": 2}


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"job": "other"},
        {"job": "count", "tenants": []},
        {"job": "count", "tenant": "../x"},
        {"job": "count", "full": 1},
    ],
)
def test_an_event_that_is_not_of_this_job_is_refused(event: Json) -> None:
    work = Work()
    with pytest.raises(MemoreeError, match=r"job|does count, not other") as refused:
        JobFunction("count", work)(event, Remaining())
    assert refused.value.code is Code.CONFIG_ERROR
    assert work.served == set()

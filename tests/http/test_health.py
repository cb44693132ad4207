"""Liveness, readiness and health."""

from __future__ import annotations

import asyncio
import time

import pytest
from http_support import Caller, Scripted

from memoree.http.health import Readiness
from memoree.http.services import ServiceHolder
from memoree.service import Check


def test_a_working_store_is_ready(caller: Caller) -> None:
    report = caller.http.get("/readyz")
    assert (report.status_code, report.json()["ready"]) == (200, True)
    assert report.json()["checks"]["store"]["ok"] is True
    assert caller.http.get("/livez").json() == {"ok": True}
    health = caller.http.get("/healthz").json()
    assert (health["ok"], type(health["version"])) == (True, str)


@pytest.mark.fault_class(1)
@pytest.mark.fault_class(48)
@pytest.mark.proves("operations-6")
def test_one_red_check_makes_readiness_red_and_says_why(scripted: Scripted, scripted_caller: Caller) -> None:
    scripted.checks = [Check("store", ok=True), Check("clock", ok=False, detail="clock skew of 960 s to the store")]
    report = scripted_caller.http.get("/readyz")

    assert (report.status_code, report.json()["ready"]) == (503, False)
    clock = {"ok": False, "detail": "clock skew of 960 s to the store", "measures": {}}
    assert report.json()["checks"]["clock"] == clock
    assert scripted_caller.http.get("/livez").status_code == 200


class Slow(Scripted):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.released = asyncio.Event()

    async def readiness(self) -> list[Check]:
        self.asked += 1
        await self.released.wait()
        return self.checks


def test_a_check_that_hangs_is_red_in_time_and_is_asked_once() -> None:
    async def probe() -> None:
        service = Slow()
        readiness = Readiness(ServiceHolder(service), None, timeout_seconds=0.05)
        started = time.monotonic()
        reports = await asyncio.gather(*(readiness.report() for _ in range(10)))
        assert time.monotonic() - started < 5.0
        assert {report.ready for report in reports} == {False}
        assert "no answer" in reports[0].checks[0].detail
        assert service.asked == 1
        service.released.set()
        assert (await readiness.report()).ready
        await readiness.close()

    asyncio.run(probe())


def test_a_report_is_cached_for_a_few_seconds() -> None:
    async def probe() -> None:
        now = 100.0
        service = Slow()
        service.released.set()
        readiness = Readiness(ServiceHolder(service), None, cache_seconds=3.0, monotonic=lambda: now)
        assert (await readiness.report()).ready
        service.checks = [Check("store", ok=False)]
        assert (await readiness.report()).ready
        now += 3.0
        assert not (await readiness.report()).ready
        assert service.asked == 2

    asyncio.run(probe())


def test_a_check_that_raises_is_red_and_its_exception_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Scripted):
        async def readiness(self) -> list[Check]:
            raise RuntimeError("secret detail")

    report = asyncio.run(Readiness(ServiceHolder(Broken()), None).report())
    assert not report.ready
    assert "secret detail" not in str(report.to_wire())
    assert "secret detail" in caplog.text

"""A tenant's own rate and burst, from when the process knows them."""

from __future__ import annotations

import pytest

from memoree.database.quota import Quota
from memoree.http.ratelimit import Limiter


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A limiter of 5 requests a second and 10 at once, and the quotas that it is told."""

    def __init__(self, *, processes: int = 1) -> None:
        self.clock = Clock()
        self.quotas: dict[str, Quota] = {}
        self.limiter = Limiter(5, 10, processes=processes, granted=self.quotas.get, monotonic=self.clock)

    def passed(self, tenant: str = "A", tries: int = 200) -> int:
        return sum(self.limiter.take(tenant).allowed for _ in range(tries))


@pytest.mark.proves("operations-83")
def test_a_tenants_own_rate_and_burst_hold_from_when_they_are_known() -> None:
    desk = Desk()
    assert desk.passed() == 10
    desk.quotas["A"] = Quota(rate_per_second=50, rate_burst=100)
    desk.clock.now += 1.0
    assert (desk.passed(), desk.passed("B")) == (50, 10)
    assert desk.limiter.take("A").limit == 100
    desk.clock.now += 100.0
    assert (desk.passed(), desk.passed("B")) == (100, 10)


@pytest.mark.proves("operations-83")
def test_a_smaller_burst_holds_at_once() -> None:
    desk = Desk()
    desk.limiter.take("A")
    desk.quotas["A"] = Quota(rate_burst=2)
    assert desk.passed() == 2
    desk.clock.now += 0.2
    assert desk.passed() == 1


@pytest.mark.proves("operations-83")
def test_a_quota_that_was_taken_away_leaves_the_deployments() -> None:
    desk = Desk()
    desk.quotas["A"] = Quota(rate_per_second=1, rate_burst=1)
    assert desk.passed() == 1
    desk.quotas["A"] = Quota()
    desk.clock.now += 100.0
    assert desk.passed() == 10


def test_what_was_known_holds_while_the_tenant_is_not_in_hand() -> None:
    desk = Desk()
    desk.quotas["A"] = Quota(rate_per_second=1, rate_burst=1)
    assert desk.passed() == 1
    del desk.quotas["A"]
    desk.clock.now += 100.0
    assert desk.passed() == 1


def test_processes_share_a_tenants_own_rate() -> None:
    desk = Desk(processes=4)
    desk.quotas["A"] = Quota(rate_per_second=80, rate_burst=40)
    assert desk.passed() == 10
    desk.clock.now += 0.1
    assert desk.passed() == 2


def test_a_spent_token_is_given_back_up_to_the_tenants_own_burst() -> None:
    desk = Desk()
    desk.quotas["A"] = Quota(rate_burst=2)
    desk.limiter.take("A")
    for _ in range(5):
        desk.limiter.give_back("A")
    assert desk.passed() == 2

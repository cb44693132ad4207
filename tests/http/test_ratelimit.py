"""The limiter's arithmetic on a clock of its own, and its place in the order of work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from http_support import Caller, envelope

from memoree.http import ratelimit
from memoree.http.ratelimit import Limiter

OpenTenants = Callable[..., Callable[[str | None], Caller]]
READ = envelope("artifact.get", {"artifact_id": "art_1"})


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def passed(limiter: Limiter, tenant: str = "A", tries: int = 200) -> int:
    return sum(limiter.take(tenant).allowed for _ in range(tries))


@pytest.mark.proves("memoryprotocol-16")
def test_the_burst_passes_and_then_the_rate_per_second() -> None:
    clock = Clock()
    limiter = Limiter(5, 10, monotonic=clock)
    assert passed(limiter) == 10
    clock.now += 1.0
    assert passed(limiter) == 5
    clock.now += 3600.0
    assert passed(limiter) == 10


def test_waiting_retry_after_is_enough() -> None:
    clock = Clock()
    limiter = Limiter(3, 2, monotonic=clock)
    passed(limiter)
    refused = limiter.take("A")
    assert not refused.allowed
    clock.now += refused.retry_after_seconds + 1e-9
    assert limiter.take("A").allowed


def test_one_tenant_never_spends_what_is_anothers() -> None:
    limiter = Limiter(1, 3, monotonic=Clock())
    assert (passed(limiter, "A"), passed(limiter, "a"), passed(limiter, "B")) == (3, 3, 3)


def test_processes_share_the_rate() -> None:
    clock = Clock()
    limiter = Limiter(60, 120, processes=4, monotonic=clock)
    assert passed(limiter) == 30
    clock.now += 1.0
    assert passed(limiter) == 15


def test_rate_and_burst_are_at_least_one() -> None:
    assert passed(Limiter(0.001, 0, processes=8, monotonic=Clock())) == 1


def test_full_buckets_are_forgotten_and_spent_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratelimit, "BUCKETS_MAX", 3)
    clock = Clock()
    limiter = Limiter(1, 2, monotonic=clock)
    for tenant in ("a", "b", "c"):
        limiter.take(tenant)
    clock.now += 0.5
    passed(limiter, "c")
    clock.now += 0.6
    limiter.take("d")
    assert set(limiter._buckets) == {"c", "d"}


def test_the_request_over_the_burst_is_429_with_whole_seconds_to_wait(open_tenants: OpenTenants) -> None:
    caller = open_tenants(rate_per_second=1, rate_burst=3)("tok-a")
    statuses = [caller.post(READ).status_code for _ in range(3)]
    refused = caller.post(READ)

    assert statuses == [404, 404, 404]
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "RATE_LIMITED")
    assert refused.json()["error"]["retryable"] is True
    assert refused.headers["retry-after"] == "1"
    assert (refused.headers["ratelimit-limit"], refused.headers["ratelimit-remaining"]) == ("3", "0")


def test_tokens_of_one_tenant_share_a_bucket_and_other_tenants_and_health_do_not(open_tenants: OpenTenants) -> None:
    call_as = open_tenants(rate_per_second=1, rate_burst=2)
    first = [call_as("tok-a").post(READ).status_code, call_as("tok-a2").post(READ).status_code]
    assert first == [404, 404]
    assert call_as("tok-a").post(READ).status_code == 429
    assert call_as("tok-b").post(READ).status_code == 404
    assert call_as("tok-a").http.get("/healthz").status_code == 200


def test_a_401_and_a_403_spend_nothing_and_a_broken_body_does(open_tenants: OpenTenants) -> None:
    call_as = open_tenants(rate_per_second=1, rate_burst=4)
    only_ingest = call_as("tok-in")
    assert {call_as("nobody").post(READ).status_code for _ in range(8)} == {401}
    assert {only_ingest.post(READ).status_code for _ in range(8)} == {403}
    caller = call_as("tok-a")
    assert [caller.post(b"{").status_code for _ in range(4)] == [400] * 4
    assert caller.post(b"{").status_code == 429


def test_without_tokens_nothing_is_limited(caller: Caller) -> None:
    responses = [caller.post(READ) for _ in range(150)]
    assert {response.status_code for response in responses} == {404}
    assert "ratelimit-limit" not in responses[-1].headers

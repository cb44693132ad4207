"""The exposition: parsable, complete, and bounded in its series."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack

from http_support import Caller, Scripted, envelope, note, serving
from prometheus_client.parser import text_string_to_metric_families

from memoree.http.app import create_app
from memoree.http.server import address_of, listen
from memoree.http.settings import HttpSettings
from memoree.service import Check

OpenTenants = Callable[..., Callable[[str | None], Caller]]
READ = envelope("artifact.get", {"artifact_id": "art_1"})

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(caller: Caller) -> Samples:
    response = caller.http.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def counted(samples: Samples, op: str, code: str) -> float:
    labels = (("code", code), ("op", op), ("route", "/v1/call"))
    return samples.get(("memoree_http_requests_total", labels), 0.0)


def test_requests_are_counted_by_operation_and_code(open_tenants: OpenTenants) -> None:
    caller = open_tenants(metrics_on_main_port=True)("tok-a")
    caller.put("glaze")
    caller.post(READ)
    caller.post(b"{")
    samples = scraped(caller)

    assert counted(samples, "artifact.put", "ok") == 1
    assert counted(samples, "artifact.get", "NOT_FOUND") == 1
    assert counted(samples, "", "INVALID_REQUEST") == 1
    assert samples[("memoree_commit_seq", (("tenant", "A"),))] == 1
    assert samples[("memoree_http_in_flight", ())] == 1  # the scrape itself
    assert not [name for name, _ in samples if name.endswith("_created")]


def test_series_do_not_grow_with_traffic(open_tenants: OpenTenants) -> None:
    caller = open_tenants(metrics_on_main_port=True, rate_burst=10_000)("tok-a")

    def noise(number: int) -> None:
        caller.post(envelope("artifact.get", {"artifact_id": uuid.uuid4().hex}))
        caller.post(envelope(f"made.up.{number}"))
        caller.http.get(f"/nowhere/{number}")
        caller.http.get(f"/v1/operations/{number}")

    noise(0)
    scraped(caller)
    before = len(scraped(caller))
    for number in range(1, 30):
        noise(number)
    assert len(scraped(caller)) == before


def test_the_limited_are_counted(open_tenants: OpenTenants) -> None:
    caller = open_tenants(metrics_on_main_port=True, rate_per_second=1, rate_burst=1)("tok-b")
    caller.post(READ)
    caller.post(READ)
    assert scraped(caller)[("memoree_http_rate_limited_total", (("tenant", "B"),))] == 1


def test_checks_and_what_they_measured_are_exposed(scripted: Scripted, stack: ExitStack) -> None:
    scripted.checks = [Check("queue", ok=False, measures={"oldest age seconds": 12.5, "depth": 3})]
    app = create_app(scripted, HttpSettings(metrics_on_main_port=True))
    caller = Caller(stack.enter_context(serving(app)))
    stack.callback(caller.close)
    samples = scraped(caller)

    assert samples[("memoree_check_ok", (("check", "queue"),))] == 0
    assert samples[("memoree_queue_oldest_age_seconds", ())] == 12.5
    assert samples[("memoree_queue_depth", ())] == 3


def test_the_main_port_has_no_metrics_by_default(caller: Caller) -> None:
    assert caller.http.get("/metrics").status_code == 404


def test_an_address_of_its_own_shows_what_the_main_port_counted(scripted: Scripted, stack: ExitStack) -> None:
    listener = listen("127.0.0.1", 0)
    app = create_app(scripted, HttpSettings())
    main = Caller(stack.enter_context(serving(app, metrics_listener=listener)))
    beside = Caller(f"http://{address_of(listener)}")
    stack.callback(main.close)
    stack.callback(beside.close)
    main.post(envelope("artifact.put", note(), key="k"))

    assert counted(scraped(beside), "artifact.put", "WRITE_PENDING") == 1
    assert beside.http.post("/v1/call", content=b"{}").status_code == 404
    assert main.http.get("/metrics").status_code == 404

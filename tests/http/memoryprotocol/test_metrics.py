"""The catalogue of metrics, and what moves them (contract §10.2, §10.3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from http_support import Scripted, serving
from prometheus_client.parser import text_string_to_metric_families

from memoree.errors import Code, MemoreeError
from memoree.http.app import create_app
from memoree.http.server import address_of, listen
from memoree.http.settings import HttpSettings
from memoree.service import Check, refusal

from .conftest import OpenProtocol
from .protocol import ABSENT, ROUTES, Json, Protocol

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]
ScriptedMetrics = Callable[..., Protocol]

OFF = "metrics disabled at startup via --metrics-disabled"
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
TYPES = {
    "lunaris_ingest_total": "counter",
    "lunaris_ingest_duration_seconds": "histogram",
    "lunaris_recall_total": "counter",
    "lunaris_recall_duration_seconds": "histogram",
    "lunaris_forget_total": "counter",
    "lunaris_verify_queue_depth": "gauge",
    "lunaris_consolidator_queue_depth": "gauge",
    "lunaris_error_total": "counter",
    "lunaris_eval_score": "gauge",
}
BOUNDS = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "+Inf"]
VERBS = ("lunaris_ingest_total", "lunaris_recall_total", "lunaris_forget_total")


@pytest.fixture
def a(open_protocol: OpenProtocol) -> Protocol:
    return open_protocol(metrics_on_main_port=True)("tok-a")


@pytest.fixture
def over_scripted(scripted: Scripted, stack: ExitStack) -> ScriptedMetrics:
    def start(**settings: Any) -> Protocol:
        app = create_app(scripted, HttpSettings(metrics_on_main_port=True, **settings))
        client = Protocol(stack.enter_context(serving(app)))
        stack.callback(client.close)
        return client

    return start


def exposition(caller: Protocol) -> httpx.Response:
    return caller.http.get("/metrics", headers={"Authorization": ""})


def samples(caller: Protocol) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition(caller).text)
        for sample in family.samples
        if sample.name.startswith("lunaris_")
    }


def moved(before: Samples, after: Samples) -> dict[str, float]:
    """What counted in between, without the sums of seconds; a series is written as in the text format."""
    return {
        f"{name}{{{','.join(f'{label}={value}' for label, value in labels)}}}": value - before.get((name, labels), 0.0)
        for (name, labels), value in after.items()
        if name.endswith(("_total", "_count")) and value != before.get((name, labels), 0.0)
    }


def moved_by(caller: Protocol, *requests: Callable[[], Any]) -> dict[str, float]:
    before = samples(caller)
    for request in requests:
        request()
    return moved(before, samples(caller))


def recall(caller: Protocol, **body: Any) -> int:
    return int(caller.request("POST", "/v1/recall", {"query": "cone", **body}).status_code)


def forget(caller: Protocol, target: Json, **members: Any) -> int:
    return int(caller.request("POST", "/v1/forget", {"target": target, **members}).status_code)


@pytest.mark.proves("memoryprotocol-88")
def test_health_without_a_token_is_200_with_a_version(a: Protocol) -> None:
    response = a.http.get("/healthz", headers={"Authorization": ""})
    assert response.status_code == 200
    assert response.json().get("ok") is True
    assert isinstance(response.json().get("version"), str)


@pytest.mark.proves("memoryprotocol-89")
def test_metrics_need_no_token_and_are_of_the_text_format(a: Protocol) -> None:
    a.ingest()
    response = exposition(a)
    assert (response.status_code, response.headers["content-type"]) == (200, TEXT_FORMAT)
    assert len(list(text_string_to_metric_families(response.text))) > len(TYPES)
    assert "_created" not in response.text


@pytest.mark.proves("memoryprotocol-90")
def test_a_fresh_process_has_every_name_with_its_type(a: Protocol) -> None:
    lines = exposition(a).text.splitlines()
    typed = dict(line.split()[2:] for line in lines if line.startswith("# TYPE lunaris_"))
    assert typed == TYPES
    helped = {line.split()[2] for line in lines if line.startswith("# HELP lunaris_")}
    assert helped == set(TYPES)


@pytest.mark.proves("memoryprotocol-90")
def test_a_fresh_process_has_the_series_whose_labels_are_known(a: Protocol) -> None:
    found = samples(a)
    assert {name: value for name, value in found.items() if name[0].endswith("_depth")} == {
        ("lunaris_verify_queue_depth", (("topic", "__lunaris_verify__"),)): 0,
        ("lunaris_consolidator_queue_depth", (("topic", "__lunaris_consolidate__"),)): 0,
    }
    kinds = {dict(labels)["kind"]: value for (name, labels), value in found.items() if name == "lunaris_error_total"}
    assert kinds == dict.fromkeys(("storage", "validate", "extract", "retrieve", "consolidate", "unknown"), 0)


@pytest.mark.proves("memoryprotocol-91")
def test_an_ingest_counts_once_and_so_does_its_time(a: Protocol) -> None:
    assert moved_by(a, a.ingest) == {
        "lunaris_ingest_total{status=ok,tenant=A}": 1,
        "lunaris_ingest_duration_seconds_count{tenant=A}": 1,
    }


@pytest.mark.proves("memoryprotocol-91")
@pytest.mark.parametrize("code", [Code.TRANSPORT_ERROR, Code.INTEGRITY_ERROR, Code.WRITE_PENDING])
def test_a_failure_of_the_store_is_an_error_of_the_kind_storage(
    over_scripted: ScriptedMetrics, scripted: Scripted, code: Code
) -> None:
    caller = over_scripted()
    scripted.answer = lambda request: refusal(request.call.request_id, MemoreeError(code, "away"))
    for path, expected in (
        (
            "ingest",
            {"lunaris_ingest_total{status=error,tenant=local}", "lunaris_ingest_duration_seconds_count{tenant=local}"},
        ),
        ("episode", set()),
        ("snapshot", set()),
    ):
        assert moved_by(caller, lambda: caller.route(path)) == dict.fromkeys(  # noqa: B023 - called at once
            {*expected, "lunaris_error_total{kind=storage}"}, 1
        )


@pytest.mark.proves("memoryprotocol-92")
@pytest.mark.parametrize("mode", ["semantic", "graph"])
def test_recall_counts_by_its_mode(a: Protocol, mode: str) -> None:
    assert moved_by(a, lambda: recall(a, mode=mode)) == {
        f"lunaris_recall_total{{mode={mode},status=ok,tenant=A}}": 1,
        f"lunaris_recall_duration_seconds_count{{mode={mode},tenant=A}}": 1,
    }


@pytest.mark.proves("memoryprotocol-92")
@pytest.mark.parametrize(
    ("body", "status", "kinds"),
    [
        ({"as_of": "not a date"}, 400, []),
        ({"filter": "source"}, 400, ["validate"]),
        ({"mode": "graph"}, 501, []),
        ({"mode": "graph", "as_of": "not a date"}, 501, []),
    ],
)
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_an_early_refusal_of_recall_counts_as_an_error(
    open_protocol: OpenProtocol, body: Json, status: int, kinds: list[str], accept: str
) -> None:
    a = open_protocol(metrics_on_main_port=True, graph_mode=False)("tok-a")
    mode = body.get("mode", "semantic")

    def ask() -> None:
        response = a.request("POST", "/v1/recall", {"query": "cone", **body}, {"Accept": accept})
        assert response.status_code == status

    assert moved_by(a, ask) == {
        f"lunaris_recall_total{{mode={mode},status=error,tenant=A}}": 1,
        f"lunaris_recall_duration_seconds_count{{mode={mode},tenant=A}}": 1,
        **{f"lunaris_error_total{{kind={kind}}}": 1 for kind in kinds},
    }


@pytest.mark.proves("memoryprotocol-92")
def test_a_fault_in_finding_is_of_a_kind_of_its_own(over_scripted: ScriptedMetrics, scripted: Scripted) -> None:
    caller = over_scripted()
    scripted.answer = lambda request: refusal(request.call.request_id, MemoreeError(Code.INTERNAL_ERROR, "a fault"))
    assert moved_by(caller, lambda: recall(caller)) == {
        "lunaris_recall_total{mode=semantic,status=error,tenant=local}": 1,
        "lunaris_recall_duration_seconds_count{mode=semantic,tenant=local}": 1,
        "lunaris_error_total{kind=retrieve}": 1,
    }


@pytest.mark.proves("memoryprotocol-93")
def test_a_hard_delete_without_a_receipt_counts_as_asked_for(a: Protocol) -> None:
    assert moved_by(a, lambda: forget(a, {"Id": ABSENT}, hard=True)) == {
        "lunaris_forget_total{hard=true,target_kind=id,tenant=A}": 1,
        "lunaris_error_total{kind=validate}": 1,
    }


@pytest.mark.proves("memoryprotocol-93")
@pytest.mark.parametrize(
    ("target", "members", "series"),
    [
        ({"Id": ABSENT}, {}, "hard=false,target_kind=id"),
        ({"Id": ABSENT}, {"hard": True, "confirmation_token": "{}"}, "hard=true,target_kind=id"),
        ({"Scope": {"BySource": "x"}}, {}, "hard=false,target_kind=scope"),
        ({"Before": {"wall_ms": 1, "counter": 0}}, {"dry_run": True}, "hard=false,target_kind=before"),
    ],
)
def test_forgets_count_by_target_whatever_comes_of_them(a: Protocol, target: Json, members: Json, series: str) -> None:
    """A 404, a 400 that is no error of the engine's, and two that find nothing."""
    assert moved_by(a, lambda: forget(a, target, **members)) == {f"lunaris_forget_total{{{series},tenant=A}}": 1}


@pytest.mark.proves("memoryprotocol-94")
def test_what_the_gate_or_the_parser_refuses_moves_nothing(open_protocol: OpenProtocol) -> None:
    as_token = open_protocol(metrics_on_main_port=True)
    a, nobody, writer, reader = map(as_token, ("tok-a", None, "tok-in", "tok-read"))
    statuses = []

    def ask() -> None:
        for name, (method, path, body) in ROUTES.items():
            statuses.append(nobody.route(name).status_code)
            statuses.append((reader if name == "ingest" else writer).route(name).status_code)
            if body is not None:
                shapes = (b"{", {"surprise": 1}, {**body, "tenant": "B"}, b"x" * (3 * 2**20))
                statuses.extend(a.request(method, path, shape).status_code for shape in shapes)
                plain = {"Content-Type": "text/plain"}
                statuses.append(a.request(method, path, body, plain).status_code)
        for shape in ({"k": -1}, {"mode": "Graph"}, {"query": "cone " * 2000}):
            statuses.append(recall(a, **shape))
        for shape in ({"id": "none"}, {"t_ref": "yesterday"}, {"source": "s" * 20_000}):
            statuses.append(a.send({"source": "s", "content": "c", **shape}).status_code)
        statuses.append(a.request("GET", "/v1/episode/none").status_code)
        statuses.append(a.get(ABSENT).status_code)
        statuses.append(a.request("GET", "/v1/snapshot/none").status_code)

    assert moved_by(a, ask) == {}
    assert set(statuses) == {400, 401, 403, 404, 413, 415, 422}


@pytest.mark.proves("memoryprotocol-94")
def test_a_request_over_its_rate_moves_nothing(open_protocol: OpenProtocol) -> None:
    caller = open_protocol(metrics_on_main_port=True, rate_per_second=1, rate_burst=1000, processes=1000)("tok-a")
    assert recall(caller) == 200
    assert moved_by(caller, lambda: recall(caller)) == {}
    assert recall(caller) == 429


@pytest.mark.proves("memoryprotocol-95")
def test_histograms_have_the_bounds_of_the_contract(a: Protocol) -> None:
    a.ingest()
    recall(a)
    found = samples(a)
    for name in ("lunaris_ingest_duration_seconds_bucket", "lunaris_recall_duration_seconds_bucket"):
        bounds = [dict(labels)["le"] for each, labels in found if each == name]
        assert sorted(bounds, key=float) == BOUNDS


@pytest.mark.proves("memoryprotocol-96")
def test_a_thousand_ids_and_queries_add_no_series(a: Protocol) -> None:
    def ask(number: int) -> None:
        ulid = f"01KJR4GZXJDFPSG3SB9V6{number:05}"
        a.get(ulid)
        a.http.get(f"/v1/snapshot/{number}.0")
        recall(a, query=f"word{number}")
        forget(a, {"Id": ulid})
        if number % 50 == 0:
            a.ingest(id=ulid, source=f"source-{number}", metadata={f"key{number}": number})

    ask(0)
    exposition(a)
    known = exposition(a).text.count("\n")
    for number in range(1, 250):
        ask(number)
    assert exposition(a).text.count("\n") == known


@pytest.mark.proves("memoryprotocol-97")
@pytest.mark.parametrize("on_main_port", [False, True])
def test_metrics_that_are_switched_off_are_404_in_the_words_of_the_contract(
    open_protocol: OpenProtocol, on_main_port: bool
) -> None:
    a = open_protocol(metrics=False, metrics_on_main_port=on_main_port)("tok-a")
    response = exposition(a)
    assert (response.status_code, response.text) == (404, OFF)
    assert response.headers["content-type"].startswith("text/plain")
    a.ingest(id=ABSENT)
    assert a.get(ABSENT).status_code == 200
    assert recall(a) == 200
    assert a.http.get("/healthz").status_code == 200
    assert a.http.get("/readyz").status_code == 200


@pytest.mark.proves("memoryprotocol-97")
def test_they_are_off_at_an_address_of_their_own_as_well(scripted: Scripted, stack: ExitStack) -> None:
    listener = listen("127.0.0.1", 0)
    stack.enter_context(serving(create_app(scripted, HttpSettings(metrics=False)), metrics_listener=listener))
    response = httpx.get(f"http://{address_of(listener)}/metrics", trust_env=False)
    assert (response.status_code, response.text) == (404, OFF)


@pytest.mark.parametrize(
    ("checks", "depth"),
    [
        ([], 0.0),
        ([Check("queue", ok=True, measures={"waiting": 3, "in_flight": 2})], 5.0),
        ([Check("queue", ok=False, detail="it does not answer")], math.nan),
    ],
)
def test_writes_that_wait_are_the_depth_of_the_verifiers_queue(
    over_scripted: ScriptedMetrics, scripted: Scripted, checks: list[Check], depth: float
) -> None:
    scripted.checks = checks
    found = samples(over_scripted())
    shown = found[("lunaris_verify_queue_depth", (("topic", "__lunaris_verify__"),))]
    assert shown == depth or (math.isnan(shown) and math.isnan(depth))

"""`X-Request-Id` and `Memoree-Commit-Seq`: on every answer that should have them, streamed ones too."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from http_support import CONTEXT, Caller, Scripted, envelope, serving

from memoree import limits
from memoree.http.app import create_app
from memoree.http.memoryprotocol import sse
from memoree.http.server import address_of, listen
from memoree.http.settings import HttpSettings
from memoree.service import Reply, Request

OpenTenants = Callable[..., Callable[[str | None], Caller]]
ABSENT = "01KJR4GZXJDFPSG3SB9V65FA1E"
OURS = re.compile(r"req_[0-7][0-9A-HJKMNP-TV-Z]{25}")
NDJSON = {"Content-Type": "application/x-ndjson"}
EVENTS = {"Accept": "text/event-stream"}
LISTS = "&".join(f"{name}={value}" for name, value in CONTEXT.items())
DOCTOR = json.dumps({"request_id": "r", "op": "doctor", "input": {}})
ANSWERS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "call": ("POST", "/v1/call", {"content": DOCTOR}, 200),
    "call refused": ("POST", "/v1/call", {"content": "{"}, 400),
    "bulk": ("POST", "/v1/bulk", {"content": DOCTOR, "headers": NDJSON}, 200),
    "list": ("GET", f"/v1/claims?{LISTS}", {}, 200),
    "list not modified": ("GET", f"/v1/claims?{LISTS}", {"headers": {"If-None-Match": "*"}}, 304),
    "attempt": ("GET", "/v1/operations/att_01KJQ6N4Z8T5V2W9X3Y7B1C0DF", {}, 200),
    "content refused": ("GET", "/v1/artifacts/art_x/revisions/rev_x/content", {}, 404),
    "feed": ("GET", "/v1/events", {}, 200),
    "recall": ("POST", "/v1/recall", {"json": {"query": "cone"}}, 200),
    "recall as events": ("POST", "/v1/recall", {"json": {"query": "cone"}, "headers": EVENTS}, 200),
    "snapshot": ("GET", "/v1/snapshot/0.0", {}, 200),
    "episode refused": ("GET", f"/v1/episode/{ABSENT}", {}, 404),
    "another method": ("DELETE", "/v1/call", {}, 405),
    "options": ("OPTIONS", "/v1/call", {}, 204),
    "no such path": ("GET", "/nowhere", {}, 404),
    "a foreign page": ("GET", "/livez", {"headers": {"Origin": "https://a.example"}}, 403),
    "health": ("GET", "/healthz", {}, 200),
    "description": ("GET", "/openapi.json", {}, 200),
    "metrics": ("GET", "/metrics", {}, 200),
}
READS = {
    "call": 1,
    "list": 1,
    "list not modified": 1,
    "attempt": 1,
    "feed": 1,
    "recall": 1,
    "recall as events": 1,
    "snapshot": 1,
}
"""Answers that are computed from a state, and its number."""


@pytest.fixture
def caller(store: Any, stack: ExitStack) -> Caller:
    client = Caller(stack.enter_context(serving(create_app(store, HttpSettings(metrics_on_main_port=True)))))
    stack.callback(client.close)
    client.put("first")
    return client


def ask(caller: Caller, name: str, **headers: str) -> httpx.Response:
    method, path, how, status = ANSWERS[name]
    response = caller.http.request(method, path, **{**how, "headers": {**how.get("headers", {}), **headers}})
    assert response.status_code == status, response.text
    return response


def told(response: httpx.Response) -> list[str]:
    return response.headers.get_list("x-request-id")


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_has_the_callers_id_or_one_of_ours(caller: Caller, name: str) -> None:
    assert told(ask(caller, name, **{"X-Request-Id": "trace-17/a:b"})) == ["trace-17/a:b"]
    (ours,) = told(ask(caller, name))
    assert OURS.fullmatch(ours)
    assert told(ask(caller, name)) != [ours]


@pytest.mark.parametrize("name", READS)
def test_every_read_names_the_commit_it_was_computed_from(caller: Caller, name: str) -> None:
    assert ask(caller, name).headers.get("memoree-commit-seq") == str(READS[name])


@pytest.mark.parametrize(
    "given", [b"", b"two words", b"x" * (limits.REQUEST_ID_BYTES_MAX + 1), b"\xe9", b"tab\there", b"\xc2\xa0"]
)
def test_an_id_that_cannot_be_told_again_is_replaced(caller: Caller, given: bytes) -> None:
    (ours,) = told(caller.http.get("/livez", headers=[(b"X-Request-Id", given)]))
    assert OURS.fullmatch(ours)


def test_the_longest_id_and_any_visible_character_come_back(caller: Caller) -> None:
    for given in ("x" * limits.REQUEST_ID_BYTES_MAX, "".join(map(chr, range(0x21, 0x7F)))):
        assert told(caller.http.get("/livez", headers={"X-Request-Id": given})) == [given]


def test_two_ids_are_none(caller: Caller) -> None:
    (ours,) = told(caller.http.get("/livez", headers=[("X-Request-Id", "a"), ("X-Request-Id", "b")]))
    assert OURS.fullmatch(ours)


def test_a_preflight_has_one_and_pages_may_read_it(open_tenants: OpenTenants) -> None:
    caller = open_tenants(cors_origins=("https://a.example",))("tok-a")
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST", "X-Request-Id": "trace-18"}
    assert told(caller.http.options("/v1/recall", headers=asked)) == ["trace-18"]
    refused = caller.http.post("/v1/recall", headers={"Origin": "https://a.example", "Authorization": ""})
    assert len(told(refused)) == 1
    assert "X-Request-Id" in refused.headers["access-control-expose-headers"]


class Slow(Scripted):
    async def call(self, tenant: str, request: Request, *, wait_seconds: float = 10.0, strong: bool = False) -> Reply:
        await asyncio.sleep(0.2)
        return await super().call(tenant, request, wait_seconds=wait_seconds, strong=strong)


def test_it_is_there_when_a_stream_begins_with_comments(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.05)
    caller = Caller(stack.enter_context(serving(create_app(Slow(), HttpSettings()))))
    stack.callback(caller.close)
    headers = {**EVENTS, "X-Request-Id": "trace-19"}
    response = caller.http.post("/v1/recall", json={"query": "cone"}, headers=headers)
    assert (told(response), response.headers["content-type"]) == (["trace-19"], "text/event-stream")
    assert response.text.startswith(": waiting")


def test_a_fault_has_it_and_so_has_its_line_in_the_log(
    scripted: Scripted, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: Request) -> Reply:
        raise RuntimeError("fire")

    scripted.answer = fail
    settings = HttpSettings(access_log=True)
    caller = Caller(stack.enter_context(serving(create_app(scripted, settings))))
    stack.callback(caller.close)
    with caplog.at_level(logging.INFO):
        episode = caller.http.get(f"/v1/episode/{ABSENT}", headers={"X-Request-Id": "trace-20"})
        called = caller.post(envelope("doctor"), {"X-Request-Id": "trace-21"})
    assert (episode.status_code, told(episode)) == (500, ["trace-20"])
    assert (called.status_code, told(called)) == (500, ["trace-21"])
    assert any(getattr(each, "request_id", "") == "trace-20" for each in caplog.records if each.levelname == "ERROR")
    accesses = [each for each in caplog.records if each.name == "memoree.http.access"]
    assert [each.__dict__["http_request_id"] for each in accesses] == ["trace-20", "trace-21"]


def test_the_metrics_address_tells_it_too(scripted: Scripted, stack: ExitStack) -> None:
    listener = listen("127.0.0.1", 0)
    stack.enter_context(serving(create_app(scripted, HttpSettings()), metrics_listener=listener))
    url = f"http://{address_of(listener)}/metrics"
    assert told(httpx.get(url, headers={"X-Request-Id": "trace-22"}, trust_env=False)) == ["trace-22"]

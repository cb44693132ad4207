"""Refusals as problem details (RFC 9457), for who asks for them by `Accept`, on every route under `/v1/`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from http_support import Caller, Json, Scripted, note, serving, write_tokens

from memoree.http.app import create_app
from memoree.http.settings import HttpSettings

PROBLEM = "application/problem+json"
ABSENT = "01KJR4GZXJDFPSG3SB9V65FA1E"
ENVELOPES: dict[str, tuple[str, str, Any, int, str]] = {
    "an unreadable call": ("POST", "/v1/call", b"{", 400, "INVALID_REQUEST"),
    "no such artifact": (
        "POST",
        "/v1/call",
        {"request_id": "r", "op": "artifact.get", "input": {"artifact_id": "art_x"}},
        404,
        "NOT_FOUND",
    ),
    "a bulk of another type": ("POST", "/v1/bulk", b"", 415, "INVALID_REQUEST"),
    "a list without a context": ("GET", "/v1/artifacts", None, 400, "NO_AMBIENT_CONTEXT"),
    "no attempt id": ("GET", "/v1/operations/none", None, 400, "INVALID_REQUEST"),
    "no such revision": ("GET", "/v1/artifacts/art_x/revisions/rev_x/content", None, 404, "NOT_FOUND"),
    "a place ahead": ("GET", "/v1/events?after=99", None, 410, "NOT_FOUND"),
    "no upload": ("POST", "/v1/artifacts/uploads", {}, 400, "INVALID_REQUEST"),
}
PLAIN: dict[str, tuple[str, str, Any, int, str]] = {
    "an unreadable ingest": ("POST", "/v1/ingest", b"{", 400, "validate"),
    "an ingest of another shape": ("POST", "/v1/ingest", {"source": 1}, 422, "validate"),
    "no such filter": ("POST", "/v1/recall", {"query": "x", "filter": "source"}, 400, "validate"),
    "a deletion without its receipt": (
        "POST",
        "/v1/forget",
        {"target": {"Id": ABSENT}, "hard": True},
        428,
        "confirmation_required",
    ),
    "no position": ("GET", "/v1/snapshot/x", None, 400, "invalid_lsn"),
    "no such episode": ("GET", f"/v1/episode/{ABSENT}", None, 404, "episode_not_found"),
    "another method": ("POST", "/v1/snapshot/1.0", None, 405, "validate"),
    "no such path": ("GET", "/v1/nope", None, 404, "not_found"),
}


def ask(caller: Caller, method: str, path: str, body: Any, accept: str) -> Any:
    headers = {"Accept": accept}
    if isinstance(body, bytes):
        return caller.http.request(method, path, content=body, headers=headers)
    return caller.http.request(method, path, json=body, headers=headers)


def check_problem(response: Any, status: int, code: str) -> Json:
    assert (response.status_code, response.headers["content-type"]) == (status, PROBLEM), response.text
    document: Json = response.json()
    assert document.get("type") == f"urn:memoree:error:{code}"
    assert document.get("status") == status
    assert isinstance(document.get("title"), str) and document["title"]
    return document


@pytest.mark.parametrize("case", ENVELOPES.values(), ids=ENVELOPES)
def test_a_problem_of_the_machine_protocol_still_is_its_envelope(
    caller: Caller, case: tuple[str, str, Any, int, str]
) -> None:
    method, path, body, status, code = case
    plain = ask(caller, method, path, body, "application/json")
    assert (plain.status_code, plain.headers["content-type"]) == (status, "application/json")
    document = check_problem(ask(caller, method, path, body, PROBLEM), status, code)
    assert document["detail"] == plain.json()["error"]["message"]
    assert plain.json().items() <= document.items()


@pytest.mark.parametrize("case", PLAIN.values(), ids=PLAIN)
def test_a_problem_elsewhere_has_the_members_of_its_protocol(
    caller: Caller, case: tuple[str, str, Any, int, str]
) -> None:
    method, path, body, status, code = case
    plain = ask(caller, method, path, body, "*/*")
    assert (plain.status_code, plain.headers["content-type"]) == (status, "application/json")
    document = check_problem(ask(caller, method, path, body, f"text/event-stream, {PROBLEM}"), status, code)
    assert document["detail"] == plain.json()["message"]
    assert plain.json().items() <= document.items()


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (PROBLEM, True),
        ("Application/Problem+JSON; charset=utf-8", True),
        (f"{PROBLEM}, application/json", True),
        (f"application/json;q=0.5, {PROBLEM};q=0.5", True),
        (f"application/json, {PROBLEM};q=0.9", False),
        (f"{PROBLEM};q=0", False),
        ("application/json", False),
        ("*/*", False),
        ("application/*", False),
        ("application/problem+jsonx", False),
    ],
)
def test_problems_come_only_to_who_would_rather_have_them(caller: Caller, accept: str, wanted: bool) -> None:
    response = ask(caller, "GET", f"/v1/episode/{ABSENT}", None, accept)
    assert response.headers["content-type"] == (PROBLEM if wanted else "application/json")
    assert ("type" in response.json()) is wanted


def test_who_accepts_problems_gets_answers_as_they_are(caller: Caller) -> None:
    response = ask(caller, "POST", "/v1/ingest", {"source": "s", "content": "c"}, PROBLEM)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")


@pytest.fixture
def guarded(tmp_path: Path, scripted: Scripted, stack: ExitStack) -> Caller:
    tokens = write_tokens(tmp_path / "tokens.json", {"tok": {"tenant": "A", "scopes": ["ingest"]}})
    settings = HttpSettings(tokens_file=tokens, rate_per_second=1, rate_burst=1000, processes=1000)
    caller = Caller(stack.enter_context(serving(create_app(scripted, settings))), "tok")
    stack.callback(caller.close)
    return caller


@pytest.mark.parametrize("path", ["/v1/ingest", "/v1/call"])
def test_what_the_gate_refuses_is_a_problem_too(guarded: Caller, path: str) -> None:
    codes = {"/v1/ingest": ("unauthorized", "rate_limited"), "/v1/call": ("UNAUTHENTICATED", "RATE_LIMITED")}[path]
    nobody = guarded.http.post(path, json={}, headers={"Accept": PROBLEM, "Authorization": "Bearer none"})
    check_problem(nobody, 401, codes[0])
    assert nobody.headers["www-authenticate"] == "Bearer"
    guarded.http.post(path, json=note())
    limited = guarded.http.post(path, json={}, headers={"Accept": PROBLEM})
    check_problem(limited, 429, codes[1])
    assert int(limited.headers["retry-after"]) >= 1

"""The api as a function, on a real store, with the writer's function behind it."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from blake3 import blake3
from functions_support import (
    TOKEN,
    Json,
    Site,
    balancer_event,
    body_of,
    fact,
    headers_of,
    json_of,
    request,
    rest_event,
    url_event,
)
from orjson import dumps

from memoree import limits

pytestmark = pytest.mark.stack

Handler = Callable[[Json], Json]
LARGE = bytes(range(256)) * 18 * 1024
CONTENT_PATH = "/v1/artifacts/{artifact_id}/revisions/{revision_id}/content"


@pytest.fixture
def api(running: Handler) -> Handler:
    return running


def call(api: Handler, document: Json, make: Callable[..., Json] = url_event) -> Json:
    answer = api(make("POST", "/v1/call", dumps(document)))
    assert answer["statusCode"] == 200, answer
    return json_of(answer)


def put_bytes(api: Handler, data: bytes, make: Callable[..., Json] = url_event) -> Json:
    content = {"type": "base64", "data": base64.b64encode(data).decode()}
    fields = {"kind": "file", "title": "picture", "media_type": "image/jpeg", "content": content}
    record: Json = call(api, request("artifact.put", fields, key=uuid.uuid4().hex), make)["result"]
    return record


@pytest.fixture(scope="module")
def large(running: Handler) -> Json:
    """An artifact that no function could answer with."""
    return put_bytes(running, LARGE)


@pytest.mark.parametrize("make", [url_event, rest_event, balancer_event])
def test_every_kind_of_event_writes_and_reads_back(api: Handler, make: Callable[..., Json]) -> None:
    statement = f"écrit par {make.__name__} {uuid.uuid4().hex}"
    written = call(api, fact(statement), make)
    found = call(api, request("claim.get", {"claim_id": written["result"]["claim_id"]}), make)
    assert found["result"]["statement"] == statement


@pytest.mark.parametrize("make", [url_event, rest_event, balancer_event])
def test_bytes_come_out_as_they_are(api: Handler, make: Callable[..., Json]) -> None:
    record = put_bytes(api, b"\xff\xd8\xff\x00\x01\x02", make)
    answer = api(make("GET", CONTENT_PATH.format(**record)))
    assert (answer["statusCode"], body_of(answer)) == (200, b"\xff\xd8\xff\x00\x01\x02")
    assert headers_of(answer)["content-type"] == "image/jpeg"


def test_no_token_opens_no_door(api: Handler) -> None:
    event = url_event("POST", "/v1/call", dumps(fact("unheard")), headers={"authorization": "Bearer wrong"})
    assert api(event)["statusCode"] == 401


@pytest.mark.proves("operations-65")
def test_a_thawed_container_shows_what_others_wrote_while_it_was_frozen(api: Handler, served_site: Site) -> None:
    first = call(api, fact(f"seen {uuid.uuid4().hex}"))
    claim = {"claim_id": first["result"]["claim_id"]}
    before = call(api, request("claim.get", claim))["result"]
    change = {"claim_id": claim["claim_id"], "if_revision": before["revision_id"], "statement": "changed meanwhile"}
    (attempt,) = served_site.enqueue(request("claim.revise", change, key=uuid.uuid4().hex))
    _wait_until_applied(served_site, first["commit_seq"])

    # The api's loop stood still since `before`, and its clock hardly moved.
    assert call(api, request("claim.get", claim))["result"]["statement"] == "changed meanwhile", attempt


def _wait_until_applied(site: Site, commit_seq: int) -> None:
    deadline = time.monotonic() + 20
    while site.head().commit_seq <= commit_seq:
        assert time.monotonic() < deadline, "the writer did not take it"


@pytest.mark.proves("operations-66")
def test_a_large_answer_is_left_in_the_store_and_303_says_where(api: Handler, large: Json) -> None:
    asked = request("artifact.get", {"artifact_id": large["artifact_id"], "include_content": True})
    answer = api(url_event("POST", "/v1/call", dumps(asked)))

    assert answer["statusCode"] == 303, answer
    url = headers_of(answer)["location"]
    assert json_of(answer)["location"] == url
    assert "/answers/" in url and TOKEN not in url
    found = httpx.get(url, trust_env=False)
    assert found.status_code == 200
    assert found.headers["content-type"] == "application/json"
    assert base64.b64decode(found.json()["result"]["content"]["data"]) == LARGE


@pytest.mark.proves("operations-66")
def test_a_large_revision_leads_to_its_blob_under_its_own_type(api: Handler, large: Json) -> None:
    answer = api(url_event("GET", CONTENT_PATH.format(**large)))

    assert answer["statusCode"] == 303, answer
    assert int(headers_of(answer)["content-length"]) == len(body_of(answer))
    location = headers_of(answer)["location"]
    assert f"/{blake3(LARGE).hexdigest()}?" in location, "nothing is copied"
    found = httpx.get(location, trust_env=False)
    assert found.content == LARGE
    assert found.headers["content-type"] == "image/jpeg"
    assert found.headers["content-disposition"] == "attachment"


@pytest.mark.proves("operations-66")
def test_a_small_part_of_a_large_revision_and_its_head_come_at_once(api: Handler, large: Json) -> None:
    path = CONTENT_PATH.format(**large)
    part = api(url_event("GET", path, headers={"range": "bytes=1-9"}))
    assert (part["statusCode"], body_of(part)) == (206, LARGE[1:10])
    head = api(url_event("HEAD", path))
    assert (head["statusCode"], body_of(head)) == (200, b"")
    assert int(headers_of(head)["content-length"]) == len(LARGE) > limits.FUNCTION_ANSWER_BYTES_MAX


def test_many_lines_are_answered_in_one_event(api: Handler) -> None:
    lines = b"".join(dumps(fact(f"line {number} {uuid.uuid4().hex}")) + b"\n" for number in range(20))
    answer = api(url_event("POST", "/v1/bulk", lines, headers={"content-type": "application/x-ndjson"}))
    assert answer["statusCode"] == 200
    assert body_of(answer).count(b'"ok":true') == 20


def test_what_the_app_cannot_do_without_a_lifespan_it_does_here(api: Handler) -> None:
    answer = api(url_event("GET", "/readyz"))
    checks: Any = json_of(answer)["checks"]
    assert (answer["statusCode"], checks["store"]["ok"], checks["tokens"]["ok"]) == (200, True, True)

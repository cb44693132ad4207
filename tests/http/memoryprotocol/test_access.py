"""Who may ask, and how often (contract §2, §3)."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import httpx
import pytest

from .conftest import ODD, As, OpenProtocol
from .protocol import ABSENT, ROUTES, Protocol, commits, refused

each_route = pytest.mark.parametrize("route", ROUTES)


@pytest.mark.proves("memoryprotocol-1", "memoryprotocol-99")
@each_route
def test_without_authorization_it_is_401(as_token: As, route: str) -> None:
    response = as_token(None).route(route)
    refused(response, 401, "unauthorized")
    assert response.headers.get("www-authenticate") == "Bearer"


@pytest.mark.proves("memoryprotocol-2")
@each_route
@pytest.mark.parametrize("authorization", ["Basic x", "Bearer", "bearer", "Token tok-a", "Bearer tok-a tok-a"])
def test_another_scheme_or_an_empty_token_is_401(as_token: As, route: str, authorization: str) -> None:
    refused(as_token(None).route(route, {"Authorization": authorization}), 401, "unauthorized")


@pytest.mark.proves("memoryprotocol-2")
@each_route
def test_a_scheme_with_a_blank_and_nothing_after_it_is_401(as_token: As, route: str) -> None:
    """Written by hand: no client library sends it."""
    caller, (method, path, _) = as_token(None), ROUTES[route]
    url = caller.http.base_url
    with socket.create_connection((url.host, url.port), timeout=10) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: {url.host}\r\nAuthorization: Bearer \r\n\r\n".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


@pytest.mark.proves("memoryprotocol-3")
@each_route
def test_an_unknown_token_is_401_and_is_not_told_again(as_token: As, route: str) -> None:
    response = as_token("tok-of-nobody").route(route)
    refused(response, 401, "unauthorized")
    assert "tok-of-nobody" not in response.text + str(response.headers)


@pytest.mark.proves("memoryprotocol-4")
def test_a_token_does_what_its_scopes_say_and_nothing_else(as_token: As) -> None:
    writer, reader = as_token("tok-in"), as_token("tok-read")
    for route in ("recall", "snapshot", "episode"):
        assert "`recall`" in refused(writer.route(route), 403, "forbidden")
    assert writer.route("ingest").status_code == 200
    for caller in (writer, reader):
        assert "`forget`" in refused(caller.route("forget"), 403, "forbidden")
    assert "`ingest`" in refused(reader.route("ingest"), 403, "forbidden")
    refused(reader.route("episode"), 404, "episode_not_found")
    assert reader.route("recall").status_code == 200


@pytest.mark.proves("memoryprotocol-5")
@each_route
def test_an_unknown_token_is_401_where_the_scope_would_be_missing(as_token: As, route: str) -> None:
    refused(as_token("tok-in-but-another").route(route), 401, "unauthorized")


@pytest.mark.proves("memoryprotocol-6")
@each_route
@pytest.mark.parametrize("token", ODD)
def test_a_token_of_a_tenant_that_breaks_the_rule_is_unknown(as_token: As, route: str, token: str) -> None:
    refused(as_token(token).route(route), 401, "unauthorized")


@pytest.mark.proves("memoryprotocol-7")
def test_a_tenant_of_128_characters_works(as_token: As) -> None:
    longest = as_token("tok-longest")
    longest.ingest(id=ABSENT)
    assert longest.episode(ABSENT)["scope"] == "t" * 128


@pytest.mark.proves("memoryprotocol-8")
@pytest.mark.parametrize("text", [None, "", "{", "[]", '"tok-a"'])
def test_a_missing_or_corrupt_tokens_file_shuts_the_protocol_and_not_the_process(
    open_protocol: OpenProtocol, tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "broken.json"
    if text is not None:
        path.write_text(text)
    caller = open_protocol(path)("tok-a")
    assert caller.request("GET", "/healthz").json()["ok"] is True
    for route in ROUTES:
        refused(caller.route(route), 401, "unauthorized")


def found_by(caller: Protocol, word: str) -> tuple[int, bool]:
    """How many hits its recall has, and whether the word is in its snapshot."""
    hits = caller.request("POST", "/v1/recall", {"query": word}).json()
    position = f"{time.time_ns() // 1_000_000}.4294967295"
    return len(hits), word in caller.http.get(f"/v1/snapshot/{position}").text


@pytest.mark.proves("memoryprotocol-9")
def test_an_episode_of_one_tenant_is_none_of_anothers(as_token: As) -> None:
    mine, other = as_token("tok-a"), as_token("tok-b")
    mine.ingest("the celadon recipe", id=ABSENT)
    missing = refused(other.get(ABSENT), 404, "episode_not_found")
    assert "celadon" not in missing
    assert found_by(mine, "celadon") == (1, True)
    assert found_by(other, "celadon") == (0, False)
    other.ingest("another text behind the same id", id=ABSENT)
    assert mine.episode(ABSENT)["content"] == "the celadon recipe"
    assert other.episode(ABSENT)["content"] == "another text behind the same id"


@pytest.mark.proves("memoryprotocol-11")
@pytest.mark.parametrize("route", ["ingest", "recall", "forget"])
@pytest.mark.parametrize("member", ["scope", "tenant"])
def test_no_member_of_a_body_chooses_the_tenant_and_nothing_is_written(
    a: Protocol, store_a: Path, route: str, member: str
) -> None:
    a.ingest(id=ABSENT)
    before = commits(store_a)
    method, path, body = ROUTES[route]
    assert body is not None
    assert member in refused(a.request(method, path, {**body, member: "B"}), 422, "validate")
    assert commits(store_a) == before
    assert a.get(ABSENT).status_code == 200


@pytest.mark.proves("memoryprotocol-12")
def test_tenants_that_differ_in_case_do_not_see_each_other(as_token: As) -> None:
    as_token("tok-upper").ingest(id=ABSENT)
    refused(as_token("tok-lower").get(ABSENT), 404, "episode_not_found")


# --- the rate ---------------------------------------------------------------------------------------------------


BURST = 10
SLOW = {"rate_per_second": 1, "rate_burst": BURST * 1000, "processes": 1000}
"""Of a thousand processes this is one: nothing comes back while a test runs."""
FAST = {"rate_per_second": 5, "rate_burst": 1}


def exhaust(caller: Protocol) -> httpx.Response:
    """The refusal that ends it."""
    while (response := caller.get(ABSENT)).status_code != 429:
        assert response.status_code == 404
    return response


@pytest.mark.proves("memoryprotocol-13")
def test_the_request_after_the_burst_is_429(open_protocol: OpenProtocol) -> None:
    caller = open_protocol(**SLOW)("tok-a")
    assert [caller.get(ABSENT).status_code for _ in range(BURST)] == [404] * BURST
    refused(caller.get(ABSENT), 429, "rate_limited")


@pytest.mark.proves("memoryprotocol-14", "memoryprotocol-15")
def test_a_429_says_how_many_whole_seconds_to_wait_and_that_is_enough(open_protocol: OpenProtocol) -> None:
    caller = open_protocol(**FAST)("tok-a")
    response = exhaust(caller)
    assert response.headers["retry-after"] == "1"
    time.sleep(1)
    assert caller.get(ABSENT).status_code == 404


@pytest.mark.proves("memoryprotocol-17")
def test_one_tenant_at_its_limit_leaves_others_and_health_alone(open_protocol: OpenProtocol) -> None:
    as_token = open_protocol(metrics_on_main_port=True, **SLOW)
    exhausted = as_token("tok-a")
    exhaust(exhausted)
    assert as_token("tok-b").get(ABSENT).status_code == 404
    assert exhausted.request("GET", "/healthz").status_code == 200
    assert exhausted.http.get("/metrics").status_code == 200


@pytest.mark.proves("memoryprotocol-18")
def test_401_and_403_spend_nothing(open_protocol: OpenProtocol) -> None:
    as_token = open_protocol(**SLOW)
    for _ in range(20):
        assert as_token("tok-of-nobody").get(ABSENT).status_code == 401
        assert as_token("tok-in").get(ABSENT).status_code == 403
    caller = as_token("tok-a")
    assert [caller.route("ingest").status_code for _ in range(BURST)] == [200] * BURST
    assert caller.route("ingest").status_code == 429
    assert as_token("tok-in").get(ABSENT).status_code == 403


@pytest.mark.proves("memoryprotocol-19")
def test_malformed_bodies_spend_and_the_rate_is_judged_before_the_body(open_protocol: OpenProtocol) -> None:
    caller = open_protocol(**SLOW)("tok-a")
    assert [caller.send(b"{").status_code for _ in range(BURST)] == [400] * BURST
    refused(caller.route("ingest"), 429, "rate_limited")
    refused(caller.send(b"{"), 429, "rate_limited")


@pytest.mark.proves("memoryprotocol-20")
def test_two_tokens_of_one_tenant_share_one_bucket(open_protocol: OpenProtocol) -> None:
    as_token = open_protocol(**SLOW)
    first, second = as_token("tok-a"), as_token("tok-a2")
    assert [caller.get(ABSENT).status_code for caller in (first, second) * (BURST // 2)] == [404] * BURST
    assert [caller.get(ABSENT).status_code for caller in (first, second)] == [429, 429]

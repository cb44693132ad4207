"""Browsers at the door: DNS rebinding without tokens, CORS with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from http_support import Caller, envelope, note

from memoree.http.origin import is_loopback
from memoree.http.settings import parse_origins

OpenTenants = Callable[..., Callable[[str | None], Caller]]
PUT = envelope("artifact.put", note(), key="k")
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", ""]
)
def test_a_foreign_host_is_403_everywhere(caller: Caller, host: str) -> None:
    refused = caller.post(PUT, {"Host": host})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert caller.http.get("/readyz", headers={"Host": host}).json()["error"] == "forbidden"
    assert caller.last_commit_seq() == 0


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "file://", "http://127.0.0.1"]
)
def test_a_foreign_origin_is_403_and_gets_no_cors_headers(caller: Caller, origin: str) -> None:
    refused = caller.post(PUT, {"Origin": origin})
    assert refused.status_code == 403
    assert not [name for name in refused.headers if name.startswith("access-control")]
    assert caller.http.options("/v1/call", headers={"Origin": origin, **PREFLIGHT}).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site"])
def test_what_a_page_of_another_site_embeds_is_403(caller: Caller, site: str) -> None:
    asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    for path in ("/v1/claims?workspace_id=wsp_lab&project_id=prj_kiln", "/docs"):
        assert caller.http.get(path, headers=asked).status_code == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_what_an_own_page_or_the_user_asks_for_is_served_and_never_embedded_elsewhere(
    caller: Caller, site: str
) -> None:
    answer = caller.http.get("/docs", headers={"Sec-Fetch-Site": site})
    assert (answer.status_code, answer.headers["cross-origin-resource-policy"]) == (200, "same-origin")


def test_its_own_pages_and_programs_may_come(caller: Caller) -> None:
    port = caller.http.base_url.port
    for host in (f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}", "127.0.0.1"):
        assert caller.post(PUT, {"Host": host, "Origin": f"http://{host}"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("x", False)],
)
def test_loopback_is_what_can_only_be_this_machine(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_with_tokens_every_origin_may_ask_by_default(open_tenants: OpenTenants) -> None:
    call_as = open_tenants()
    answer = call_as("tok-a").post(PUT, {"Origin": "https://a.example", "Host": "memory.example"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
    assert "Memoree-Commit-Seq" in answer.headers["access-control-expose-headers"]


def test_a_preflight_needs_and_spends_no_token_and_knows_the_allowed_origins(open_tenants: OpenTenants) -> None:
    anonymous = open_tenants(cors_origins=("https://a.example",), rate_burst=1)(None)

    def preflight(origin: str) -> tuple[int, str | None]:
        response = anonymous.http.options("/v1/call", headers={"Origin": origin, **PREFLIGHT})
        return response.status_code, response.headers.get("access-control-allow-origin")

    assert [preflight("https://a.example") for _ in range(5)] == [(200, "https://a.example")] * 5
    assert preflight("https://b.example") == (400, None)


def test_origins_that_cannot_be_parsed_are_dropped() -> None:
    assert parse_origins("https://a.example/, nonsense, ,http://b:1,https://c/path") == (
        "https://a.example",
        "http://b:1",
    )
    assert parse_origins("*") == ("*",)

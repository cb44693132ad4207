"""`/mcp`: the gate before it, the statuses of the transport, and the same answers as everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp_support import Json, Model, http_model, serving

TOKENS: Json = {
    "tok-all": {
        "tenant": "local",
        "scopes": ["recall", "ingest", "forget", "inbox", "admin"],
        "agent": "Grok CLI!! v2",
    },
    "tok-read": {"tenant": "local", "scopes": ["recall"]},
    "tok-other": {
        "tenant": "local",
        "scopes": ["recall", "ingest"],
        "context": {"workspace_id": "wsp_other", "project_id": "prj_other"},
    },
}
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
BODY_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True)
class Door:
    url: str

    def post(self, body: Json | bytes, token: str | None = None, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        more = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.post(
            f"{self.url}/mcp", content=content, headers={**HEADERS, **more, **headers}, timeout=60, trust_env=False
        )


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """With tokens."""
    directory = tmp_path_factory.mktemp("guarded")
    tokens = directory / "tokens.json"
    tokens.write_text(json.dumps(TOKENS))
    tokens.chmod(0o600)
    with serving(directory / "data", "--tokens", str(tokens)) as url:
        yield Door(url)


@pytest.fixture(scope="module")
def open_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """Without tokens: for this machine alone."""
    with serving(tmp_path_factory.mktemp("open")) as url:
        yield Door(url)


@pytest.fixture(scope="module")
def reader(guarded: Door) -> Iterator[Model]:
    with http_model(guarded.url, "tok-read") as model:
        yield model


def request(method: str, number: int = 1, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


HEALTH = request("tools/call", name="memory_health", arguments={})


def test_without_a_token_nothing_is_answered(guarded: Door) -> None:
    refused = guarded.post(HEALTH)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert guarded.post(HEALTH, "tok-wrong").status_code == 401


def test_a_tool_needs_the_scope_of_its_operation(guarded: Door, reader: Model) -> None:
    refusal = reader.refused("memory_remember", text="not allowed to")
    assert refusal.startswith("Error [FORBIDDEN]: the token lacks the scope `ingest`")
    assert reader.refused("memory_write_inbox", content="nor this").startswith("Error [FORBIDDEN]: ")
    assert reader.refused("memory_forget", artifact_id="art_x", reason="r").startswith("Error [FORBIDDEN]: ")
    assert "presence" in reader.ok("memory_retrieve", query="anything")


def test_a_token_works_in_its_own_context_and_as_its_own_agent(guarded: Door, reader: Model) -> None:
    with http_model(guarded.url, "tok-all") as writer, http_model(guarded.url, "tok-other") as stranger:
        told = writer.ok("memory_remember", text="The spare key hangs behind the clock.")
        found = reader.ok("memory_browse")["items"]
        assert told["artifact_id"] in [item["artifact_id"] for item in found]
        assert stranger.ok("memory_browse")["items"] == []
        assert writer.ok("memory_write_inbox", content="a proposal")["agent"] == "grok-cli-v2"
    envelope = {"request_id": "r", "op": "artifact.get", "input": {"artifact_id": told["artifact_id"]}}
    record = httpx.post(
        f"{guarded.url}/v1/call", json=envelope, headers={"Authorization": "Bearer tok-all"}, trust_env=False
    ).json()["result"]
    assert record["actor"] == "Grok CLI!! v2"


def test_what_is_remembered_here_is_found_over_http(guarded: Door) -> None:
    claim = {"statement": "The boiler is serviced in May.", "quote": "serviced in May"}
    with http_model(guarded.url, "tok-all") as writer:
        told = writer.ok("memory_remember", text="The boiler is serviced in May by Orla.", claims=[claim])
    context = {"workspace_id": "wsp_default", "project_id": "prj_default"}
    envelope = {"request_id": "r", "op": "memory.recall", "context": context, "input": {"query": "boiler serviced"}}
    found = httpx.post(
        f"{guarded.url}/v1/call", json=envelope, headers={"Authorization": "Bearer tok-all"}, trust_env=False
    ).json()["result"]
    assert [each["claim_id"] for each in found["claims"]] == [told["claims"][0]["claim_id"]]


@pytest.mark.proves("okf-81")
def test_a_foreign_host_or_page_is_refused(open_door: Door) -> None:
    assert open_door.post(HEALTH, Host="memory.example").status_code == 403
    assert open_door.post(HEALTH, Origin="https://evil.example").status_code == 403
    assert open_door.post(HEALTH, **{"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert open_door.post(HEALTH).status_code == 200


@pytest.mark.proves("okf-81")
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_no_method_but_post_is_known(open_door: Door, method: str) -> None:
    refused = httpx.request(method, f"{open_door.url}/mcp", headers=HEADERS, trust_env=False)
    assert refused.status_code == 405
    assert "POST" in refused.headers["allow"]


@pytest.mark.proves("okf-81")
def test_the_statuses_of_the_transport(open_door: Door) -> None:
    assert httpx.post(f"{open_door.url}/mcp/more", headers=HEADERS, trust_env=False).status_code == 404
    notified = open_door.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (notified.status_code, notified.content) == (202, b"")
    unreadable = open_door.post(b"{ no json")
    assert (unreadable.status_code, unreadable.json()["error"]["code"], unreadable.json()["id"]) == (400, -32700, None)
    assert open_door.post(b"[]" * 3, **{"Content-Type": "text/plain"}).status_code == 415
    answered = open_door.post(HEALTH)
    assert (answered.status_code, answered.headers["content-type"]) == (200, "application/json")
    assert answered.headers["cache-control"] == "no-store"
    assert "mcp-session-id" not in answered.headers


@pytest.mark.proves("okf-81")
def test_a_body_that_is_too_large_is_told_so(open_door: Door) -> None:
    def search(size: int) -> bytes:
        body = json.dumps(request("tools/call", name="memory_search", arguments={"query": "x"}))
        return body.encode() + b" " * (size - len(body))

    assert open_door.post(search(BODY_BYTES_MAX + 1)).status_code == 413
    assert open_door.post(search(BODY_BYTES_MAX)).status_code == 200


def test_the_profile_stands_in_the_address(open_door: Door) -> None:
    with http_model(open_door.url, profile="okf") as model:
        assert len(model.tools()) == 10
        assert model.refused("memory_remember", text="x") == "Unknown tool: memory_remember"
    for query in ("profile=everything", "profile=okf&profile=agent", "profile=", "tools=all"):
        refused = httpx.post(f"{open_door.url}/mcp?{query}", json=HEALTH, headers=HEADERS, trust_env=False)
        assert refused.status_code == 400, query


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_clients_of_both_generations_are_served_without_a_session(open_door: Door, mode: str) -> None:
    with http_model(open_door.url, mode=mode) as model:
        assert model.client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        assert model.ok("memory_health")["concepts"] == 0


def test_the_limiter_covers_this_door(tmp_path: Path) -> None:
    """In a process of its own, whose rate is spent soon."""
    from starlette.testclient import TestClient

    from memoree.assembly import embedded_service
    from memoree.http.app import create_app
    from memoree.http.settings import HttpSettings

    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps(TOKENS))
    tokens.chmod(0o600)
    service = embedded_service(tmp_path / "data")
    app = create_app(service, HttpSettings(tokens_file=tokens, rate_per_second=1, rate_burst=2))
    with TestClient(app) as client:
        headers = {**HEADERS, "Authorization": "Bearer tok-read"}
        first = client.post("/mcp", json=HEALTH, headers=headers)
        rest = [client.post("/mcp", json=HEALTH, headers=headers) for _ in range(20)]
    service.close_sync()
    assert (first.status_code, first.headers["ratelimit-limit"]) == (200, "2")
    refused = next(answer for answer in rest if answer.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1


def test_an_api_starts_without_the_sdk() -> None:
    code = "import sys, memoree.http.app; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert "memoree.http.mcp" in loaded
    assert not {name for name in loaded if name.split(".")[0] in ("mcp", "mcp_types") or name.startswith("memoree.mcp")}

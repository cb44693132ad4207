"""Bearer tokens, scopes and tenants: every door stays shut unless the tokens file opens it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from http_support import Caller, envelope, note, wait_for, write_tokens

from memoree.errors import MemoreeError
from memoree.http.answers import HttpRefusal
from memoree.http.auth import Principal, Tokens
from memoree.http.settings import HttpSettings

OpenTenants = Callable[..., Callable[[str | None], Caller]]
SECRET = "tok-very-secret"
PUT = envelope("artifact.put", note(), key="k")
READ = envelope("artifact.get", {"artifact_id": "art_1"})


def request_of(*authorization: str) -> dict[str, Any]:
    return {
        "type": "http",
        "headers": [(b"authorization", each.encode()) for each in authorization],
    }


def accepted(tokens: Tokens, token: str) -> Principal | None:
    try:
        return tokens.authenticate(request_of(f"Bearer {token}"))
    except HttpRefusal as refused:
        assert refused.status == 401
        return None


def tokens_of(path: Path, entries: Any, **how: Any) -> Tokens:
    return Tokens(write_tokens(path, entries), **how)


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "Basic x",
        "Bearer",
        "tok-a",
        "Bearer  tok-a",
        "Bearer tok-a ,",
        "Bearer nobody",
        "Bearer " + "x" * 5000,
    ],
)
def test_a_missing_malformed_or_unknown_token_is_401_as_an_envelope(
    open_tenants: OpenTenants, authorization: str | None
) -> None:
    caller = open_tenants()(None)
    headers = {} if authorization is None else {"Authorization": authorization}
    for path, method in (("/v1/call", "POST"), ("/v1/operations/att_01", "GET")):
        response = caller.http.request(method, path, content=json.dumps(READ), headers=headers)
        answer = response.json()
        assert (response.status_code, answer["error"]["code"]) == (401, "UNAUTHENTICATED")
        assert answer["request_id"] == "req_transport"
        assert response.headers["www-authenticate"] == "Bearer"
        assert "nobody" not in response.text


@pytest.mark.parametrize("authorization", [("Bearer tok", "Bearer tok"), ("Bearer ",), ("",)])
def test_two_authorization_headers_or_an_empty_one_are_refused(tmp_path: Path, authorization: tuple[str, ...]) -> None:
    tokens = tokens_of(tmp_path / "t", {"tok": {"tenant": "A", "scopes": ["recall"]}})
    with pytest.raises(HttpRefusal):
        tokens.authenticate(request_of(*authorization))


def test_a_token_without_the_scope_is_403_and_the_scope_is_named(open_tenants: OpenTenants) -> None:
    only_ingest = open_tenants()("tok-in")
    refused = only_ingest.post(READ)

    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert "`recall`" in refused.json()["error"]["message"]
    assert refused.json()["error"]["details"] == {"required_scope": "recall"}
    assert refused.json()["request_id"] == READ["request_id"]
    assert only_ingest.post(PUT).status_code == 200


def test_an_unknown_token_is_401_even_where_the_scope_would_be_missing(open_tenants: OpenTenants) -> None:
    assert open_tenants()("nobody").post(READ).status_code == 401


def test_health_needs_no_token(open_tenants: OpenTenants) -> None:
    caller = open_tenants()(None)
    assert [caller.http.get(path).status_code for path in ("/livez", "/readyz", "/healthz")] == [200, 200, 200]


@pytest.mark.fault_class(24)
@pytest.mark.fault_class(25)
def test_one_tenant_never_sees_what_another_stored(open_tenants: OpenTenants) -> None:
    call_as = open_tenants()
    a, a2, b = call_as("tok-a"), call_as("tok-a2"), call_as("tok-b")
    artifact = a.put("tenant A's glaze")

    for _ in range(20):
        assert a.get_artifact(artifact["artifact_id"]).status_code == 200
        assert b.get_artifact(artifact["artifact_id"]).status_code == 404
    assert a2.get_artifact(artifact["artifact_id"]).status_code == 200
    found = b.post(envelope("search", {"query": "glaze", "horizon": "personal", "reason": "test"}))
    assert found.json()["result"]["hits"] == []


@pytest.mark.fault_class(10)
def test_the_same_key_of_two_tenants_is_two_keys(open_tenants: OpenTenants) -> None:
    call_as = open_tenants()
    call_as("tok-a").put("of A", key="same")
    of_b = call_as("tok-b").put("of B", key="same")
    assert of_b["created"] is True


@pytest.mark.fault_class(26)
def test_tenants_with_similar_names_are_disjoint(open_tenants: OpenTenants, tokens_file: Path) -> None:
    names = ("test_user", "test_user1", "a", "a1", "a_", "A")
    write_tokens(tokens_file, {f"tok:{name}": {"tenant": name, "scopes": ["recall", "ingest"]} for name in names})
    call_as = open_tenants(names)
    callers = {name: call_as(f"tok:{name}") for name in names}
    artifacts = {name: caller.put(f"of {name}")["artifact_id"] for name, caller in callers.items()}
    for reader, caller in callers.items():
        seen = {owner for owner, artifact in artifacts.items() if caller.get_artifact(artifact).status_code == 200}
        assert seen == {reader}


@pytest.mark.fault_class(29)
def test_no_request_field_chooses_the_tenant(open_tenants: OpenTenants) -> None:
    call_as = open_tenants()
    a, b = call_as("tok-a"), call_as("tok-b")
    response = a.post(PUT | {"tenant": "B"}, {"X-Tenant": "B"})
    assert response.status_code == 400
    assert (a.last_commit_seq(), b.last_commit_seq()) == (0, 0)


@pytest.mark.proves("tokens-6")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/call", READ),
        ("POST", "/v1/call", envelope("verify")),
        ("POST", "/v1/bulk", READ),
        ("GET", "/v1/operations/att_01KJR4GZXJDFPSG3SB9V65FA1E", None),
        ("GET", "/v1/artifacts?workspace_id=w&project_id=p", None),
        ("GET", "/v1/artifacts/art_1/revisions/rev_1/content", None),
        ("POST", "/v1/artifacts/uploads", {}),
        ("POST", "/v1/ingest", {"source": "s", "content": "c"}),
        ("POST", "/v1/recall", {"query": "q"}),
        ("POST", "/v1/forget", {"target": {"Id": "01KJR4GZXJDFPSG3SB9V65FA1E"}}),
        ("GET", "/v1/snapshot/1.0", None),
        ("GET", "/v1/episode/01KJR4GZXJDFPSG3SB9V65FA1E", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_operator_is_403_wherever_there_is_a_tenants_data(
    open_tenants: OpenTenants, tokens_file: Path, method: str, path: str, body: Any
) -> None:
    write_tokens(tokens_file, {"tok-operator": {"tenant": "*", "scopes": ["admin"]}})
    refused = open_tenants()("tok-operator").http.request(method, path, content=json.dumps(body))
    error = refused.json().get("error")
    assert refused.status_code == 403, refused.text
    assert (error if isinstance(error, str) else error.get("code").lower()) == "forbidden"


@pytest.mark.proves("tokens-7")
@pytest.mark.parametrize("scopes", [[], ["recall"], ["admin", "recall"], ["ingest", "forget", "inbox"]])
def test_an_entry_of_all_tenants_may_only_administer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, scopes: list[str]
) -> None:
    entries = {"wide": {"tenant": "*", "scopes": scopes}, "good": {"tenant": "*", "scopes": ["admin"]}}
    tokens = tokens_of(tmp_path / "t", entries, only_tenant="local")
    assert accepted(tokens, "wide") is None
    assert (found := accepted(tokens, "good")) is not None and found.operator
    assert "entry 1 of the tokens file is ignored" in caplog.text
    assert not tokens.names("A")
    assert not tokens.names("*")


@pytest.mark.parametrize("tenant", ["", "x" * 129, "bad scope", "bad%scope", "a:b", "..", "á", None, 7])
def test_a_token_whose_tenant_has_no_valid_name_is_unknown_and_the_others_work(tmp_path: Path, tenant: Any) -> None:
    entries = {"bad": {"tenant": tenant, "scopes": ["recall"]}, "good": {"tenant": "x" * 128, "scopes": ["recall"]}}
    tokens = tokens_of(tmp_path / "t", entries)

    assert accepted(tokens, "bad") is None
    assert accepted(tokens, "good") is not None
    assert tokens.check().ok
    assert "1 ignored" in tokens.check().detail


@pytest.mark.parametrize(
    "entry",
    [{"tenant": "A"}, {"tenant": "A", "scopes": ["root"]}, {"tenant": "A", "scopes": "recall"}, [], None,
     {"tenant": "A", "scopes": [], "role": "x"}, {"tenant": "A", "scopes": [], "expires_at": "tomorrow"}],
)  # fmt: skip
def test_an_entry_that_is_not_understood_opens_nothing(tmp_path: Path, entry: Any) -> None:
    assert accepted(tokens_of(tmp_path / "t", {"tok": entry}), "tok") is None


def test_a_file_that_opens_nothing_turns_readiness_red(tmp_path: Path) -> None:
    assert not tokens_of(tmp_path / "tokens.json", {"x": 1}).check().ok
    assert tokens_of(tmp_path / "tokens.json", {"x": {"tenant": "a", "scopes": ["recall"]}}).check().ok


def test_tokens_of_another_tenant_are_refused_where_there_is_only_one(tmp_path: Path) -> None:
    entries = {"here": {"tenant": "local", "scopes": ["recall"]}, "there": {"tenant": "A", "scopes": ["recall"]}}
    tokens = tokens_of(tmp_path / "t", entries, only_tenant="local")
    assert accepted(tokens, "here") is not None
    assert accepted(tokens, "there") is None


def test_an_entry_may_hold_only_the_digest_and_the_digest_is_no_token(tmp_path: Path) -> None:
    digest = "sha256:" + hashlib.sha256(SECRET.encode()).hexdigest()
    tokens = tokens_of(tmp_path / "t", {digest: {"tenant": "A", "scopes": ["recall"]}})
    assert accepted(tokens, SECRET) is not None
    assert accepted(tokens, digest) is None


def test_a_plain_token_is_not_kept_in_memory(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path / "t", {SECRET: {"tenant": "A", "scopes": ["recall"]}})
    assert SECRET not in repr(tokens._table)
    assert accepted(tokens, SECRET) is not None


def test_a_token_ends_at_its_expiry(tmp_path: Path) -> None:
    now = datetime(2026, 3, 2, 12, tzinfo=UTC)
    entry = {"tenant": "A", "scopes": ["recall"], "expires_at": "2026-03-02T20:00:00+07:00"}
    tokens = tokens_of(tmp_path / "t", {"tok": entry}, clock_now=lambda: now)
    assert accepted(tokens, "tok") is not None
    now += timedelta(hours=1)
    assert accepted(tokens, "tok") is None


def test_the_context_of_a_token_has_a_default(tmp_path: Path) -> None:
    context = {"workspace_id": "w", "project_id": "p", "task_id": "t"}
    entries = {"plain": {"tenant": "A", "scopes": []}, "bound": {"tenant": "A", "scopes": [], "context": context}}
    tokens = tokens_of(tmp_path / "t", entries)
    plain, bound = accepted(tokens, "plain"), accepted(tokens, "bound")
    assert plain is not None and bound is not None
    assert (plain.context.workspace_id, plain.context.project_id) == ("wsp_default", "prj_default")
    assert bound.context.model_dump(exclude_none=True, exclude_defaults=True) == context


@pytest.mark.fault_class(22)
@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"tok-a": ', b"\xff"])
def test_a_missing_or_broken_file_shuts_every_route_and_turns_readiness_red(
    open_tenants: OpenTenants, tokens_file: Path, content: bytes | None
) -> None:
    tokens_file.unlink()
    if content is not None:
        tokens_file.write_bytes(content)
    call_as = open_tenants()

    for token in (None, "tok-a", "null", "None"):
        assert call_as(token).post(READ).status_code == 401
    anonymous = call_as(None).http
    assert anonymous.get("/healthz").status_code == 200
    readiness = anonymous.get("/readyz")
    assert (readiness.status_code, readiness.json()["checks"]["tokens"]["ok"]) == (503, False)


@pytest.mark.fault_class(22)
def test_an_empty_path_or_a_directory_is_never_no_authentication(tmp_path: Path) -> None:
    with pytest.raises(MemoreeError, match="empty"):
        HttpSettings(tokens_file=Path())
    with pytest.raises(MemoreeError, match="empty"):
        HttpSettings.from_environment({"MEMOREE_TOKENS_FILE": " "})
    with pytest.raises(MemoreeError, match="empty"):
        HttpSettings.from_environment({"MEMOREE_TOKENS": ""})
    with pytest.raises(MemoreeError, match="needs one"):
        HttpSettings.from_environment({}, tokens_required=True)
    assert not Tokens(tmp_path).check().ok


def test_a_changed_file_is_read_again_and_a_broken_one_shuts_the_door(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "t"
    tokens = tokens_of(path, {"old": {"tenant": "A", "scopes": []}}, monotonic=lambda: now)
    write_tokens(path, {"new": {"tenant": "A", "scopes": []}})
    assert accepted(tokens, "old") is not None, "not looked at again within the second"
    now += 1.0
    assert (accepted(tokens, "old"), accepted(tokens, "new") is not None) == (None, True)
    path.write_bytes(b"{")
    now += 1.0
    assert accepted(tokens, "new") is None
    write_tokens(path, {"new": {"tenant": "A", "scopes": []}})
    now += 1.0
    assert accepted(tokens, "new") is not None


def test_a_revoked_token_stops_working_while_the_server_runs(open_tenants: OpenTenants, tokens_file: Path) -> None:
    caller = open_tenants()("tok-a")
    assert caller.post(READ).status_code == 404
    write_tokens(tokens_file, {"tok-b": {"tenant": "B", "scopes": ["recall"]}})
    wait_for(lambda: caller.post(READ).status_code == 401, "the revocation")


def test_no_log_line_holds_a_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        tokens_of(tmp_path / "a", {SECRET: {"tenant": "bad scope", "scopes": []}})
        (tmp_path / "b").write_text(f'{{"{SECRET}": oops')
        Tokens(tmp_path / "b")
    assert len(caplog.records) >= 2
    assert SECRET not in caplog.text


def test_a_file_others_can_read_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_tokens(tmp_path / "t", {})
    path.chmod(0o644)
    Tokens(path)
    assert "0600" in caplog.text

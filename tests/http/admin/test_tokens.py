"""`/v1/admin/tokens`: who may make, see and revoke which tokens."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_support import Caller, Scripted, envelope, serving, wait_for, write_tokens

from memoree.http.app import create_app
from memoree.http.settings import HttpSettings
from memoree.tokens.places import TokensText

CallAs = Callable[[str | None], Caller]
OpenTenants = Callable[..., CallAs]

PATH = "/v1/admin/tokens"
ALL = ["recall", "ingest", "forget", "inbox", "admin"]
ENTRIES: dict[str, Any] = {
    "tok-operator": {"tenant": "*", "scopes": ["admin"]},
    "tok-admin-a": {"tenant": "A", "scopes": ["recall", "admin"]},
    "tok-all-a": {"tenant": "A", "scopes": ALL},
    "tok-b": {"tenant": "B", "scopes": ALL},
    "tok-reads-a": {"tenant": "A", "scopes": ["recall"]},
}
DIGITS = re.compile(r"[0-9a-f]{40,}")
"""More of a digest, or of a made token, than any id."""


@pytest.fixture
def tokens_file(tmp_path: Path) -> Path:
    return write_tokens(tmp_path / "tokens.json", ENTRIES)


@pytest.fixture
def call_as(open_tenants: OpenTenants) -> CallAs:
    return open_tenants()


def id_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:12]


def code(answer: httpx.Response) -> str | None:
    found: str | None = (answer.json().get("error") or {}).get("code")
    return found


def make(caller: Caller, **entry: Any) -> httpx.Response:
    return caller.http.post(PATH, content=json.dumps(entry))


def reads(caller: Caller) -> int:
    return caller.post(envelope("artifact.get", {"artifact_id": "art_1"})).status_code


@pytest.mark.proves("tokens-9")
def test_a_made_token_is_told_once_kept_as_its_digest_and_works_at_once(call_as: CallAs, tokens_file: Path) -> None:
    context = {"workspace_id": "w", "project_id": "p"}
    more = {"name": "for CI", "agent": "ci", "context": context, "expires_at": "2999-01-01T00:00:00+01:00"}
    made = make(call_as("tok-all-a"), scopes=["recall", "recall"], **more)
    assert made.status_code == 201, made.text
    told = made.json()
    token = told.get("token", "")

    assert told == {
        "token": token,
        "id": id_of(token),
        "tenant": "A",
        "scopes": ["recall"],
        **more,
        "expires_at": "2998-12-31T23:00:00Z",
    }
    assert made.headers["cache-control"] == "no-store"
    assert reads(call_as(token)) == 404
    assert token not in tokens_file.read_text()
    assert f"sha256:{hashlib.sha256(token.encode()).hexdigest()}" in json.loads(tokens_file.read_text())
    listed = call_as("tok-all-a").http.get(PATH)
    assert {**told, "token": None} in [{**each, "token": None} for each in listed.json().get("tokens", [])]
    assert token not in listed.text


@pytest.mark.proves("tokens-9")
def test_a_list_tells_an_administrator_the_own_tenants_tokens_and_an_operator_all(call_as: CallAs) -> None:
    def ids(token: str) -> set[str]:
        return {each["id"] for each in call_as(token).http.get(PATH).json().get("tokens", [])}

    assert ids("tok-admin-a") == {id_of(token) for token, entry in ENTRIES.items() if entry["tenant"] == "A"}
    assert ids("tok-operator") == set(map(id_of, ENTRIES))


@pytest.mark.proves("tokens-11")
def test_a_revoked_token_is_unknown_at_once(call_as: CallAs) -> None:
    assert reads(call_as("tok-reads-a")) == 404
    revoked = call_as("tok-admin-a").http.delete(f"{PATH}/{id_of('tok-reads-a')[:8]}")
    assert (revoked.status_code, revoked.json()) == (
        200,
        {"id": id_of("tok-reads-a"), "tenant": "A", "scopes": ["recall"]},
    )
    assert reads(call_as("tok-reads-a")) == 401
    assert reads(call_as("tok-admin-a")) == 404
    again = call_as("tok-admin-a").http.delete(f"{PATH}/{id_of('tok-reads-a')}")
    assert (again.status_code, code(again)) == (404, "NOT_FOUND")


@pytest.mark.proves("tokens-11")
@pytest.mark.parametrize("id_", ["abc", "xyzw", "ABCDEF", "0" * 65, "sha256:00"])
def test_what_is_no_id_is_refused(call_as: CallAs, id_: str) -> None:
    refused = call_as("tok-operator").http.delete(f"{PATH}/{id_}")
    assert (refused.status_code, code(refused)) == (400, "INVALID_REQUEST")


@pytest.mark.proves("tokens-11")
def test_an_id_that_begins_two_tokens_is_refused_where_both_are_ones_own(call_as: CallAs, tokens_file: Path) -> None:
    twins = {f"sha256:abcdef{number:058x}": {"tenant": tenant, "scopes": []} for number, tenant in enumerate("AAB")}
    write_tokens(tokens_file, ENTRIES | twins)
    administrator, other = call_as("tok-admin-a"), call_as("tok-b")

    refused = administrator.http.delete(f"{PATH}/abcdef")
    assert (refused.status_code, code(refused)) == (400, "INVALID_REQUEST")
    assert other.http.delete(f"{PATH}/abcdef").status_code == 200
    assert administrator.http.delete(f"{PATH}/{'abcdef' + '0' * 57 + '1'}").status_code == 200
    assert administrator.http.delete(f"{PATH}/abcdef").status_code == 200


@pytest.mark.proves("tokens-12")
@pytest.mark.parametrize("scope", ["ingest", "forget", "inbox"])
def test_nobody_gives_away_a_scope_they_lack(call_as: CallAs, tokens_file: Path, scope: str) -> None:
    before = tokens_file.read_bytes()
    refused = make(call_as("tok-admin-a"), scopes=["recall", scope])
    assert (refused.status_code, code(refused)) == (403, "FORBIDDEN")
    assert refused.json()["error"]["details"] == {"required_scope": scope}
    assert tokens_file.read_bytes() == before


@pytest.mark.proves("tokens-8", "tokens-12")
@pytest.mark.parametrize("tenant", ["B", "nobody", "*", "no name", ""])
def test_a_token_of_another_tenant_is_refused_as_if_there_were_none(
    call_as: CallAs, tokens_file: Path, tenant: str
) -> None:
    before = tokens_file.read_bytes()
    refused = make(call_as("tok-all-a"), tenant=tenant, scopes=["recall"])
    assert (refused.status_code, code(refused)) == (404, "NOT_FOUND")
    assert refused.json()["error"]["message"] == f"tenant {tenant!r} does not exist"
    assert tokens_file.read_bytes() == before


@pytest.mark.proves("tokens-8")
def test_a_token_of_another_tenant_is_not_there_to_be_revoked(call_as: CallAs) -> None:
    administrator = call_as("tok-all-a")
    others, nobodys = (administrator.http.delete(f"{PATH}/{id_}") for id_ in (id_of("tok-b"), "0123456789ab"))
    assert (others.status_code, code(others)) == (nobodys.status_code, code(nobodys)) == (404, "NOT_FOUND")
    assert others.json()["error"]["message"].replace(id_of("tok-b"), "") == nobodys.json()["error"]["message"].replace(
        "0123456789ab", ""
    )
    assert reads(call_as("tok-b")) == 404


@pytest.mark.proves("tokens-6", "tokens-12")
def test_an_operator_makes_and_revokes_tokens_of_any_tenant(call_as: CallAs) -> None:
    operator = call_as("tok-operator")
    made = make(operator, tenant="B", scopes=["recall"]).json()
    assert (made.get("tenant"), reads(call_as(made.get("token")))) == ("B", 404)
    another = make(operator, tenant="*", scopes=["admin"]).json()
    assert call_as(another.get("token")).http.get(PATH).status_code == 200
    assert operator.http.delete(f"{PATH}/{made['id']}").status_code == 200
    assert reads(call_as(made["token"])) == 401


@pytest.mark.proves("tokens-7")
@pytest.mark.parametrize("scopes", [["recall"], ["recall", "admin"]])
def test_an_operators_token_with_another_scope_is_not_made(call_as: CallAs, scopes: list[str]) -> None:
    refused = make(call_as("tok-operator"), tenant="*", scopes=scopes)
    assert (refused.status_code, code(refused)) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "entry",
    [
        {"scopes": ["recall"]},
        {"tenant": "no name", "scopes": ["recall"]},
        {"tenant": "A"},
        {"tenant": "A", "scopes": []},
        {"tenant": "A", "scopes": ["root"]},
        {"tenant": "A", "scopes": ["recall"], "expires_at": "tomorrow"},
        {"tenant": "A", "scopes": ["recall"], "expires_at": "2001-01-01T00:00:00Z"},
        {"tenant": "A", "scopes": ["recall"], "context": {"workspace_id": "w"}},
        {"tenant": "A", "scopes": ["recall"], "name": " "},
        {"tenant": "A", "scopes": ["recall"], "token": "mine"},
    ],
    ids=lambda entry: json.dumps(entry),
)
def test_a_token_that_would_open_nothing_or_is_not_understood_is_refused(
    call_as: CallAs, tokens_file: Path, entry: Any
) -> None:
    before = tokens_file.read_bytes()
    refused = make(call_as("tok-operator"), **entry)
    assert (refused.status_code, code(refused)) in {(400, "INVALID_REQUEST"), (500, "CONFIG_ERROR")}, refused.text
    assert tokens_file.read_bytes() == before


@pytest.mark.parametrize("token", [None, "nobody"])
def test_without_a_token_administration_is_401_before_anything_is_read(call_as: CallAs, token: str | None) -> None:
    refused = call_as(token).http.post(PATH, content=b"{")
    assert (refused.status_code, code(refused)) == (401, "UNAUTHENTICATED")


def test_without_the_scope_administration_is_403(call_as: CallAs) -> None:
    for method, path in (("GET", PATH), ("POST", PATH), ("DELETE", f"{PATH}/{id_of('tok-b')}")):
        refused = call_as("tok-reads-a").http.request(method, path)
        assert (refused.status_code, code(refused)) == (403, "FORBIDDEN")
        assert refused.json()["error"]["details"] == {"required_scope": "admin"}


def test_the_rate_is_judged_before_the_body_and_a_403_spends_nothing(open_tenants: OpenTenants) -> None:
    call_as = open_tenants(rate_per_second=1.0, rate_burst=2)
    for _ in range(5):
        assert call_as("tok-reads-a").http.get(PATH).status_code == 403
    administrator = call_as("tok-admin-a")
    statuses = [administrator.http.post(PATH, content=b"{").status_code for _ in range(3)]
    assert statuses == [400, 400, 429]
    assert call_as("tok-operator").http.get(PATH).status_code == 200, "an operator spends no tenant's rate"


def test_a_filter_that_does_not_exist_is_refused_and_not_passed_over(call_as: CallAs) -> None:
    assert call_as("tok-operator").http.get(PATH, params={"tenant": "A"}).status_code == 400


@pytest.mark.proves("tokens-10")
def test_a_file_that_is_none_is_not_written_over(call_as: CallAs, tokens_file: Path) -> None:
    operator = call_as("tok-operator")
    assert operator.http.get(PATH).status_code == 200
    tokens_file.write_bytes(b"[]")
    refused = make(operator, tenant="A", scopes=["recall"])
    assert refused.status_code in (401, 500)
    assert tokens_file.read_bytes() == b"[]"


@pytest.mark.proves("tokens-13")
def test_tokens_of_the_environment_are_listed_and_not_changed(scripted: Scripted, stack: ExitStack) -> None:
    settings = HttpSettings(tokens_file=TokensText(json.dumps(ENTRIES)))
    caller = Caller(stack.enter_context(serving(create_app(scripted, settings))), "tok-operator")
    stack.callback(caller.close)

    assert len(caller.http.get(PATH).json().get("tokens", [])) == len(ENTRIES)
    for refused in (make(caller, tenant="A", scopes=["recall"]), caller.http.delete(f"{PATH}/{id_of('tok-b')}")):
        assert (refused.status_code, code(refused)) == (501, "CONFIG_ERROR")


@pytest.mark.proves("tokens-13")
def test_where_nobody_is_asked_for_a_token_there_are_none_to_administer(caller: Caller) -> None:
    for refused in (caller.http.get(PATH), make(caller, scopes=["recall"]), caller.http.delete(f"{PATH}/abcdef")):
        assert (refused.status_code, code(refused)) == (404, "NOT_FOUND")


def test_the_one_tenant_of_a_store_is_the_only_one_tokens_are_made_for(scripted: Scripted, tmp_path: Path) -> None:
    entries = {"op": {"tenant": "*", "scopes": ["admin"]}}
    settings = HttpSettings(tokens_file=write_tokens(tmp_path / "t", entries), only_tenant="local")
    with serving(create_app(scripted, settings)) as url:
        caller = Caller(url, "op")
        assert make(caller, tenant="local", scopes=["recall"]).status_code == 201
        assert make(caller, tenant="A", scopes=["recall"]).status_code == 400
        caller.close()


@pytest.mark.proves("tokens-14")
def test_no_answer_log_line_metric_or_readiness_tells_a_token_or_a_digest(
    open_tenants: OpenTenants, tokens_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="memoree"):
        call_as = open_tenants(metrics_on_main_port=True, access_log=True)
        operator = call_as("tok-operator")
        made = make(operator, tenant="A", scopes=["recall"], name="n").json()
        secret = made.get("token", "")
        write_tokens(tokens_file, json.loads(tokens_file.read_text()) | {secret * 2: {"tenant": "*", "scopes": []}})
        wait_for(lambda: "ignored" in operator.http.get("/readyz").text, "the second look at the file")
        told = [
            operator.http.get(PATH).text,
            operator.http.get("/readyz").text,
            operator.http.get("/metrics").text,
            call_as(secret * 3).http.get(PATH).text,
            call_as(secret).http.get(PATH).text,
            make(operator, tenant="A", scopes=["recall"], token=secret[:20]).text.replace(secret[:20], ""),
            operator.http.delete(f"{PATH}/{made['id']}").text,
            caplog.text,
        ]
    for text in told:
        assert not [token for token in (*ENTRIES, secret) if token in text]
        assert DIGITS.search(text) is None

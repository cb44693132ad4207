"""`/v1/admin/tenants`: who may do what, and that a deletion takes two steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_support import Caller, Scripted, serving, write_tokens

from memoree.http.app import create_app
from memoree.http.settings import HttpSettings
from tenants_support import CONFIRMATION, FakeTenants

CallAs = Callable[[str], Caller]
PATH = "/v1/admin/tenants"
ENTRIES: dict[str, Any] = {
    "tok-operator": {"tenant": "*", "scopes": ["admin"]},
    "tok-admin-a": {"tenant": "A", "scopes": ["admin"]},
    "tok-reads-a": {"tenant": "A", "scopes": ["recall"]},
}
CHANGES = [
    ("POST", PATH, {"tenant": "{}"}),
    ("PUT", PATH + "/{}/quota", {"rows_max": 9}),
    ("DELETE", PATH + "/{}", None),
    ("DELETE", PATH + f"/{{}}?confirmation={CONFIRMATION}", None),
]


@pytest.fixture
def tenants() -> FakeTenants:
    return FakeTenants("A", "B", "C")


@pytest.fixture
def call_as(tmp_path: Path, tenants: FakeTenants, stack: ExitStack) -> CallAs:
    service = Scripted()
    service.tenants_told = tenants
    tokens = write_tokens(tmp_path / "tokens.json", ENTRIES)
    base_url = stack.enter_context(serving(create_app(service, HttpSettings(tokens_file=tokens))))

    def call(token: str) -> Caller:
        client = Caller(base_url, token)
        stack.callback(client.close)
        return client

    return call


def asked(caller: Caller, method: str, path: str, body: Any = None) -> httpx.Response:
    return caller.http.request(method, path, content=None if body is None else json.dumps(body))


def refusal(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, (answer.json().get("error") or {}).get("code")


def filled(change: tuple[str, str, Any], tenant: str) -> tuple[str, str, Any]:
    method, path, body = change
    return method, path.format(tenant), json.loads(json.dumps(body).replace("{}", tenant))


@pytest.mark.proves("operations-88")
def test_an_operator_lists_page_by_page_and_looks(call_as: CallAs) -> None:
    operator = call_as("tok-operator")
    assert asked(operator, "GET", f"{PATH}?limit=2").json() == {"tenants": ["A", "B"], "next": "B"}
    assert asked(operator, "GET", f"{PATH}?limit=2&after=A").json() == {"tenants": ["B", "C"]}
    assert asked(operator, "GET", f"{PATH}/B").json() == {"tenant": "B", "rows": 3, "bytes": 50}
    assert refusal(asked(operator, "GET", f"{PATH}/nobody")) == (404, "NOT_FOUND")


@pytest.mark.proves("operations-88")
def test_an_operator_creates_and_bounds(call_as: CallAs, tenants: FakeTenants) -> None:
    operator = call_as("tok-operator")
    statuses = [
        asked(operator, "POST", PATH, {"tenant": "D", "quota": {"rows_max": 5}}).status_code,
        asked(operator, "POST", PATH, {"tenant": "D"}).status_code,
        asked(operator, "PUT", f"{PATH}/D/quota", {"bytes_max": 7}).status_code,
    ]
    everything = {"rows_max": None, "bytes_max": 7, "rate_per_second": None, "rate_burst": None}
    assert statuses == [201, 200, 200]
    assert tenants.asked == [("create", "D", {"rows_max": 5}), ("create", "D", {}), ("quota", "D", everything)]


@pytest.mark.proves("operations-88")
def test_a_tenants_administrator_sees_that_tenant_alone(call_as: CallAs) -> None:
    admin = call_as("tok-admin-a")
    assert asked(admin, "GET", PATH).json() == {"tenants": ["A"]}
    assert asked(admin, "GET", f"{PATH}?after=A").json() == {"tenants": []}
    assert asked(admin, "GET", f"{PATH}/A").json().get("rows") == 3


@pytest.mark.proves("operations-88")
@pytest.mark.parametrize("change", CHANGES)
def test_a_tenants_administrator_changes_nothing(
    call_as: CallAs, tenants: FakeTenants, change: tuple[str, str, Any]
) -> None:
    admin = call_as("tok-admin-a")
    assert refusal(asked(admin, *filled(change, "A"))) == (403, "FORBIDDEN")
    assert tenants.asked == []


@pytest.mark.proves("operations-88")
@pytest.mark.parametrize("change", [("GET", PATH + "/{}", None), *CHANGES])
def test_anothers_tenant_and_one_that_is_not_there_are_told_alike(
    call_as: CallAs, tenants: FakeTenants, change: tuple[str, str, Any]
) -> None:
    admin = call_as("tok-admin-a")
    told = [asked(admin, *filled(change, name)) for name in ("B", "Z")]
    assert [refusal(answer) for answer in told] == [(404, "NOT_FOUND")] * 2
    assert told[0].text.replace("'B'", "'Z'") == told[1].text
    assert tenants.asked == []


@pytest.mark.proves("operations-88")
@pytest.mark.parametrize("change", [("GET", PATH, None), *CHANGES])
def test_without_the_scope_there_is_nothing(call_as: CallAs, change: tuple[str, str, Any]) -> None:
    assert refusal(asked(call_as("tok-reads-a"), *filled(change, "A"))) == (403, "FORBIDDEN")
    assert refusal(asked(call_as("nobody"), *filled(change, "A"))) == (401, "UNAUTHENTICATED")


@pytest.mark.proves("operations-85")
def test_a_deletion_is_told_before_it_is_done(call_as: CallAs, tenants: FakeTenants) -> None:
    operator = call_as("tok-operator")
    told = asked(operator, "DELETE", f"{PATH}/B")
    details = (told.json().get("error") or {}).get("details") or {}
    assert (refusal(told), details.get("confirmation"), details.get("rows")) == (
        (428, "REVISION_CONFLICT"),
        CONFIRMATION,
        3,
    )
    assert refusal(asked(operator, "DELETE", f"{PATH}/B?confirmation=wrong")) == (409, "REVISION_CONFLICT")
    assert tenants.asked == []
    assert asked(operator, "DELETE", f"{PATH}/B?confirmation={CONFIRMATION}").json().get("complete") is True
    assert tenants.asked == [("delete", "B")]


@pytest.mark.proves("operations-85")
def test_a_process_without_the_right_to_delete_names_the_command(call_as: CallAs, tenants: FakeTenants) -> None:
    tenants.deletes = False
    operator = call_as("tok-operator")
    for path in (f"{PATH}/B", f"{PATH}/B?confirmation={CONFIRMATION}"):
        told = asked(operator, "DELETE", path)
        assert refusal(told) == (501, "CONFIG_ERROR")
        assert "memoree tenant delete" in told.text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"{PATH}?limit=0", None),
        ("GET", f"{PATH}?limit=1001", None),
        ("GET", f"{PATH}?limit=\u0663", None),
        ("GET", f"{PATH}?limit=1&limit=2", None),
        ("GET", f"{PATH}?filter=x", None),
        ("GET", f"{PATH}/A?x=1", None),
        ("GET", f"{PATH}/A%20B", None),
        ("DELETE", f"{PATH}/A?yes=1", None),
        ("POST", PATH, {"tenant": "no/name"}),
        ("POST", PATH, {"tenant": "D", "rows_max": 1}),
        ("POST", PATH, {}),
        ("PUT", f"{PATH}/A/quota", {"rows_max": -1}),
        ("PUT", f"{PATH}/A/quota", {"rows": 1}),
        ("PUT", f"{PATH}/A/quota", []),
    ],
)
def test_what_cannot_be_meant_is_refused(
    call_as: CallAs, tenants: FakeTenants, method: str, path: str, body: Any
) -> None:
    assert refusal(asked(call_as("tok-operator"), method, path, body)) == (400, "INVALID_REQUEST")
    assert tenants.asked == []

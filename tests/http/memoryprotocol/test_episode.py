"""`GET /v1/episode/{id}` (contract §10.1), and what every route answers when something is wrong (§11)."""

from __future__ import annotations

import pytest
from http_support import Scripted

from memoree.errors import Code, MemoreeError
from memoree.service import refusal

from .conftest import As
from .protocol import ABSENT, ROUTES, Protocol, refused

PATH_OF_HOST = "/var/lib/memoree/store.sqlite3"
each_route = pytest.mark.parametrize("route", ROUTES)


@pytest.mark.proves("memoryprotocol-87")
def test_an_episode_is_what_was_sent_and_who_it_belongs_to(a: Protocol) -> None:
    sent = {"source": "kiln:log", "content": "# 12\n\ncone 6", "metadata": {"a": [1]}}
    lsn = a.ingest(**sent, id=ABSENT)
    since = {**lsn, "node_id": 0}
    bt = {"valid": [since, None], "sys": [since, None]}
    assert a.episode(ABSENT) == {**sent, "id": ABSENT, "scope": "A", "t_ref": None, "bt": bt}
    assert a.episode(ABSENT.lower()) == a.episode(ABSENT)


@pytest.mark.proves("memoryprotocol-87")
@pytest.mark.parametrize(
    "episode_id",
    ["TOOSHORT", "0192f3a0-7c1e-7000-8000-000000000000", f"{ABSENT[:25]}-", f"8{ABSENT[1:]}", f"{ABSENT}0", "%20" * 26,
     "%D9%A1" + ABSENT[1:]],
)  # fmt: skip
def test_what_is_no_ulid_is_400(a: Protocol, episode_id: str) -> None:
    refused(a.get(episode_id), 400, "invalid_episode_id")


@pytest.mark.proves("memoryprotocol-87", "memoryprotocol-99")
def test_an_absent_one_is_404(a: Protocol) -> None:
    refused(a.get(ABSENT), 404, "episode_not_found")


# --- what may go wrong ------------------------------------------------------------------------------------------


@pytest.mark.proves("memoryprotocol-98")
@each_route
@pytest.mark.parametrize("code", [Code.TRANSPORT_ERROR, Code.INTEGRITY_ERROR, Code.CONFIG_ERROR, Code.INDEX_NOT_READY])
def test_a_store_that_fails_is_500_storage(
    scripted_protocol: Protocol, scripted: Scripted, route: str, code: Code
) -> None:
    """One that may be asked again says when."""
    scripted.answer = lambda request: refusal(request.call.request_id, MemoreeError(code, "the bucket does not answer"))
    response = scripted_protocol.route(route)
    refused(response, 500, "storage")
    assert ("retry-after" in response.headers) is (code in (Code.TRANSPORT_ERROR, Code.INDEX_NOT_READY))


@pytest.mark.proves("memoryprotocol-98", "memoryprotocol-99")
@each_route
def test_a_fault_nobody_expected_is_500_unknown_and_tells_nothing_of_the_host(
    scripted_protocol: Protocol, scripted: Scripted, route: str
) -> None:
    def fail(_: object) -> None:
        raise OSError(f"cannot open {PATH_OF_HOST}")

    scripted.answer = fail  # type: ignore[assignment]
    message = refused(scripted_protocol.route(route), 500, "unknown")
    assert PATH_OF_HOST not in message and "Traceback" not in message and "OSError" not in message


@pytest.mark.proves("memoryprotocol-100")
@each_route
def test_another_method_is_405_before_anybody_is_asked_who_they_are(as_token: As, route: str) -> None:
    method, path, _ = ROUTES[route]
    for other in ({"GET", "POST"} - {method}) | {"DELETE", "PATCH"}:
        response = as_token(None).request(other, path)
        assert response.status_code == 405
        assert method in response.headers.get("allow", "").split(", ")


@pytest.mark.proves("memoryprotocol-100", "memoryprotocol-99")
@pytest.mark.parametrize("path", ["/v1/nope", "/v1/ingest/", "/v1/episode", "/v1/episode/", f"/v1/episode/{ABSENT}/x"])
def test_an_unknown_path_is_404(a: Protocol, path: str) -> None:
    refused(a.request("GET", path), 404, "not_found")

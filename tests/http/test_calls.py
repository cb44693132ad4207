"""`POST /v1/call` and `GET /v1/operations/{attempt_id}`: statuses, headers and who decides what."""

from __future__ import annotations

import json
import logging

import httpx
import pytest
from http_support import Caller, Scripted, envelope, note

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.ids import new_attempt_id
from memoree.operations.view import index_not_ready
from memoree.service import OperationStatus, Reply, Request, refusal


def test_a_write_is_answered_with_its_envelope_and_the_commit_it_was_seen_at(caller: Caller) -> None:
    response = caller.post(envelope("artifact.put", note(), key="firing/12"))

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["memoree-commit-seq"] == "1"
    assert response.json()["commit_seq"] == 1


def test_a_read_after_a_write_sees_it(caller: Caller) -> None:
    artifact = caller.put("glaze recipe 4")
    response = caller.get_artifact(artifact["artifact_id"])

    assert response.json()["result"]["content"]["data"] == "glaze recipe 4"
    assert int(response.headers["memoree-commit-seq"]) >= artifact["commit_seq"]


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (envelope("artifact.get", {"artifact_id": "art_none"}), 404, "NOT_FOUND"),
        (envelope("artifact.put", note()), 400, "INVALID_REQUEST"),
        (envelope("doctor", v=2), 400, "UNSUPPORTED_VERSION"),
        (envelope("artifact.put", note(), key="k", context=None), 400, "NO_AMBIENT_CONTEXT"),
    ],
)
def test_a_refusal_has_the_status_of_its_code(
    caller: Caller, request_: dict[str, object], status: int, code: str
) -> None:
    response = caller.post(request_)

    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert response.json()["request_id"] == request_["request_id"]


@pytest.mark.fault_class(10)
def test_a_key_used_again_for_another_body_is_a_conflict(caller: Caller) -> None:
    caller.put("one", key="k")
    again = caller.post(envelope("artifact.put", note("two"), key="k"))

    assert (again.status_code, again.json()["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")


def test_the_idempotency_key_header_stands_in_for_a_missing_key(caller: Caller) -> None:
    request = envelope("artifact.put", note())
    first = caller.post(request, {"Idempotency-Key": "firing/12"})
    replay = caller.post(request | {"idempotency_key": "firing/12"})

    assert first.json()["result"]["created"] is True
    assert replay.json()["result"]["created"] is False
    assert replay.json()["result"]["artifact_id"] == first.json()["result"]["artifact_id"]


def test_two_different_keys_are_refused_and_equal_ones_are_not(caller: Caller) -> None:
    request = envelope("artifact.put", note(), key="one")

    assert caller.post(request, {"Idempotency-Key": "two"}).json()["error"]["code"] == "INVALID_REQUEST"
    assert caller.last_commit_seq() == 0
    assert caller.post(request, {"Idempotency-Key": "one"}).status_code == 200


@pytest.mark.parametrize(
    ("prefer", "wait", "applied"),
    [
        (None, limits.WRITE_WAIT_SECONDS_DEFAULT, None),
        ("wait=3", 3.0, "wait=3"),
        ("respond-async", 0.0, "wait=0"),
        ("respond-async, wait=4", 4.0, "wait=4"),
        ("wait=99999", limits.WRITE_WAIT_SECONDS_MAX, "wait=25"),
        ("wait=-1, handling=lenient", limits.WRITE_WAIT_SECONDS_DEFAULT, None),
    ],
)
@pytest.mark.fault_class(57)
def test_the_wait_follows_the_prefer_header_within_its_bound(
    scripted: Scripted, scripted_caller: Caller, prefer: str | None, wait: float, applied: str | None
) -> None:
    headers = {} if prefer is None else {"Prefer": prefer}
    response = scripted_caller.post(envelope("artifact.put", note(), key="k"), headers)

    assert scripted.waits == [wait]
    assert response.headers.get("preference-applied") == applied


@pytest.mark.fault_class(1)
def test_a_pending_write_is_202_and_says_where_to_ask(scripted: Scripted, scripted_caller: Caller) -> None:
    response = scripted_caller.post(envelope("artifact.put", note(), key="k"))

    error = response.json()["error"]
    assert (response.status_code, error["code"], error["retryable"]) == (202, "WRITE_PENDING", True)
    assert response.headers["retry-after"] == "1"
    scripted.statuses[f"local/{error['details']['attempt_id']}"] = OperationStatus("pending")
    status = scripted_caller.http.get(error["details"]["operation_url"])
    assert (status.status_code, status.json()["state"]) == (200, "pending")
    assert status.headers["retry-after"] == "1"


def test_a_decided_attempt_shows_its_result(scripted: Scripted, scripted_caller: Caller) -> None:
    attempt_id = new_attempt_id()
    scripted.statuses[f"local/{attempt_id}"] = OperationStatus("applied", commit_seq=7, result={"x": 1})

    assert scripted_caller.http.get(f"/v1/operations/{attempt_id}").json() == {
        "attempt_id": attempt_id,
        "state": "applied",
        "commit_seq": 7,
        "result": {"x": 1},
    }


@pytest.mark.parametrize("attempt_id", ["x", "att_", "att_01", "att_" + "I" * 26, "att_" + "0" * 27])
def test_a_malformed_attempt_id_is_400_as_an_envelope(caller: Caller, attempt_id: str) -> None:
    response = caller.http.get(f"/v1/operations/{attempt_id}")

    assert (response.status_code, response.json()["error"]["code"]) == (400, "INVALID_REQUEST")
    assert response.json()["request_id"] == "req_transport"


def test_strong_consistency_is_passed_on_and_other_words_are_refused(
    scripted: Scripted, scripted_caller: Caller
) -> None:
    read = envelope("artifact.get", {"artifact_id": "art_1"})
    scripted_caller.post(read)
    scripted_caller.post(read, {"Memoree-Consistency": "strong"})

    assert scripted.strong == [False, True]
    assert scripted_caller.post(read, {"Memoree-Consistency": "eventual"}).status_code == 400


def test_index_not_ready_is_503_with_retry_after(scripted: Scripted, scripted_caller: Caller) -> None:
    scripted.answer = lambda request: refusal(request.call.request_id, index_not_ready(9, 4))
    response = scripted_caller.post(envelope("artifact.get", {"artifact_id": "art_1"}))

    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json()["error"]["details"] == {"requested_commit_seq": 9, "current_commit_seq": 4}


def test_an_unexpected_fault_is_an_envelope_and_a_log_line_without_the_body(
    scripted: Scripted, scripted_caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: Request) -> Reply:
        raise RuntimeError("the disk is on fire")

    scripted.answer = fail
    request = envelope("artifact.put", note("a very secret glaze"), key="k")
    with caplog.at_level(logging.INFO):
        response = scripted_caller.post(request)

    assert (response.status_code, response.json()["error"]["code"]) == (500, "INTERNAL_ERROR")
    assert response.json()["request_id"] == request["request_id"]
    assert "fire" not in response.text
    assert any(getattr(record, "request_id", "") == request["request_id"] for record in caplog.records)
    assert "secret glaze" not in caplog.text


def test_problem_details_come_only_when_asked_for_and_still_are_the_envelope(caller: Caller) -> None:
    request = envelope("artifact.get", {"artifact_id": "art_none"})
    plain = caller.post(request)
    problem = caller.post(request, {"Accept": "application/problem+json, application/json"})

    assert plain.headers["content-type"] == "application/json"
    assert problem.headers["content-type"] == "application/problem+json"
    document = problem.json()
    assert (document["type"], document["status"]) == ("urn:memoree:error:NOT_FOUND", 404)
    assert document["error"] == plain.json()["error"]


def test_an_answer_over_the_frame_limit_becomes_content_too_large(scripted: Scripted, scripted_caller: Caller) -> None:
    def huge(request: Request) -> Reply:
        return Reply(
            {"v": 1, "request_id": request.call.request_id, "ok": True, "result": {"x": "y" * limits.FRAME_BYTES_MAX}}
        )

    scripted.answer = huge
    request = envelope("artifact.get", {"artifact_id": "art_1"})
    response = scripted_caller.post(request)

    assert (response.status_code, response.json()["error"]["code"]) == (413, "CONTENT_TOO_LARGE")
    assert response.json()["request_id"] == request["request_id"]


def test_other_methods_and_paths_have_json_bodies(caller: Caller) -> None:
    wrong_method = caller.http.get("/v1/call")
    assert (wrong_method.status_code, wrong_method.headers["allow"]) == (405, "OPTIONS, POST")
    assert wrong_method.json()["error"]["code"] == "INVALID_REQUEST"
    nowhere = caller.http.get("/v1/nope")
    assert (nowhere.status_code, nowhere.json()["error"]) == (404, "not_found")
    assert caller.http.post("/v1/call/", content=b"{}").status_code == 404
    options = caller.http.options("/v1/call")
    assert (options.status_code, options.headers["allow"], options.content) == (204, "OPTIONS, POST", b"")
    head = caller.http.head("/healthz")
    assert (head.status_code, head.content) == (200, b"")


def test_every_answer_carries_the_security_headers(caller: Caller) -> None:
    answers: list[httpx.Response] = [
        caller.post(envelope("capabilities", context=None)),
        caller.http.get("/nowhere"),
        caller.http.get("/readyz"),
    ]
    for response in answers:
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert "server" not in response.headers
        assert "access-control-allow-origin" not in response.headers


def test_a_tenant_in_the_envelope_is_refused_and_changes_nothing(caller: Caller) -> None:
    for member in ("tenant", "scope", "user_id"):
        response = caller.post(envelope("artifact.put", note(), key="k") | {member: "B"})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "INVALID_REQUEST")
    assert caller.last_commit_seq() == 0


def test_details_of_a_refusal_pass_through_unchanged(scripted: Scripted, scripted_caller: Caller) -> None:
    lost = MemoreeError(Code.TRANSPORT_ERROR, "gone", details={"reason": "blob_missing"}, retry_after_seconds=2.2)
    scripted.answer = lambda request: refusal(request.call.request_id, lost)
    response = scripted_caller.post(envelope("artifact.put", note(), key="k"))

    assert (response.status_code, response.headers["retry-after"]) == (503, "3")
    assert json.loads(response.content)["error"]["details"] == {"reason": "blob_missing"}

"""The request envelope, its bounds, and what every response carries (machine protocol §1.1, §1.2, §1.4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .door import OMIT, Door, expect_failure
from .protocol import CATALOGUE, EMPTY_INPUT, MUTATIONS, OPERATIONS, READS
from .workbench import Workbench, text

TWO_BYTES = "é"
LIMITS_AS_WRONG_TYPES = [-1, 1.5, "10", None, True, [], {}, 2**64, 10**40]


@pytest.mark.proves("machine-1")
def test_a_request_without_a_version_is_version_one(door: Door) -> None:
    door.ok("doctor", v=OMIT)


@pytest.mark.proves("machine-2")
@pytest.mark.parametrize("op", OPERATIONS)
def test_any_other_version_is_unsupported_for_every_operation(door: Door, op: str) -> None:
    error = door.refused("UNSUPPORTED_VERSION", op, v=2)
    assert error["details"] == {"received_version": 2, "supported_version": 1}
    assert error["retryable"] is False


@pytest.mark.proves("machine-2")
@pytest.mark.parametrize("version", [0, 3, 2**32 - 1])
def test_the_received_version_is_named(door: Door, version: int) -> None:
    error = door.refused("UNSUPPORTED_VERSION", "doctor", v=version)
    assert error["details"]["received_version"] == version


@pytest.mark.parametrize("version", ["1", 1.5, -1, True, None, [1]])
def test_a_version_of_another_type_is_malformed(door: Door, version: Any) -> None:
    door.refused("INVALID_REQUEST", "doctor", v=version)


@pytest.mark.proves("machine-3")
def test_the_version_is_judged_before_the_request_id(door: Door) -> None:
    door.refused("UNSUPPORTED_VERSION", "doctor", v=2, request_id="")


@pytest.mark.proves("machine-4")
@pytest.mark.parametrize("request_id", ["r", "req_7f3", "  spaced  ", "żółw/λ", 'quote"\\\n\t', "👩‍🚀"])
def test_success_and_failure_echo_the_request_id(door: Door, request_id: str) -> None:
    success = door.call("doctor", request_id=request_id)
    failure = door.call("doctor", {"surplus": 1}, request_id=request_id)
    assert success["ok"] and not failure["ok"]
    assert success["request_id"] == failure["request_id"] == request_id
    assert success["v"] == failure["v"] == 1


@pytest.mark.proves("machine-5")
@pytest.mark.parametrize("longest", ["r" * 256, TWO_BYTES * 128])
def test_a_request_id_of_256_bytes_is_the_longest(door: Door, longest: str) -> None:
    door.ok("doctor", request_id=longest)
    door.refused("INVALID_REQUEST", "doctor", request_id=longest + "r")


@pytest.mark.proves("machine-5")
def test_an_empty_request_id_is_refused(door: Door) -> None:
    door.refused("INVALID_REQUEST", "doctor", request_id="")


@pytest.mark.proves("machine-6")
@pytest.mark.parametrize("missing", [{"request_id": OMIT}, {"op": OMIT}, {"request_id": None}, {"op": None}])
def test_without_request_id_or_operation_the_answer_has_a_reserved_id(door: Door, missing: dict[str, Any]) -> None:
    assert door.failed("INVALID_REQUEST", "doctor", **missing)["request_id"] == "req_transport"


@pytest.mark.proves("machine-6")
@pytest.mark.parametrize("request_id", [7, True, ["r"], {"id": "r"}])
def test_a_request_id_that_is_no_string_is_malformed(door: Door, request_id: Any) -> None:
    assert door.failed("INVALID_REQUEST", "doctor", request_id=request_id)["request_id"] == "req_transport"


@pytest.mark.proves("machine-7")
@pytest.mark.parametrize("member", ["surplus", "Op", "Context", "commit_seq", "ok", "resolved_from", ""])
def test_an_unknown_envelope_member_is_refused(door: Door, member: str) -> None:
    assert door.failed("INVALID_REQUEST", "doctor", **{member: 1})["request_id"] == "req_transport"


@pytest.mark.proves("machine-8")
@pytest.mark.parametrize("op", ["artifact.putt", "", "Doctor", "doctor ", "remember", "artifact.*", 7, ["doctor"]])
def test_an_unknown_operation_is_refused(door: Door, op: Any) -> None:
    door.refused("INVALID_REQUEST", "doctor", op=op)


@pytest.mark.parametrize("op", [operation.name for operation in CATALOGUE])
def test_an_operation_that_is_not_available_is_refused_and_never_half_answered(door: Door, op: str) -> None:
    listed = door.ok("capabilities")["operations"]
    if op not in {row["operation"] for row in listed if row["available"]}:
        door.refused("INVALID_REQUEST", op)


@pytest.mark.proves("machine-11")
@pytest.mark.parametrize("op", EMPTY_INPUT)
def test_an_empty_input_must_be_spelled_out(door: Door, op: str) -> None:
    door.refused("INVALID_REQUEST", op, OMIT)
    door.ok(op, {})


@pytest.mark.proves("machine-11")
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("value", ["null", "[]", '"{}"', "1", "false"])
def test_an_input_that_is_no_object_is_refused(door: Door, op: str, value: str) -> None:
    request = json.dumps(door.envelope(op, OMIT))
    expect_failure(door.send(f'{request[:-1]}, "input": {value}}}'.encode()), "INVALID_REQUEST")


@pytest.mark.proves("machine-12")
@pytest.mark.parametrize("limit", LIMITS_AS_WRONG_TYPES, ids=repr)
def test_a_limit_of_another_type_is_refused(door: Door, bench: Workbench, limit: Any) -> None:
    artifact, claim = bench.put(), bench.claim()
    door.refused("INVALID_REQUEST", "search", {"query": "cone", "limit": limit})
    door.refused("INVALID_REQUEST", "artifact.history", {"artifact_id": artifact["artifact_id"], "limit": limit})
    door.refused("INVALID_REQUEST", "claim.history", {"claim_id": claim["claim_id"], "limit": limit})


@pytest.mark.proves("machine-13")
@pytest.mark.parametrize("op", OPERATIONS)
def test_a_success_has_a_result_and_no_error(door: Door, specimen_inputs: dict[str, Any], op: str) -> None:
    answer = door.succeeded(op, specimen_inputs[op])
    assert "error" not in answer
    assert answer["warnings"] == []
    assert ("commit_seq" in answer) is (op in MUTATIONS)
    if op in MUTATIONS:
        assert answer["commit_seq"] == answer["result"]["commit_seq"]


@pytest.mark.proves("machine-13", "machine-14")
@pytest.mark.parametrize("op", OPERATIONS)
def test_a_failure_has_an_error_and_nothing_of_a_success(door: Door, op: str) -> None:
    answer = door.failed("INVALID_REQUEST", op, {"surplus": 1})
    assert set(answer) == {"v", "request_id", "ok", "error", "warnings"}
    assert answer["warnings"] == []
    assert answer["error"]["details"] is None
    assert answer["error"]["retryable"] is False


@pytest.mark.proves("machine-14")
def test_details_are_null_for_codes_that_define_none(door: Door, bench: Workbench) -> None:
    artifact = bench.put()
    absent = {"artifact_id": "art_absent"}
    foreign = {"artifact_id": artifact["artifact_id"], "reason": "not mine"}
    elsewhere = door.here(project_id="prj_other")
    assert door.refused("NOT_FOUND", "artifact.get", absent)["details"] is None
    assert door.refused("SCOPE_VIOLATION", "artifact.forget", foreign, context=elsewhere)["details"] is None
    assert door.refused("NO_AMBIENT_CONTEXT", "search", {"query": "cone"}, context=None)["details"] is None


@pytest.mark.proves("machine-17")
@pytest.mark.parametrize("longest", ["k" * 512, TWO_BYTES * 256])
def test_an_idempotency_key_of_512_bytes_is_the_longest(door: Door, longest: str) -> None:
    put = {"kind": "note", "title": "t", "content": text("x")}
    door.ok("artifact.put", put, key=longest)
    door.refused("INVALID_REQUEST", "artifact.put", put, key=longest + "k")


@pytest.mark.proves("machine-17")
@pytest.mark.parametrize("op", MUTATIONS)
def test_a_mutation_needs_a_key(door: Door, specimen_inputs: dict[str, Any], op: str) -> None:
    with door.nothing_written():
        door.refused("INVALID_REQUEST", op, specimen_inputs[op], key=None)
        door.refused("INVALID_REQUEST", op, specimen_inputs[op], key="")
        door.refused("INVALID_REQUEST", op, specimen_inputs[op], key=None, idempotency_key=None)


@pytest.mark.proves("machine-18")
@pytest.mark.parametrize("op", READS)
def test_a_read_ignores_its_key(door: Door, specimen_inputs: dict[str, Any], op: str) -> None:
    door.ok(op, specimen_inputs[op], key="shared")
    door.ok(op, specimen_inputs[op], key="shared")
    door.ok(op, specimen_inputs[op], key="")
    door.ok(op, specimen_inputs[op], key="k" * 513)
    door.ok("artifact.put", {"kind": "note", "title": "t", "content": text("x")}, key="shared")


@pytest.mark.parametrize("source", ["ambient", "Explicit", "", 1, None, ["session"]])
def test_an_unknown_context_source_is_refused(door: Door, source: Any) -> None:
    door.refused("INVALID_REQUEST", "doctor", context_source=source)


def test_null_is_the_same_as_absent_for_optional_envelope_members(door: Door) -> None:
    answer = door.call("doctor", context=None, idempotency_key=None)
    assert answer["ok"]
    request = door.envelope("doctor", context=None) | {"context": None}
    answer = door.send(json.dumps(request).encode())
    assert answer["ok"] and "context" not in answer

"""`memoree call`: the contract of the shell interface (machine protocol §1.5, CLI contract §1.4)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from memoree import limits

from .conftest import CONTEXT, PROGRAM, Json, Shell

PUT: Json = {"kind": "log", "title": "Firing 12", "content": {"type": "text", "data": "cone 6 reached"}}
SERVER_PATHS = ["file:///etc/passwd", "../../secret", "/proc/self/environ", "C:\\Windows\\win.ini", "a\0b"]


def encoded(**members: object) -> bytes:
    return json.dumps({"request_id": "req_a", "op": "capabilities", "input": {}, **members}).encode()


UNREADABLE = {
    "an empty input": b"",
    "white space": b" \n",
    "a truncated object": b"{",
    "no JSON": b"hello",
    "an array": b"[]",
    "a lone string": b'"x"',
    "two objects": encoded() + encoded(),
    "trailing data": encoded() + b"x",
    "NaN": b'{"request_id":"a","op":"capabilities","input":NaN}',
    "a lone surrogate": b'{"request_id":"\\ud800","op":"capabilities","input":{}}',
    "absurd nesting": b"[" * 100_000,
    "a member given twice": b'{"request_id":"a","request_id":"b","op":"capabilities","input":{}}',
    "an input member given twice": b'{"request_id":"a","op":"search","input":{"query":"a","query":"b"}}',
    "an unknown envelope member": encoded(surplus=1),
    "an unknown operation": encoded(op="artifact.explode"),
    "an operation of the wrong type": encoded(op=7),
    "no request id": b'{"op":"capabilities","input":{}}',
    "no operation": b'{"request_id":"a","input":{}}',
    "a request id of the wrong type": encoded(request_id=1),
    "an unknown context member": encoded(context={**CONTEXT, "surplus": 1}),
    "an unknown context source": encoded(context_source="guess"),
}


@pytest.mark.proves("machine-6", "machine-7", "machine-8", "machine-26", "machine-29")
@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_request_is_refused_under_the_reserved_id(shell: Shell, body: bytes) -> None:
    run = shell.run("call", stdin=body)
    run.refused("INVALID_REQUEST", 2)
    assert run.envelope["request_id"] == "req_cli"
    assert not shell.home.exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "input: is required"),
        ({"input": None}, "input: is required"),
        ({"input": 5}, "input: must be an object (got 5)"),
        ({"input": {"statement": "x"}}, "input.claim_type: is required"),
        ({"input": {"claim_type": "fact", "statement": {"a": "b"}}}, "input.statement: Input should be a valid string"),
    ],
)
def test_a_wrong_input_is_named_in_the_words_of_the_wire(project: Shell, given: Json, message: str) -> None:
    request = {"request_id": "req_a", "op": "claim.assert", "idempotency_key": "k", **given}
    run = project.run("call", stdin=json.dumps(request).encode())
    assert run.refused("INVALID_REQUEST", 2)["message"] == message


def test_bytes_that_are_no_utf8_are_an_error_of_reading(shell: Shell) -> None:
    run = shell.run("call", stdin=b'{"request_id":"\xff","op":"capabilities","input":{}}')
    run.refused("INTERNAL_ERROR", 1)
    assert run.envelope["request_id"] == "req_cli"


@pytest.mark.proves("machine-26")
def test_stdout_is_one_json_document_and_stderr_is_empty(shell: Shell) -> None:
    run = shell.call("capabilities")
    assert run.result["product"]
    assert run.stdout.count(b"\n") == 1
    assert run.stderr == ""


REFUSED_BY_THE_SERVER = [
    ("UNSUPPORTED_VERSION", {"v": 2}),
    ("INVALID_REQUEST", {"request_id": "x" * 257}),
    ("INVALID_REQUEST", {"input": None}),
    ("INVALID_REQUEST", {"input": {"surplus": 1}}),
    ("INVALID_REQUEST", {"input": [], "v": 1}),
]


@pytest.mark.proves("machine-2", "machine-5", "machine-11", "machine-29")
@pytest.mark.parametrize(("code", "members"), REFUSED_BY_THE_SERVER)
def test_a_readable_request_is_refused_under_its_own_id(shell: Shell, code: str, members: Json) -> None:
    request = json.loads(encoded(**members))
    run = shell.run("call", stdin=json.dumps(request).encode())
    error = run.refused(code, 2)
    assert run.envelope["request_id"] == request["request_id"]
    if code == "UNSUPPORTED_VERSION":
        assert error["details"] == {"received_version": 2, "supported_version": 1}


@pytest.mark.proves("machine-28", "machine-31")
@pytest.mark.parametrize("op", ["search", "artifact.put", "context.resolve"])
def test_an_operation_that_needs_a_context_stops_before_any_connection(shell: Shell, op: str) -> None:
    run = shell.call(op, {"query": "x"}, "--endpoint", "http://127.0.0.1:9", request_id="req_mine")
    error = run.refused("NO_AMBIENT_CONTEXT", 5)
    assert run.envelope["request_id"] == "req_mine"
    assert error["hint"] and error["retryable"] is False
    assert not shell.home.exists()


@pytest.mark.proves("machine-27")
def test_call_never_invents_an_idempotency_key(project: Shell) -> None:
    assert project.call("artifact.put", PUT, idempotency_key="first").result
    project.call("artifact.put", PUT).refused("INVALID_REQUEST", 2)
    assert project.call("doctor").result["last_commit_seq"] == 1


@pytest.mark.proves("machine-53", "machine-29")
def test_a_resent_mutation_changes_nothing_and_a_changed_one_conflicts(project: Shell) -> None:
    first = project.call("artifact.put", PUT, idempotency_key="k").result
    again = project.call("artifact.put", PUT, idempotency_key="k").result
    assert again == first | {"created": False}
    project.call("artifact.put", PUT | {"title": "Another"}, idempotency_key="k").refused("IDEMPOTENCY_CONFLICT", 4)
    other = json.dumps(CONTEXT | {"project_id": "prj_other"})
    assert project.having(MEMOREE_CONTEXT=other).call("artifact.put", PUT, idempotency_key="k").result["created"]


@pytest.mark.proves("machine-33", "machine-34")
def test_the_context_says_where_it_came_from(shell: Shell, project: Shell) -> None:
    own = shell.call("context.resolve", context=CONTEXT).envelope
    assert own["context"]["resolved_from"] == "explicit"
    assert project.call("context.resolve").envelope["context"]["resolved_from"] == "session"
    claimed = shell.call("context.resolve", context=CONTEXT, context_source="marker").envelope
    assert claimed["context"]["resolved_from"] == "marker"
    assert "context" not in project.call("capabilities").envelope
    assert project.call("capabilities", context=CONTEXT).envelope["context"]["resolved_from"] == "explicit"


@pytest.mark.proves("machine-29")
def test_the_exit_status_follows_the_code(project: Shell) -> None:
    artifact = project.call("artifact.put", PUT, idempotency_key="a").result
    revise = {"artifact_id": artifact["artifact_id"], "content": PUT["content"]}
    project.call("artifact.get", {"artifact_id": "art_missing"}).refused("NOT_FOUND", 3)
    stale = project.call("artifact.revise", revise | {"if_revision": "arev_old"}, idempotency_key="b")
    assert stale.refused("REVISION_CONFLICT", 4)["details"]["current_revision"] == artifact["revision_id"]
    elsewhere = project.having(MEMOREE_CONTEXT=json.dumps(CONTEXT | {"project_id": "prj_other"}))
    foreign = elsewhere.call("artifact.revise", revise | {"if_revision": artifact["revision_id"]}, idempotency_key="c")
    foreign.refused("SCOPE_VIOLATION", 7)
    ahead = project.call("search", {"query": "cone", "min_commit_seq": 99})
    error = ahead.refused("INDEX_NOT_READY", 6)
    assert error["retryable"] and error["details"] == {"requested_commit_seq": 99, "current_commit_seq": 1}


def test_a_request_over_the_frame_limit_keeps_its_id_and_writes_nothing(project: Shell) -> None:
    big = PUT | {"content": {"type": "text", "data": "x" * limits.FRAME_BYTES_MAX}}
    run = project.call("artifact.put", big, idempotency_key="k")
    run.refused("CONTENT_TOO_LARGE", 2)
    assert run.envelope["request_id"] == "req_test"
    assert not project.home.exists()


def test_white_space_does_not_count_towards_the_frame_limit(shell: Shell) -> None:
    assert shell.run("call", stdin=encoded() + b" " * limits.FRAME_BYTES_MAX).result


def test_an_endless_input_is_refused_without_reading_all_of_it(shell: Shell) -> None:
    run = shell.run("call", stdin=b" " * (2 * limits.FRAME_BYTES_MAX + 1))
    run.refused("CONTENT_TOO_LARGE", 2)
    assert run.envelope["request_id"] == "req_cli"


def test_pretty_changes_only_white_space(shell: Shell) -> None:
    compact, pretty = shell.call("capabilities"), shell.call("capabilities", None, "--pretty")
    assert pretty.stdout.count(b"\n") > 10
    assert pretty.envelope == compact.envelope
    before = shell.run("--pretty", "call", stdin=encoded())
    assert before.stdout == shell.run("call", "--pretty", stdin=encoded()).stdout


def test_the_plain_line_and_the_full_parser_answer_alike(shell: Shell) -> None:
    plain = shell.run("call", "--json", stdin=encoded())
    parsed = shell.run("--endpoint=", "call", stdin=encoded())
    assert parsed.stdout == plain.stdout
    assert b"Usage" in shell.run("call", "--help").stdout
    mistyped = shell.run("call", "surplus", stdin=encoded())
    assert (mistyped.status, mistyped.stdout) == (2, b"")
    assert "Usage" in mistyped.stderr


@pytest.mark.fault_class(21)
@pytest.mark.parametrize("path", SERVER_PATHS)
def test_no_member_of_a_request_makes_the_store_open_a_file(project: Shell, path: str) -> None:
    project.call("artifact.put", PUT | {"doc_path": path}, idempotency_key="k").refused("INVALID_REQUEST", 2)
    content = PUT | {"content": {"type": "file", "data": path}}
    project.call("artifact.put", content, idempotency_key="k").refused("INVALID_REQUEST", 2)


def test_a_reader_that_leaves_early_is_no_error_message(shell: Shell) -> None:
    process = subprocess.Popen(
        [PROGRAM, "call"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=shell.cwd,
        env=shell.environment,
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write(encoded())
    process.stdin.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 1
    assert errors == b""


def test_a_full_disk_behind_the_output_is_said_on_stderr(shell: Shell) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [PROGRAM, "call"],
            input=encoded(),
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=shell.cwd,
            env=shell.environment,
        )
    assert done.returncode == 1
    assert b"could not be printed" in done.stderr and b"Traceback" not in done.stderr

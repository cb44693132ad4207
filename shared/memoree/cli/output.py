"""Standard output: exactly one JSON document and a newline. Everything else goes to standard error."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import orjson

from memoree.cli.invocation import Invocation
from memoree.errors import EXIT_STATUS, Code, MemoreeError

FAILURE_STATUS = 1


def print_body(body: bytes, *, pretty: bool) -> None:
    """Print an encoded envelope, unchanged or indented."""
    line = orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2) if pretty else body
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def print_failure(request_id: str, error: MemoreeError, invocation: Invocation) -> int:
    """Print a failure envelope; returns its exit status."""
    from memoree.envelope import failure

    print_body(orjson.dumps(failure(request_id, error)), pretty=invocation.pretty)
    return status_of(error.code)


def report_failure(request_id: str, error: MemoreeError, invocation: Invocation) -> int:
    """Print a failure in the form the invocation asks for; returns its exit status."""
    if not invocation.for_people:
        return print_failure(request_id, error, invocation)
    explain_failure(error.to_wire())
    return status_of(error.code)


def print_success(
    result: Mapping[str, Any], invocation: Invocation, *, context: Mapping[str, Any] | None = None
) -> int:
    """Print a success that no server was needed for, under a request id of its own."""
    from memoree.envelope import success
    from memoree.ids import new_id

    print_body(orjson.dumps(success(new_id("req"), result, context=context)), pretty=invocation.pretty)
    return 0


def explain_failure(error: Mapping[str, Any]) -> None:
    """The `error` object for a person, on standard error."""
    from memoree.cli.terminal import visible

    lines = [f"memoree: {error['code']}: {error['message']}"]
    if hint := error.get("hint"):
        lines.append(f"hint: {hint}")
    if error.get("retryable"):
        lines.append("the same command may be run again")
    sys.stderr.write("".join(visible(line) + "\n" for line in lines))


def status_of(code: str | None) -> int:
    """The exit status of an outcome; codes that this version does not know count as failures."""
    if code is None:
        return 0
    try:
        return EXIT_STATUS.get(Code(code), FAILURE_STATUS)
    except ValueError:
        return FAILURE_STATUS

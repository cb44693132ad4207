"""Standard output: exactly one JSON document and a newline. Everything else goes to standard error."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import orjson

from memoree.cli.invocation import Invocation
from memoree.errors import EXIT_STATUS, Code, MemoreeError

FAILURE_STATUS = 1
SHELL_HINTS = {
    ("UNAUTHENTICATED", None): "--token-file FILE or MEMOREE_TOKEN gives the token",
    (
        "CONTENT_TOO_LARGE",
        "artifact.get",
    ): "--metadata-only leaves the content out; an http:// endpoint streams it to --output PATH",
}
"""What a person at a terminal does about a code of an operation, or of any."""


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


def report_failure(request_id: str, error: MemoreeError, invocation: Invocation, op: str | None = None) -> int:
    """Print a failure in the form the invocation asks for; returns its exit status."""
    if not invocation.for_people:
        return print_failure(request_id, error, invocation)
    explain_failure(error.to_wire(), op)
    return status_of(error.code)


def print_success(
    result: Mapping[str, Any], invocation: Invocation, *, context: Mapping[str, Any] | None = None
) -> int:
    """Print a success that no server was needed for, under a request id of its own."""
    from memoree.envelope import success
    from memoree.ids import new_id

    print_body(orjson.dumps(success(new_id("req"), result, context=context)), pretty=invocation.pretty)
    return 0


def explain_failure(error: Mapping[str, Any], op: str | None) -> None:
    """The `error` object for a person, on standard error."""
    from memoree.cli.terminal import visible

    lines = [f"memoree: {error['code']}: {error['message']}"]
    if hint := _hint(error, op):
        lines.append(f"hint: {hint}")
    if error.get("retryable"):
        lines.append("the same command may be run again")
    sys.stderr.write("".join(visible(line) + "\n" for line in lines))


def _hint(error: Mapping[str, Any], op: str | None) -> str | None:
    """The server's own words, also those of a refused citation; else what the shell knows."""
    code, details = error["code"], error.get("details") or {}
    own: str | None = error.get("hint") or details.get("next_action")
    return own or SHELL_HINTS.get((code, op)) or SHELL_HINTS.get((code, None))


def status_of(code: str | None) -> int:
    """The exit status of an outcome; codes that this version does not know count as failures."""
    if code is None:
        return 0
    try:
        return EXIT_STATUS.get(Code(code), FAILURE_STATUS)
    except ValueError:
        return FAILURE_STATUS

"""`memoree call`: one request object on standard input, one response envelope on standard output."""

from __future__ import annotations

import sys

from memoree import limits
from memoree.cli.invocation import Invocation
from memoree.cli.output import print_body, print_failure, status_of
from memoree.client.request import REQUEST_ID_CLI, decode_request, encode_request, send, with_context
from memoree.errors import Code, MemoreeError

STDIN_BYTES_MAX = 2 * limits.FRAME_BYTES_MAX
"""The frame limit is judged on the compact encoding, under the request's own id; white space and escapes may make
the input larger than that, within reason."""


def call(invocation: Invocation) -> int:
    """Parse, attach the context, choose the endpoint, send, print. Returns the exit status."""
    request_id = REQUEST_ID_CLI
    try:
        document = decode_request(_read_stdin())
        request_id = document["request_id"]
        request = encode_request(with_context(document, invocation.ambient))
        answer = send(request, invocation.open_endpoint())
    except MemoreeError as error:
        return print_failure(request_id, error, invocation)
    print_body(answer.body, pretty=invocation.pretty)
    return status_of(answer.code)


def _read_stdin() -> bytes:
    body = sys.stdin.buffer.read(STDIN_BYTES_MAX + 1)
    if len(body) > STDIN_BYTES_MAX:
        raise MemoreeError(
            Code.CONTENT_TOO_LARGE,
            f"the input has more than {STDIN_BYTES_MAX} bytes; a request has at most {limits.FRAME_BYTES_MAX}",
        )
    return body

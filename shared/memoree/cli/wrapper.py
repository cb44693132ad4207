"""What every readable command does: build the request of one operation, send it, print the outcome."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from memoree.cli.output import explain_failure, print_body, report_failure, status_of
from memoree.cli.parsing import current_invocation
from memoree.errors import MemoreeError, invalid

ACTOR_VARIABLE = "MEMOREE_ACTOR"
CITATION_PREFIX = "memoree://artifact/"
"""Of the citations in search results; cited claims are no evidence."""

Finish = Callable[[dict[str, Any]], dict[str, Any]]
"""Work on the result of a success before it is printed; a `MemoreeError` makes it a failure."""


def perform(op: str, input: Mapping[str, Any], *, finish: Finish | None = None) -> int:
    """Run a read. Members of `input` that are `None` are left out. Returns the exit status."""
    return _perform(op, input, {}, finish)


def perform_mutation(op: str, input: Mapping[str, Any], *, key: str | None) -> int:
    """As `perform`, with an idempotency key: the given one, else one that is unique to this invocation."""
    return _perform(op, input, {"idempotency_key": key}, None)


def actor() -> str | None:
    """Who the changes are attributed to, for the operations that say so."""
    return os.environ.get(ACTOR_VARIABLE)


def _perform(op: str, input: Mapping[str, Any], members: dict[str, Any], finish: Finish | None) -> int:
    from memoree.client.request import encode_request, send, with_context
    from memoree.ids import new_id

    invocation = current_invocation()
    request_id = new_id("req")
    if members.get("idempotency_key", "") is None:
        members["idempotency_key"] = f"auto_{request_id}"
    given = {name: value for name, value in input.items() if value is not None}
    try:
        document = {"v": 1, "request_id": request_id, "op": op, **members, "input": given}
        request = encode_request(with_context(document, invocation.ambient))
        answer = send(request, invocation.open_endpoint())
        body, envelope = answer.body, answer.envelope
        if answer.ok and finish is not None:
            import orjson

            envelope = {**envelope, "result": finish(envelope["result"])}
            body = orjson.dumps(envelope)
    except MemoreeError as error:
        return report_failure(request_id, error, invocation)
    if not invocation.for_people:
        print_body(body, pretty=invocation.pretty)
    elif envelope["ok"]:
        from memoree.cli.tables import show

        show(op, envelope["result"])
    else:
        explain_failure(envelope["error"])
    return status_of(answer.code)


def words(parts: tuple[str, ...]) -> str:
    """Positional words, joined as they were typed apart."""
    return " ".join(parts)


def parse_evidence(text: str) -> dict[str, Any]:
    """`ARTIFACT@REVISION` or `ARTIFACT@REVISION#START-END` as an evidence locator, also with the prefix that citations
    have; offsets are bytes, the end exclusive. Raises `INVALID_REQUEST`."""
    from memoree.errors import shown

    artifact_id, at, rest = text.removeprefix(CITATION_PREFIX).partition("@")
    revision_id, mark, span = rest.partition("#")
    if not at or not artifact_id.strip() or not revision_id.strip():
        invalid(f"evidence {shown(text)}: write ARTIFACT@REVISION or ARTIFACT@REVISION#START-END")
    locator: dict[str, Any] = {"artifact_id": artifact_id, "revision_id": revision_id}
    if not mark:
        return locator
    start, _, end = span.partition("-")
    if not _is_offset(start) or not _is_offset(end) or int(start) >= int(end):
        invalid(f"evidence {shown(text)}: the span must be START-END in bytes, with START below END")
    return {**locator, "start_byte": int(start), "end_byte": int(end)}


def _is_offset(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(2**63))

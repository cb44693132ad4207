"""What every readable command does: build the request of one operation, send it, print the outcome."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from memoree.cli.output import explain_failure, print_body, report_failure, status_of
from memoree.cli.parsing import current_invocation
from memoree.errors import Code, MemoreeError, invalid, shown

if TYPE_CHECKING:
    from memoree.client.request import Answer, Endpoint, Outgoing

ACTOR_VARIABLE = "MEMOREE_ACTOR"

PATIENCE_SECONDS = 900.0
"""For content that somebody has to read in full before it is stored."""
PENDING_PAUSE_SECONDS = 1.0

Finish = Callable[[dict[str, Any]], dict[str, Any]]
"""Work on the result of a success before it is printed; a `MemoreeError` makes it a failure."""


def perform(op: str, input: Mapping[str, Any], *, finish: Finish | None = None) -> int:
    """Run a read. Members of `input` that are `None` are left out. Returns the exit status."""
    return _perform(op, input, {}, finish)


def perform_mutation(op: str, input: Mapping[str, Any], *, key: str | None, patient: bool = False) -> int:
    """As `perform`, with an idempotency key: the given one, else one that is unique to this invocation. With `patient`
    an outcome that is pending is asked for again."""
    return _perform(op, input, {"idempotency_key": key}, None, wait_seconds=PATIENCE_SECONDS if patient else 0.0)


def actor() -> str | None:
    """Who the changes are attributed to, for the operations that say so."""
    return os.environ.get(ACTOR_VARIABLE)


def _perform(
    op: str,
    input: Mapping[str, Any],
    members: dict[str, Any],
    finish: Finish | None,
    *,
    wait_seconds: float = 0.0,
) -> int:
    from memoree.client.request import encode_request, with_context
    from memoree.ids import new_id

    invocation = current_invocation()
    request_id = new_id("req")
    if members.get("idempotency_key", "") is None:
        members["idempotency_key"] = f"auto_{request_id}"
    given = {name: value for name, value in input.items() if value is not None}
    try:
        document = {"v": 1, "request_id": request_id, "op": op, **members, "input": given}
        request = encode_request(with_context(document, invocation.ambient))
        answer = _decided(request, invocation.open_endpoint(), wait_seconds)
        body, envelope = answer.body, answer.envelope
        if answer.ok and finish is not None:
            import orjson

            envelope = {**envelope, "result": finish(envelope["result"])}
            body = orjson.dumps(envelope)
    except MemoreeError as error:
        return report_failure(request_id, error, invocation, op)
    if not invocation.for_people:
        print_body(body, pretty=invocation.pretty)
    elif envelope["ok"]:
        from memoree.cli.tables import show

        show(op, envelope["result"])
    else:
        explain_failure(envelope["error"], op)
    return status_of(answer.code)


def _decided(request: Outgoing, endpoint: Endpoint, wait_seconds: float) -> Answer:
    """The answer. One that is pending is asked for by the identical request, which is safe, until the time is up."""
    from memoree.client.request import send

    end = time.monotonic() + wait_seconds
    while (answer := send(request, endpoint)).code == Code.WRITE_PENDING and time.monotonic() < end:
        time.sleep(PENDING_PAUSE_SECONDS)
    return answer


def words(parts: tuple[str, ...]) -> str:
    """Positional words, joined as they were typed apart."""
    return " ".join(parts)


def parse_object(option: str, text: str | None) -> dict[str, Any] | None:
    """The JSON object that was given as `option`, or `None` for no option. Raises `INVALID_REQUEST`."""
    import orjson

    if text is None:
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        invalid(f"{option}: {shown(text)} is not JSON: {error}")
    if not isinstance(found, dict):
        invalid(f"{option}: {shown(text)} is not a JSON object")
    return found

"""Requests of an evaluation: one operation at a time, through any endpoint, as often as it takes to be decided."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

from memoree.client.request import Answer, Endpoint, encode_request, send
from memoree.envelope import AmbientContext
from memoree.errors import Code, MemoreeError

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.25
UNDECIDED = frozenset({Code.RATE_LIMITED, Code.WRITE_PENDING})
"""What the identical request is sent again after: an evaluation asks faster than a server's limiter may like."""


class Asker:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._numbers = itertools.count(1)

    def ask(
        self, op: str, input: Mapping[str, Any], context: AmbientContext | None = None, *, key: str | None = None
    ) -> Answer:
        """The answer, whatever it says. Raises `TRANSPORT_ERROR` when none came."""
        document: dict[str, Any] = {"v": 1, "request_id": f"req_{next(self._numbers)}", "op": op, "input": input}
        if context is not None:
            document |= {"context": context.model_dump(exclude_none=True), "context_source": "explicit"}
        if key is not None:
            document["idempotency_key"] = key
        request = encode_request(document)
        end = time.monotonic() + PATIENCE_SECONDS
        while (answer := send(request, self._endpoint)).code in UNDECIDED and time.monotonic() < end:
            time.sleep(PAUSE_SECONDS)
        return answer

    def result(
        self, op: str, input: Mapping[str, Any], context: AmbientContext | None = None, *, key: str | None = None
    ) -> Mapping[str, Any]:
        """The result of a success. Raises what the request was refused with."""
        return result_of(self.ask(op, input, context, key=key))


def result_of(answer: Answer) -> Mapping[str, Any]:
    """The result of a success. Raises what the request was refused with."""
    if not answer.ok:
        raise MemoreeError.from_wire(answer.envelope["error"])
    result: Mapping[str, Any] = answer.envelope["result"]
    return result

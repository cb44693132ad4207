"""Asking a store from the client's side: an endpoint, or the store of a data directory that is kept open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memoree.client.local import LocalEndpoint
from memoree.client.request import Endpoint, Outgoing, encode_request, send
from memoree.data_directory import has_store
from memoree.errors import Code, MemoreeError
from memoree.ids import new_id
from memoree.operations.registry import operation
from memoree.paths import prepare_data_dir

if TYPE_CHECKING:
    from memoree.embedded import EmbeddedService

CONCURRENT_MAX = 4
"""Requests on their way at once: the framed daemon takes no more connections."""
DECIDED_SECONDS_MAX = 40.0
"""For a write that is queued. Clients of this protocol wait a minute for an answer."""
PENDING_PAUSE_SECONDS = 0.5


class EndpointAsk:
    """`memoree.mcp.asking.Ask` over an endpoint, in one context."""

    def __init__(self, endpoint: Endpoint, ambient: Mapping[str, Any], gate: asyncio.Semaphore) -> None:
        self._endpoint = endpoint
        self._ambient = ambient
        self._gate = gate

    async def __call__(self, op: str, input: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
        document: dict[str, Any] = {"v": 1, "request_id": new_id("req"), "op": op, "input": input, **self._ambient}
        if key is not None:
            document["idempotency_key"] = key
        request = encode_request(document)
        async with self._gate:
            answer = await asyncio.to_thread(self._decided, request)
        if answer["ok"]:
            result: Mapping[str, Any] = answer["result"]
            return result
        raise _refusal(answer["error"])

    def _decided(self, request: Outgoing) -> Mapping[str, Any]:
        """The answer; one that is pending is asked for again by the identical request."""
        end = time.monotonic() + DECIDED_SECONDS_MAX
        while True:
            answer = send(request, self._endpoint)
            if answer.code != Code.WRITE_PENDING or time.monotonic() > end:
                return answer.envelope
            time.sleep(PENDING_PAUSE_SECONDS)


class HeldStore:
    """The store of a data directory, opened by the first request that needs it. Other processes may use it as well. A
    read makes no store where there is none."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._service: EmbeddedService | None = None

    def exchange(self, request: Outgoing) -> bytes:
        found = operation(request.op)
        if self._service is None and not self._is_there() and (found is None or not found.mutating):
            return LocalEndpoint(self._data_dir).exchange(request)
        return self._opened().call_bytes(request.body)

    def close(self) -> None:
        if self._service is not None:
            self._service.close_sync()

    def _is_there(self) -> bool:
        try:
            return has_store(self._data_dir)
        except OSError as error:
            raise MemoreeError(Code.CONFIG_ERROR, f"the data directory cannot be used: {error}") from error

    def _opened(self) -> EmbeddedService:
        if self._service is None:
            from memoree.assembly import embedded_facts, embedded_service

            prepare_data_dir(self._data_dir)
            self._service = embedded_service(self._data_dir, facts=embedded_facts(running=False))
        return self._service


def _refusal(error: Mapping[str, Any]) -> MemoreeError:
    """A newer server may have codes that this program does not know."""
    try:
        return MemoreeError.from_wire(error)
    except ValueError:
        return MemoreeError(Code.INTERNAL_ERROR, f"{error['code']}: {error['message']}")

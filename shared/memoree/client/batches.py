"""Many requests to one store: what an import sends. A batch is answered in its order, one answer per request."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from memoree import limits
from memoree.client.http import HttpEndpoint, exchanging_at
from memoree.client.request import AmbientSource, Endpoint, Outgoing, encode_request, not_an_envelope, send
from memoree.errors import Code, MemoreeError
from memoree.ids import new_id

if TYPE_CHECKING:
    from memoree.embedded import EmbeddedService

BATCH_REQUESTS_MAX = 500
"""Enough to fill group commits; so many are asked again when a connection is lost."""
BATCH_BYTES_MAX = 8 * limits.MIB
BULK_PATH = "/v1/bulk"
NDJSON = "application/x-ndjson"
STRONG = {"Memoree-Consistency": "strong"}
"""Reads see what an import before this one wrote, whichever process answers."""
SILENCE_SECONDS_MAX = 120.0
"""Of a server that has a batch."""
PATIENCE_SECONDS = 900.0
"""With what is pending, or refused for the moment."""
PAUSE_SECONDS = 0.5
LINE_BYTES_MAX = limits.FRAME_BYTES_MAX

Json = Mapping[str, Any]
Outcome = Json | MemoreeError
"""The result of a success, or what was refused."""


@dataclass(frozen=True, slots=True)
class Command:
    """A mutation to ask for. Without a `key` it is one of its own: one is made when it is sent."""

    op: str
    input: Json
    key: str | None = None


class Door(Protocol):
    """A store that is asked and told. Raises `MemoreeError` where it cannot be reached, or does not know the caller."""

    def ask(self, op: str, input: Json) -> Json:
        """The result of a read. Raises its refusal."""

    def tell(self, commands: Sequence[Command]) -> list[Outcome]:
        """Outcomes of at most `BATCH_REQUESTS_MAX` commands; all are decided when this returns. They may be applied in
        any order."""


class Envelopes:
    """Makes requests of one context."""

    def __init__(self, ambient: AmbientSource) -> None:
        self._ambient = dict(ambient())

    def document(self, op: str, input: Json, *, is_command: bool, key: str | None = None) -> dict[str, Any]:
        request_id = new_id("req")
        key_member = {"idempotency_key": key or f"auto_{request_id}"} if is_command else {}
        return {"v": 1, "request_id": request_id, "op": op, **self._ambient, **key_member, "input": dict(input)}


class NoStore:
    """Where no store is: it holds nothing, and nobody may be told anything."""

    def ask(self, op: str, input: Json) -> Json:
        return {"files": []}

    def tell(self, commands: Sequence[Command]) -> list[Outcome]:
        raise MemoreeError(Code.CONFIG_ERROR, "there is no store")


class EmbeddedDoor:
    """The store in a data directory: a batch is one group commit."""

    def __init__(self, service: EmbeddedService, ambient: AmbientSource) -> None:
        self._service = service
        self._envelopes = Envelopes(ambient)

    def ask(self, op: str, input: Json) -> Json:
        body = self._service.call_bytes(orjson.dumps(self._envelopes.document(op, input, is_command=False)))
        return _result(orjson.loads(body))

    def tell(self, commands: Sequence[Command]) -> list[Outcome]:
        from memoree.envelope import Envelope, parse
        from memoree.operations.call import validate
        from memoree.service import Request

        outcomes: list[Outcome | None] = []
        requests: list[Request] = []
        for command in commands:
            envelope = parse(
                Envelope, self._envelopes.document(command.op, command.input, is_command=True, key=command.key)
            )
            try:
                requests.append(Request(envelope, validate(envelope)))
                outcomes.append(None)
            except MemoreeError as error:
                outcomes.append(error)
        replies = iter(self._service.answer_all(requests))
        return [_outcome(next(replies).envelope) if outcome is None else outcome for outcome in outcomes]


class EndpointDoor:
    """A server: over HTTP a batch is one bulk request, over any other transport its requests go one by one. What is
    pending, or refused for the moment, is asked for again by the identical request, which is safe."""

    def __init__(self, endpoint: Endpoint, ambient: AmbientSource) -> None:
        self._endpoint = endpoint
        self._envelopes = Envelopes(ambient)

    def ask(self, op: str, input: Json) -> Json:
        request = encode_request(self._envelopes.document(op, input, is_command=False))
        (envelope,) = self._exchanged([request])
        return _result(envelope)

    def tell(self, commands: Sequence[Command]) -> list[Outcome]:
        requests = [
            encode_request(self._envelopes.document(command.op, command.input, is_command=True, key=command.key))
            for command in commands
        ]
        outcomes: dict[int, Outcome] = {}
        waiting = list(range(len(requests)))
        end = time.monotonic() + PATIENCE_SECONDS
        while waiting:
            answers = self._exchanged([requests[at] for at in waiting])
            outcomes |= dict(zip(waiting, map(_outcome, answers), strict=True))
            waiting = [at for at in waiting if _is_undecided(outcomes[at])]
            if waiting and time.monotonic() > end:
                break
            if waiting:
                time.sleep(PAUSE_SECONDS)
        return [outcomes[at] for at in range(len(requests))]

    def _exchanged(self, requests: Sequence[Outgoing]) -> list[Json]:
        if isinstance(self._endpoint, HttpEndpoint):
            return list(_bulk(self._endpoint, requests))
        return [send(request, self._endpoint).envelope for request in requests]


def _bulk(endpoint: HttpEndpoint, requests: Sequence[Outgoing]) -> Iterator[Json]:
    """Envelopes of one bulk request. Raises `TRANSPORT_ERROR` where one is missing, and what the server refuses the
    whole with."""
    url, authorization = endpoint.address_of(BULK_PATH)
    body = b"".join(request.body + b"\n" for request in requests)
    with exchanging_at(url) as (connection, target):
        connection.connect()
        connection.sock.settimeout(SILENCE_SECONDS_MAX)
        connection.request("POST", target, body=body, headers={"Content-Type": NDJSON, **STRONG, **authorization})
        response = connection.getresponse()
        if response.status != HTTPStatus.OK:
            _result(_envelope(response.read(LINE_BYTES_MAX)))
            raise MemoreeError(Code.TRANSPORT_ERROR, f"the server answered a bulk request with {response.status}")
        for request in requests:
            envelope = _envelope(response.readline(LINE_BYTES_MAX + 1))
            if envelope["request_id"] != request.request_id and envelope.get("ok"):
                raise MemoreeError(Code.TRANSPORT_ERROR, "the server answered another request; run the command again")
            yield envelope


def _envelope(line: bytes) -> Json:
    try:
        envelope = orjson.loads(line)
    except orjson.JSONDecodeError:
        envelope = None
    if not isinstance(envelope, dict) or "ok" not in envelope or "request_id" not in envelope:
        raise not_an_envelope(line)
    return envelope


def _outcome(envelope: Json) -> Outcome:
    if envelope["ok"]:
        result: Json = envelope["result"]
        return result
    return _refusal(envelope["error"])


def _result(envelope: Json) -> Json:
    outcome = _outcome(envelope)
    if isinstance(outcome, MemoreeError):
        raise outcome
    return outcome


def _refusal(error: Json) -> MemoreeError:
    """A code that this program does not know is a failure like any other."""
    known = error["code"] if error["code"] in Code.__members__ else Code.INTERNAL_ERROR.value
    return MemoreeError.from_wire({**error, "code": known})


def _is_undecided(outcome: Outcome) -> bool:
    return isinstance(outcome, MemoreeError) and outcome.retryable

"""The one way the contract tests reach a service: an envelope in, an envelope out.

`Door.send` carries bytes unchanged. `Door.call` builds an envelope around an operation; `ok` and `refused` say which
outcome the test expects. Every answer, expected or not, is held against the response shape of machine protocol §1.2.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx

from memoree.assembly import embedded_service
from memoree.embedded import EmbeddedService
from memoree.http.app import create_app
from memoree.http.settings import HttpSettings

from .protocol import HTTP_STATUS, MUTATING

Json = dict[str, Any]

DEFAULT_CONTEXT: Final[Json] = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
OMIT: Final = object()
"""As the value of an envelope member: leave the member out."""
DEFAULT: Final = object()
"""As `context`: the door's own context."""
AUTO: Final = object()
"""As `key`: a fresh idempotency key for a mutation, none for a read."""

RESPONSE_MEMBERS = {"v", "request_id", "ok", "context", "commit_seq", "result", "error", "warnings"}
ERROR_MEMBERS = {"code", "message", "retryable", "hint", "details"}
RETRYABLE = {"INDEX_NOT_READY", "TRANSPORT_ERROR", "RATE_LIMITED", "WRITE_PENDING"}
HTTP_TIMEOUT_SECONDS = 60.0
JSON_HEADERS = {"Content-Type": "application/json"}


class ManualClock:
    """A wall clock that moves only when a test says so."""

    def __init__(self, now: datetime = datetime(2026, 3, 2, 20, 41, 7, 250_000, tzinfo=UTC)) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> datetime:
        self.now += timedelta(**duration)
        return self.now


class Door(ABC):
    """A service as its callers see it. `context` is the ambient context that `call` attaches by default."""

    owns_store = True
    """Whether this door's test is the only writer."""

    def __init__(self, context: Mapping[str, Any] = DEFAULT_CONTEXT) -> None:
        self.context: Json = dict(context)
        self._numbers = itertools.count(1)

    @abstractmethod
    def exchange(self, body: bytes) -> Json:
        """One request body to one parsed response envelope."""

    def send(self, body: bytes) -> Json:
        answer = self.exchange(body)
        check_response_shape(answer)
        return answer

    def envelope(
        self,
        op: str,
        input: Any = None,
        /,
        *,
        context: Any = DEFAULT,
        key: Any = AUTO,
        **members: Any,
    ) -> Json:
        """The request that `call` would send. No `input` means `{}`; pass OMIT to leave it out. `members` are laid over
        the envelope, also `op` and `input` by name."""
        if key is AUTO:
            key = f"key/{uuid.uuid4().hex}" if op in MUTATING else OMIT
        request = {
            "v": 1,
            "request_id": f"req_{next(self._numbers)}",
            "op": op,
            "idempotency_key": OMIT if key is None else key,
            "context": self.context if context is DEFAULT else OMIT if context is None else context,
            "input": {} if input is None else input,
        } | members
        return {name: value for name, value in request.items() if value is not OMIT}

    def call(self, op: str, input: Any = None, /, **how: Any) -> Json:
        request = self.envelope(op, input, **how)
        return self.send(json.dumps(request, ensure_ascii=False).encode())

    def succeeded(self, op: str, input: Any = None, /, **how: Any) -> Json:
        """The whole answer to a call that must succeed."""
        answer = self.call(op, input, **how)
        assert answer["ok"], f"{op} was refused: {answer['error']}"
        return answer

    def ok(self, op: str, input: Any = None, /, **how: Any) -> Json:
        """The `result` of a call that must succeed."""
        result: Json = self.succeeded(op, input, **how)["result"]
        return result

    def failed(self, code: str, op: str, input: Any = None, /, **how: Any) -> Json:
        """The whole answer to a call that must be refused with `code`."""
        return expect_failure(self.call(op, input, **how), code)

    def refused(self, code: str, op: str, input: Any = None, /, **how: Any) -> Json:
        """The `error` of a call that must be refused with `code`."""
        error: Json = self.failed(code, op, input, **how)["error"]
        return error

    def here(self, **changes: Any) -> Json:
        """The door's own context with some members changed; a value of None removes one."""
        merged = self.context | changes
        return {name: value for name, value in merged.items() if value is not None}

    def last_commit_seq(self) -> int:
        number: int = self.ok("doctor", context=None)["last_commit_seq"]
        return number

    @contextmanager
    def nothing_written(self) -> Iterator[None]:
        """The block may not move the commit counter, which only says something in a store nobody else writes to."""
        before = self.last_commit_seq()
        yield
        assert not self.owns_store or self.last_commit_seq() == before, "a commit number was consumed"


class EmbeddedDoor(Door):
    """The service in this process, over a data directory of its own and a clock that tests move."""

    def __init__(self, data_dir: Path, clock: ManualClock) -> None:
        super().__init__()
        self.data_dir = data_dir
        self.clock = clock
        self._service: EmbeddedService = embedded_service(data_dir, clock=clock)

    def exchange(self, body: bytes) -> Json:
        answer: Json = json.loads(self._service.call_bytes(body))
        return answer

    def reopen(self) -> None:
        """Close the service and open its data directory again, as a restart of the program does."""
        self.close()
        self._service = embedded_service(self.data_dir, clock=self.clock)

    def close(self) -> None:
        self._service.close_sync()


class AsgiDoor(EmbeddedDoor):
    """The same service behind its HTTP application, without a socket: every status is checked too."""

    def exchange(self, body: bytes) -> Json:
        response = asyncio.run(self._post(body))
        answer: Json = response.json()
        check_http_status(response.status_code, answer)
        return answer

    async def _post(self, body: bytes) -> httpx.Response:
        transport = httpx.ASGITransport(create_app(self._service, HttpSettings()))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post("/v1/call", content=body, headers=JSON_HEADERS)


class HttpDoor(Door):
    """`POST /v1/call` of a running service. Every door works in a workspace of its own, because the store is shared;
    every answer must carry the HTTP status of its error code."""

    owns_store = False

    def __init__(self, base_url: str, token: str | None = None) -> None:
        super().__init__(DEFAULT_CONTEXT | {"workspace_id": f"wsp_lab_{uuid.uuid4().hex}"})
        headers = JSON_HEADERS | ({"Authorization": f"Bearer {token}"} if token is not None else {})
        self._client = httpx.Client(base_url=base_url, headers=headers, timeout=HTTP_TIMEOUT_SECONDS)

    @classmethod
    def from_environment(cls, base_url: str) -> HttpDoor:
        return cls(base_url, os.environ.get("MEMOREE_TEST_TOKEN"))

    def exchange(self, body: bytes) -> Json:
        response = self._client.post("/v1/call", content=body)
        answer: Json = response.json()
        check_http_status(response.status_code, answer)
        return answer

    def close(self) -> None:
        self._client.close()


def expect_failure(answer: Json, code: str) -> Json:
    """The answer, which must be a refusal with `code`."""
    assert not answer["ok"], f"a success where {code} was expected: {str(answer['result'])[:500]}"
    assert answer["error"]["code"] == code, f"expected {code}, got {answer['error']}"
    return answer


def check_http_status(status: int, answer: Mapping[str, Any]) -> None:
    expected = 200 if answer["ok"] else HTTP_STATUS[answer["error"]["code"]]
    assert status == expected, f"HTTP {status} where {expected} was expected: {str(answer)[:500]}"


def check_response_shape(answer: Mapping[str, Any]) -> None:
    """Assertions 4 (version), 13 and 14, on every single answer the tests see."""
    assert set(answer) <= RESPONSE_MEMBERS, f"unknown response members: {set(answer) - RESPONSE_MEMBERS}"
    assert answer["v"] == 1
    assert isinstance(answer["request_id"], str)
    assert isinstance(answer["warnings"], list)
    assert type(answer["ok"]) is bool
    if answer["ok"]:
        assert "error" not in answer
        assert isinstance(answer["result"], dict)
        return
    assert not {"result", "context", "commit_seq"} & set(answer), "a failure carries members of a success"
    error = answer["error"]
    assert {"code", "message", "retryable", "details"} <= set(error) <= ERROR_MEMBERS
    assert error["code"] in HTTP_STATUS, f"unknown error code {error['code']}"
    assert error["code"] != "INTERNAL_ERROR", f"an internal fault reached the caller: {error}"
    assert error["retryable"] is (error["code"] in RETRYABLE)
    assert error["message"]

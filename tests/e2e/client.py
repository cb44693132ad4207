"""An agent at the HTTP door: one request, or a write repeated with its key until it is decided."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

import httpx

from contract.protocol import MUTATING

Json = dict[str, Any]
R = TypeVar("R")

CONTEXT = {"workspace_id": "wsp_e2e", "project_id": "prj_e2e"}
TIMEOUT_SECONDS = 40.0
DECIDED_SECONDS_MAX = 60.0
RETRY_PAUSE_SECONDS = 0.1


class Client:
    """To be used in a `with` block. Every request goes out as one envelope."""

    def __init__(self, url: str, token: str | None, *, context: Mapping[str, str] = CONTEXT) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._context = dict(context)
        self.http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()

    def post(
        self, op: str, payload: Mapping[str, Any], *, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """One request. A mutation gets a key of its own unless it is given one."""
        if key is None and op in MUTATING:
            key = f"key/{uuid.uuid4().hex}"
        body = {"request_id": f"req_{uuid.uuid4().hex}", "op": op, "context": self._context, "input": payload}
        if key is not None:
            body["idempotency_key"] = key
        return self.http.post("/v1/call", json=body, headers=headers)

    def ok(
        self, op: str, payload: Mapping[str, Any], *, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Json:
        """The result of a request that must succeed at once."""
        answer = self.post(op, payload, key=key, headers=headers)
        assert answer.status_code == httpx.codes.OK, answer.text[:1000]
        result: Json = answer.json()["result"]
        return result

    def refused(self, code: str, op: str, payload: Mapping[str, Any], **how: Any) -> Json:
        answer = self.post(op, payload, **how).json()
        assert not answer["ok"], f"{op} succeeded where {code} was expected"
        error: Json = answer["error"]
        assert error["code"] == code, error
        return error

    def decided(self, op: str, payload: Mapping[str, Any], *, key: str) -> Json:
        """The envelope of a success. While the outcome is unknown the identical request is sent again."""
        deadline = time.monotonic() + DECIDED_SECONDS_MAX
        while True:
            try:
                envelope: Json = self.post(op, payload, key=key).json()
            except httpx.TransportError as error:
                envelope = {"ok": False, "error": {"retryable": True, "message": repr(error)}}
            if envelope["ok"]:
                return envelope
            assert envelope["error"]["retryable"], envelope
            assert time.monotonic() < deadline, f"{key} was never decided: {envelope}"
            time.sleep(RETRY_PAUSE_SECONDS)

    def note(self, text: str, *, title: str = "a note", key: str | None = None) -> Json:
        return self.ok("artifact.put", note(text, title=title), key=key)

    def claim(self, statement: str, *, key: str | None = None) -> Json:
        return self.ok("claim.assert", claim(statement), key=key)

    def last_commit_seq(self) -> int:
        """As head says now."""
        number: int = self.ok("doctor", {}, headers={"Memoree-Consistency": "strong"})["last_commit_seq"]
        return number


def note(text: str, *, title: str = "a note") -> Json:
    return {"kind": "note", "title": title, "content": {"type": "text", "data": text}}


def claim(statement: str) -> Json:
    return {"claim_type": "fact", "statement": statement}


def in_parallel(count: int, work: Callable[[int], R]) -> list[R]:
    """`work(number)` for each number, all at once; the results in order."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))

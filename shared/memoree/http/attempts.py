"""`GET /v1/operations/{attempt_id}`: what became of a write that was answered `WRITE_PENDING`.

Any token of the tenant may ask: an attempt id is known only to who made it. An attempt of another tenant looks like
one that never was.
"""

from __future__ import annotations

from typing import Any

from starlette.types import Receive, Scope, Send

from memoree.errors import MemoreeError, invalid, shown
from memoree.http.answers import (
    RETRY_AFTER_SECONDS_DEFAULT,
    Answer,
    HeaderList,
    HttpRefusal,
    envelope_answer,
    json_answer,
    retry_after,
)
from memoree.http.body import send_answer
from memoree.http.gate import Gate
from memoree.http.observation import CODE_OK, observation
from memoree.http.services import ServiceHolder
from memoree.ids import AttemptId, is_attempt_id
from memoree.service import OperationStatus


class OperationEndpoint:
    """200 `{attempt_id, state, commit_seq?, result?, error?}`; a malformed id is 400; refusals are envelopes."""

    def __init__(self, services: ServiceHolder, gate: Gate) -> None:
        self._services = services
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope)
            observation(scope).code = CODE_OK
        except HttpRefusal as refused:
            observation(scope).code = refused.error.code
            answer = envelope_answer(scope, refused.reply(), refused.headers)
        await send_answer(answer, scope, receive, send)

    async def _answer(self, scope: Scope) -> Answer:
        admission = self._gate.admit(scope)
        try:
            attempt_id = _attempt_id(scope["path_params"]["attempt_id"])
            status = await self._services.service.operation_status(admission.principal.tenant, attempt_id)
        except MemoreeError as error:
            raise HttpRefusal(error, headers=admission.headers) from error
        headers: HeaderList = admission.headers
        if status.state == "pending":
            headers += (retry_after(RETRY_AFTER_SECONDS_DEFAULT),)
        if status.snapshot_commit_seq is not None:
            headers += ((b"memoree-commit-seq", b"%d" % status.snapshot_commit_seq),)
        return json_answer(_document(attempt_id, status), headers=headers)


def _attempt_id(text: str) -> AttemptId:
    if not is_attempt_id(text):
        invalid(f"{shown(text)} is not an attempt id, such as `att_` and 26 characters of Crockford base 32")
    return AttemptId(text)


def _document(attempt_id: AttemptId, status: OperationStatus) -> dict[str, Any]:
    members = {"commit_seq": status.commit_seq, "result": status.result, "error": status.error}
    known = {name: value for name, value in members.items() if value is not None}
    return {"attempt_id": attempt_id, "state": status.state, **known}

"""`POST /v1/forget`: a dry run, softly, or for good in two steps (MemoryProtocol §8)."""

from __future__ import annotations

from typing import Any, NoReturn

import orjson
from pydantic import ConfigDict, ValidationError
from starlette.types import Receive, Scope, Send

from memoree.envelope import WireModel
from memoree.episodes.targets import Target
from memoree.erasures import Erasure
from memoree.errors import Code, MemoreeError
from memoree.http.answers import Answer, json_answer
from memoree.http.auth import Principal
from memoree.http.gate import Admission
from memoree.http.memoryprotocol.door import Endpoint
from memoree.http.memoryprotocol.refusals import VALIDATE, refuse
from memoree.operations.forget_episodes import CONFIRMATION_REQUIRED, FORGET

NO_RECEIPT = "invalid_confirmation_token"
NO_RECEIPT_MESSAGE = "confirmation_token must be a serialized ForgetReceipt: "


class ForgetBody(WireModel):
    target: Target
    hard: bool = False
    dry_run: bool = False
    confirmation_token: str | None = None


class ReceiptSent(WireModel):
    """A receipt as a client may have kept it: in any order, without `matched`, with members of a later version."""

    model_config = ConfigDict(extra="ignore")

    target: Target
    preview: bool
    audit_lsn: dict[str, int]
    matched: int = 0


class ForgetEndpoint(Endpoint):
    scope_name = "forget"

    async def serve(self, scope: Scope, receive: Receive, send: Send, admission: Admission) -> Answer:
        wanted, principal = await self.body(scope, receive, ForgetBody), admission.principal
        key = self.key(scope)
        with self.door.measured.forget(principal.tenant, wanted.target, hard=wanted.hard):
            return await self._forgotten(wanted, principal, key)

    async def _forgotten(self, wanted: ForgetBody, principal: Principal, key: str | None) -> Answer:
        asked: dict[str, Any] = {**wanted.model_dump(exclude={"confirmation_token"}), "actor": principal.agent}
        if wanted.hard:
            receipt = _receipt(wanted.confirmation_token)
            asked["confirmed_by"] = {"target": receipt.target.model_dump(), "audit_lsn": receipt.audit_lsn}
        try:
            found = await self.door.ask(principal, FORGET, asked, key=key)
        except MemoreeError as error:
            _refuse(error)
        receipt_told = {name: each for name, each in found.value.items() if name not in ("commit_seq", "created")}
        receipt_told["target"] = wanted.target.model_dump()
        if (erasure := receipt_told.get("erasure")) is not None:
            kept = await self.door.services.service.record_erasure(
                principal.tenant,
                Erasure(
                    erasure_id=erasure["erasure_id"],
                    at=erasure["at"],
                    commit_seq=found.value["commit_seq"],
                    entities=tuple(erasure["entities"]),
                    blobs=(),
                ),
                blobs=erasure["blobs"],
            )
            receipt_told |= kept.to_wire()
        return json_answer(receipt_told, headers=found.headers)


def _receipt(token: str | None) -> ReceiptSent:
    """The receipt that a token is. Raises 428 without one, and 400 for what is none."""
    if not token:
        refuse(428, CONFIRMATION_REQUIRED, "a hard delete needs confirmation_token, the receipt of a dry run as text")
    try:
        found = ReceiptSent.model_validate(orjson.loads(token))
    except (orjson.JSONDecodeError, ValidationError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        refuse(400, NO_RECEIPT, f"{NO_RECEIPT_MESSAGE}{why}")
    if not found.preview:
        refuse(428, CONFIRMATION_REQUIRED, "the receipt is of no dry run")
    return found


def _refuse(error: MemoreeError) -> NoReturn:
    if error.details is not None and error.details.get("reason") == CONFIRMATION_REQUIRED:
        refuse(428, CONFIRMATION_REQUIRED, error.message)
    if error.code is Code.INVALID_REQUEST:
        refuse(400, VALIDATE, error.message)
    raise error

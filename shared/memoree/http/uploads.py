"""`POST /v1/artifacts/uploads` declares large content, `PUT …/{upload_id}/content` takes it where the store cannot.

Both need the scope `ingest`; refusals are envelopes. The bytes pass through in pieces as the store takes them.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from starlette.types import Receive, Scope, Send

from memoree import limits
from memoree.envelope import load_json, parse
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.http.answers import Answer, HttpRefusal, envelope_answer, header, json_answer
from memoree.http.body import JSON_TYPES, BodyReader, ClientDisconnected, check_body_type, send_answer
from memoree.http.gate import Admission, Gate
from memoree.http.observation import CODE_OK, observation
from memoree.http.places import Places
from memoree.http.services import ServiceHolder
from memoree.ids import UploadId, is_upload_id
from memoree.objects import ObjectStoreError
from memoree.uploads import Upload, UploadDeclaration

SCOPE = "ingest"
_LENGTH = re.compile(rb"\d{1,18}")


class UploadEndpoint(ABC):
    """What both routes have in common: the gate, and how they refuse."""

    def __init__(self, services: ServiceHolder, gate: Gate) -> None:
        self._services = services
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._admitted(scope, receive)
            observation(scope).code = CODE_OK
        except ClientDisconnected:
            return
        except HttpRefusal as refused:
            observation(scope).code = refused.error.code
            answer = envelope_answer(scope, refused.reply(), refused.headers)
        await send_answer(answer, scope, receive, send)

    async def _admitted(self, scope: Scope, receive: Receive) -> Answer:
        admission = self._gate.admit(scope)
        try:
            self._gate.require(admission, SCOPE)
            answer = await self._answer(scope, receive, admission)
        except HttpRefusal as refused:
            raise HttpRefusal(
                refused.error, status=refused.status, headers=admission.headers + refused.headers
            ) from refused
        except MemoreeError as error:
            raise HttpRefusal(error, headers=admission.headers) from error
        except ObjectStoreError as error:
            raise HttpRefusal(_unreachable(error), headers=admission.headers) from error
        return answer.with_headers(*admission.headers)

    @abstractmethod
    async def _answer(self, scope: Scope, receive: Receive, admission: Admission) -> Answer:
        """Raises `HttpRefusal`, `MemoreeError`, `ObjectStoreError` and `ClientDisconnected`."""


class DeclareEndpoint(UploadEndpoint):
    """201 `{upload_id, method, url, headers, expires_at}`; a relative `url` is one of this service's own."""

    def __init__(self, services: ServiceHolder, gate: Gate) -> None:
        super().__init__(services, gate)
        self._bodies = BodyReader(bytes_max=limits.UPLOAD_DECLARATION_BYTES_MAX)

    async def _answer(self, scope: Scope, receive: Receive, admission: Admission) -> Answer:
        check_body_type(scope, JSON_TYPES)
        async with self._bodies.read(scope, receive) as body:
            declaration = parse(UploadDeclaration, load_json(body), "body")
        ticket = await self._services.service.uploads.declare(admission.principal.tenant, declaration)
        return json_answer(ticket.to_wire(), 201)


class ReceiveEndpoint(UploadEndpoint):
    """204 once the bytes are stored. Exactly the declared number of them, told beforehand: 411 and 400 otherwise."""

    def __init__(self, services: ServiceHolder, gate: Gate) -> None:
        super().__init__(services, gate)
        self._places = Places("uploads", retry_after_seconds=5.0)

    async def _answer(self, scope: Scope, receive: Receive, admission: Admission) -> Answer:
        uploads, tenant = self._services.service.uploads, admission.principal.tenant
        upload = await uploads.find(tenant, _upload_id(scope["path_params"]["upload_id"]))
        _check_length(scope, upload)
        with self._places.held(tenant, limits.UPLOADS_RECEIVED_AT_ONCE_MAX):
            await uploads.receive(tenant, upload, _chunks(receive))
        observation(scope).body_read = True
        return Answer(204, b"")


def _upload_id(text: str) -> UploadId:
    if not is_upload_id(text):
        invalid(f"{shown(text)} is not an upload id, such as `upl_` and 26 characters of Crockford base 32")
    return UploadId(text)


def _check_length(scope: Scope, upload: Upload) -> None:
    text = header(scope, b"content-length")
    if text is None or _LENGTH.fullmatch(text) is None:
        error = MemoreeError(Code.INVALID_REQUEST, "send the upload with a Content-Length")
        raise HttpRefusal(error, status=411)
    if int(text) != upload.size:
        invalid(f"upload {upload.upload_id} was declared to have {upload.size} bytes, not {int(text)}")
    if header(scope, b"content-range") is not None:
        invalid("an upload is sent whole, without Content-Range")  # 400 is what RFC 9110 §14.5 wants
    if (header(scope, b"content-encoding") or b"identity").lower() != b"identity":
        error = MemoreeError(Code.INVALID_REQUEST, "send the upload without Content-Encoding")
        raise HttpRefusal(error, status=415)


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    """The request's body as it comes. Raises 408 when nothing comes for long, and `ClientDisconnected`."""
    while True:
        try:
            async with asyncio.timeout(limits.STREAM_SILENCE_SECONDS_MAX):
                message = await receive()
        except TimeoutError:
            silence = f"nothing was sent for {limits.STREAM_SILENCE_SECONDS_MAX:g} s; nothing was stored"
            raise HttpRefusal(MemoreeError(Code.TRANSPORT_ERROR, silence), status=408) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        if chunk := message.get("body", b""):
            yield chunk
        if not message.get("more_body", False):
            return


def _unreachable(error: ObjectStoreError) -> MemoreeError:
    return MemoreeError(
        Code.TRANSPORT_ERROR, f"the store did not answer; send it again: {error}", retry_after_seconds=1.0
    )

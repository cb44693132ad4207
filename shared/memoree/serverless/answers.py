"""What a function can answer: one whole body of a few megabytes, and nothing that never ends.

An application written for a server streams as much as it likes. Around it, `WholeAnswers` sends larger answers by way
of the object store: 303 to a URL that needs no token and lives for a quarter of an hour.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.http.answers import HeaderList, HttpRefusal, json_answer, plain_refusal, refusal_answer
from memoree.http.content import CONTENT_PATH
from memoree.http.observation import observation
from memoree.ids import new_ulid
from memoree.objects import ObjectStoreError
from memoree.objects.blobs import blob_key
from memoree.replication.layout import answer_key

EVENT_STREAM = b"text/event-stream"
CHANGE_FEED = "GET /v1/events?after=N&wait=20"
_ENTITY_HEADERS = (b"content-", b"accept-ranges", b"etag", b"transfer-encoding")


class AnswerStore(Protocol):
    """What is needed of `S3Store`."""

    async def put_passing(self, key: str, body: bytes) -> None: ...

    def presigned_get(self, key: str, *, expires_seconds: int, content_type: str, disposition: str) -> str: ...


class WholeAnswers:
    """Around an application. `store` holds its tenants' objects.

    * An answer over `limits.FUNCTION_ANSWER_BYTES_MAX` is stored, and 303 says where. The bytes of a revision are in
      the store already: 303 leads to the blob itself, with the type and disposition it would have had here.
    * An answer over `limits.FUNCTION_STORED_ANSWER_BYTES_MAX` is refused with 413; what its request wrote is stored.
    * An event stream without an end (the answer to a GET) is 501, naming the change feed; one with an end is delivered
      whole.
    """

    def __init__(self, app: ASGIApp, store: AnswerStore) -> None:
        self._app = app
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Held(scope)
        await self._app(scope, answer.receiving(receive), answer.take)
        try:
            await self._send(answer, scope, send)
        except ObjectStoreError as error:
            unreachable = MemoreeError(
                Code.TRANSPORT_ERROR, f"the store did not take a large answer: {error}", retry_after_seconds=1.0
            )
            await refusal_answer(scope, HttpRefusal(unreachable, headers=answer.other_headers)).send(send)

    async def _send(self, answer: _Held, scope: Scope, send: Send) -> None:
        if answer.is_endless:
            message = f"a function cannot stream; follow the changes with {CHANGE_FEED}"
            document = {"error": "not_implemented", "message": message}
            refusal = plain_refusal(scope, HTTPStatus.NOT_IMPLEMENTED, document, answer.other_headers)
            await refusal.send(send)
        elif answer.is_blob:
            await _moved(self._blob_url(answer, scope), answer.other_headers).send(send)
        elif answer.size > limits.FUNCTION_STORED_ANSWER_BYTES_MAX:
            message = f"the answer has more than {limits.FUNCTION_STORED_ANSWER_BYTES_MAX} bytes; ask for less at once"
            refused = HttpRefusal(MemoreeError(Code.CONTENT_TOO_LARGE, message), headers=answer.other_headers)
            await refusal_answer(scope, refused).send(send)
        elif fits(body := b"".join(answer.pieces)):
            await send(answer.start)
            await send({"type": "http.response.body", "body": body})
        else:
            await _moved(await self._stored(answer, scope, body), answer.other_headers).send(send)

    def _blob_url(self, answer: _Held, scope: Scope) -> str:
        digest = answer.header(b"etag").strip('"')
        return self._url(blob_key(observation(scope).tenant, digest), answer, "attachment")

    async def _stored(self, answer: _Held, scope: Scope, body: bytes) -> str:
        key = answer_key(observation(scope).tenant, new_ulid())
        await self._store.put_passing(key, body)
        return self._url(key, answer, "inline")

    def _url(self, key: str, answer: _Held, disposition: str) -> str:
        return self._store.presigned_get(
            key,
            expires_seconds=limits.FUNCTION_ANSWER_SECONDS,
            content_type=answer.header(b"content-type"),
            disposition=answer.header(b"content-disposition") or disposition,
        )


class _Held:
    """An answer on its way: taken whole, or let go of at its first line where it is to be had elsewhere."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._let_go = asyncio.Event()
        self.start: MutableMapping[str, Any] = {}
        self.pieces: list[bytes] = []
        self.size = 0
        self.is_endless = False
        self.is_blob = False

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
            is_get = self._scope["method"] == "GET"
            self.is_endless = is_get and self.header(b"content-type").startswith(EVENT_STREAM.decode())
            length = self.header(b"content-length")
            of_revision = is_get and observation(self._scope).route == CONTENT_PATH and message["status"] < 300
            self.is_blob = of_revision and int(length or 0) > limits.FUNCTION_ANSWER_BYTES_MAX
            if self.is_endless or self.is_blob:
                self._let_go.set()
        elif message["type"] == "http.response.body" and not self._let_go.is_set():
            self.pieces.append(message.get("body", b""))
            self.size += len(self.pieces[-1])
            if self.size > limits.FUNCTION_STORED_ANSWER_BYTES_MAX:
                self.pieces.clear()
                self._let_go.set()

    def receiving(self, receive: Receive) -> Receive:
        """As `receive`; to the application, the client leaves once nothing more of the answer is wanted."""

        async def received() -> Message:
            receiving = asyncio.ensure_future(receive())
            leaving = asyncio.create_task(self._let_go.wait())
            try:
                await asyncio.wait((receiving, leaving), return_when=asyncio.FIRST_COMPLETED)
                return receiving.result() if receiving.done() else {"type": "http.disconnect"}
            finally:
                receiving.cancel()
                leaving.cancel()

        return received

    def header(self, name: bytes) -> str:
        """The header of that lower-case name, empty where there is none."""
        return next((value.decode("latin-1") for key, value in self.start["headers"] if key == name), "")

    @property
    def other_headers(self) -> HeaderList:
        """All that does not speak of the body: the rate, the commit, the origins that may read it."""
        return tuple((name, value) for name, value in self.start["headers"] if not name.startswith(_ENTITY_HEADERS))


def fits(body: bytes) -> bool:
    """Whether a body can be a function's answer. It travels as a JSON string: one of text may take six times its size,
    one that is no text takes four thirds of it."""
    if len(body) > limits.FUNCTION_ANSWER_BYTES_MAX:
        return False
    if len(body) * 6 <= limits.FUNCTION_PAYLOAD_BYTES_MAX:
        return True
    try:
        return len(json.dumps(body.decode())) <= limits.FUNCTION_PAYLOAD_BYTES_MAX
    except UnicodeDecodeError:
        return True


def _moved(url: str, headers: Iterable[tuple[bytes, bytes]]) -> Any:
    document = {"location": url, "expires_in_seconds": limits.FUNCTION_ANSWER_SECONDS}
    moved = json_answer(document, HTTPStatus.SEE_OTHER)
    return moved.with_headers(*headers, (b"location", url.encode()))

"""`GET /v1/artifacts/{artifact_id}/revisions/{revision_id}/content`: the bytes of a revision, streamed (RFC 9110).

The revision is found in one snapshot, which is let go of before the first byte; a slow reader holds a window of bytes
and nothing else. What was stored is never to be run by a browser that follows a link to it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from memoree import limits
from memoree.contents import RevisionContent
from memoree.errors import Code, MemoreeError
from memoree.http.answers import SECURITY_HEADERS, Answer, HeaderList, HttpRefusal, envelope_answer, header
from memoree.http.body import disconnected, send_answer, send_pieces
from memoree.http.calls import asks_for_strong
from memoree.http.conditional import REVALIDATED, has
from memoree.http.gate import Admission, Gate
from memoree.http.metrics import Metrics
from memoree.http.observation import CODE_OK, observation
from memoree.http.places import Places
from memoree.http.services import ServiceHolder
from memoree.objects import ObjectStoreError

CONTENT_PATH = "/v1/artifacts/{artifact_id}/revisions/{revision_id}/content"
SCOPE = "recall"
UNKNOWN_TYPE = "application/octet-stream"
_SANDBOX = b"sandbox; default-src 'none'; frame-ancestors 'none'"
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = re.compile(rf"{_WORD}/{_WORD}( *; *{_WORD}=({_WORD}|\"[ !#-\[\]-~]*\"))*")
_RANGE = re.compile(rb"bytes *= *(\d*) *- *(\d*)", re.IGNORECASE)
_POSITION_MAX = 10**18
"""Behind the end of any content; what is further away is taken for it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Bytes `start` to `stop`, exclusive; `whole` when no range was asked for."""

    start: int
    stop: int
    whole: bool


class ContentEndpoint:
    """200 and 206 with the bytes, 304, 416; refusals are envelopes. Bytes that turn out damaged on the way break the
    connection, so that nobody takes them for complete."""

    def __init__(self, services: ServiceHolder, gate: Gate, metrics: Metrics) -> None:
        self._services = services
        self._gate = gate
        self._metrics = metrics
        self._places = Places("downloads")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            admission = self._gate.admit(scope)
            answer = await self._served(scope, receive, send, admission)
        except HttpRefusal as refused:
            answer = _refused(scope, refused)
        if answer is not None:
            await send_answer(answer, scope, receive, send)

    async def _served(self, scope: Scope, receive: Receive, send: Send, admission: Admission) -> Answer | None:
        """Stream the bytes; or the answer that has none."""
        try:
            self._gate.require(admission, SCOPE)
            content = await self._find(scope, admission)
            return await self._answered(scope, receive, send, content, admission.headers)
        except MemoreeError as error:
            return _refused(scope, HttpRefusal(error, headers=admission.headers))

    async def _find(self, scope: Scope, admission: Admission) -> RevisionContent:
        ids, tenant = scope["path_params"], admission.principal.tenant
        content = await self._services.service.revision_content(
            tenant, ids["artifact_id"], ids["revision_id"], strong=asks_for_strong(scope)
        )
        self._metrics.saw_commit(tenant, content.snapshot_commit_seq)
        return content

    async def _answered(
        self, scope: Scope, receive: Receive, send: Send, content: RevisionContent, headers: HeaderList
    ) -> Answer | None:
        tag = b'"%s"' % content.digest.encode()
        told = (
            *headers,
            *REVALIDATED,
            (b"etag", tag),
            (b"accept-ranges", b"bytes"),
            (b"content-disposition", b"attachment"),
            (b"content-security-policy", _SANDBOX),
            (b"memoree-commit-seq", b"%d" % content.snapshot_commit_seq),
        )
        observation(scope).code = CODE_OK
        if has(scope, tag):
            return Answer(304, b"", told)
        part = _asked_part(scope, tag, content.size)
        if part is None:
            error = MemoreeError(Code.INVALID_REQUEST, f"none of the revision's {content.size} bytes is in that range")
            unsatisfied = (b"content-range", b"bytes */%d" % content.size)
            raise HttpRefusal(error, status=416, headers=(*headers, unsatisfied))
        start = _start(content, part, told)
        if scope["method"] == "HEAD" or part.start == part.stop:
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return None
        with self._place(content):
            await _stream(receive, send, start, content.windows(part.start, part.stop))
        return None

    def _place(self, content: RevisionContent) -> AbstractContextManager[None]:
        """Bytes that are no blob hold no window: whoever has them in hand may send them."""
        if content.body is not None:
            return nullcontext()
        return self._places.held(content.tenant, limits.DOWNLOADS_AT_ONCE_MAX)


async def _stream(receive: Receive, send: Send, start: dict[str, object], windows: AsyncGenerator[bytes, None]) -> None:
    """The first window is fetched before the answer begins: what is missing is still refused in words."""
    async with aclosing(windows):
        try:
            window = await anext(windows)
        except ObjectStoreError as error:
            raise MemoreeError(
                Code.TRANSPORT_ERROR, f"the store did not answer: {error}", retry_after_seconds=1.0
            ) from error
        leaving = asyncio.create_task(disconnected(receive))
        try:
            await send(start)
            await send_pieces(send, window)
            async for window in windows:
                if leaving.done():
                    return
                await send_pieces(send, window)
            await send({"type": "http.response.body", "body": b""})
        except MemoreeError as error:
            raise BrokenOff(error.message) from error
        finally:
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)


class BrokenOff(Exception):
    """The response had begun when its bytes proved to be damaged: all that is left is to end it without its end."""


def _start(content: RevisionContent, part: _Part, headers: HeaderList) -> dict[str, object]:
    entity: HeaderList = (
        (b"content-type", _content_type(content.revision.media_type)),
        (b"content-length", b"%d" % (part.stop - part.start)),
    )
    if not part.whole:
        entity += ((b"content-range", b"bytes %d-%d/%d" % (part.start, part.stop - 1, content.size)),)
    own = {name for name, _ in headers}
    security = [each for each in SECURITY_HEADERS if each[0] not in own]
    return {
        "type": "http.response.start",
        "status": 200 if part.whole else 206,
        "headers": [*entity, *security, *headers],
    }


def _content_type(media_type: str) -> bytes:
    """A stored media type may be any text with a slash in it, line ends included."""
    return (media_type if _MEDIA_TYPE.fullmatch(media_type) else UNKNOWN_TYPE).encode("ascii")


def _asked_part(scope: Scope, tag: bytes, size: int) -> _Part | None:
    """What to send; `None` for a range that holds no byte. Everything where no range was asked for that we know: other
    units, several ranges, or one that was meant for another version (`If-Range`)."""
    whole = _Part(0, size, whole=True)
    asked = header(scope, b"range")
    if asked is None or scope["method"] == "HEAD" or header(scope, b"if-range") not in (None, tag):
        return whole
    match = _RANGE.fullmatch(asked.strip())
    if match is None or not (match[1] or match[2]):
        return whole
    first, last = map(_position, match.groups())
    if first is None:
        start, stop = max(size - (last or 0), 0), size
    else:
        start, stop = first, size if last is None else min(last + 1, size)
        if last is not None and last < first:
            return whole
    return _Part(start, stop, whole=False) if start < min(stop, size) else None


def _position(digits: bytes) -> int | None:
    """The number, of any length; `None` where none is given."""
    significant = digits.lstrip(b"0")
    if len(significant) > len(str(_POSITION_MAX)):
        return _POSITION_MAX
    return min(int(significant or b"0"), _POSITION_MAX) if digits else None


def _refused(scope: Scope, refused: HttpRefusal) -> Answer:
    observation(scope).code = refused.error.code
    return envelope_answer(scope, refused.reply(), refused.headers)

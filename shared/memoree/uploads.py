"""Uploads: large content that is sent beside the protocol and named in a request afterwards (`docs/streaming.md`).

An upload is two objects under its id: what was declared, and the bytes once they were sent. Nothing here is believed:
whoever turns an upload into a blob hashes it first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NoReturn

import orjson
from pydantic import Field

from memoree import clock, limits
from memoree.clock import Clock
from memoree.envelope import WireModel
from memoree.errors import Code, MemoreeError, not_found
from memoree.ids import UploadId, is_upload_id, new_upload_id, upload_time_ms
from memoree.objects import ObjectInfo, ObjectMissing, ObjectStore
from memoree.queue import PATIENT_GROUPS
from memoree.replication import layout

UPLOADS_PATH = "/v1/artifacts/uploads"
WRITES_END_WITHIN = timedelta(seconds=limits.UPLOAD_REMOVAL_SECONDS)
"""Of a large object; what was not finished by then never will be."""


class UploadDeclaration(WireModel):
    """What will be sent: its length, and its BLAKE3 as 64 lower-case hex digits."""

    size_bytes: Annotated[int, Field(ge=1, le=limits.UPLOAD_BYTES_MAX)]
    blob_hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, slots=True)
class Upload:
    """A declared upload. `digest` is 32 raw bytes."""

    upload_id: UploadId
    digest: bytes
    size: int


@dataclass(frozen=True, slots=True)
class UploadTicket:
    """How the bytes are to be sent: a PUT to `url` with `headers`, until `expires_at` (in stored form)."""

    upload_id: UploadId
    url: str
    headers: Mapping[str, str]
    expires_at: str

    def to_wire(self) -> dict[str, Any]:
        return {
            "upload_id": self.upload_id,
            "method": "PUT",
            "url": self.url,
            "headers": dict(self.headers),
            "expires_at": clock.wire(self.expires_at),
        }


class Uploads:
    """The uploads of all tenants. `through_service`: the bytes come to the service itself, also where the store could
    take them from the client. `sweep_when_declaring`: once an hour, where no writer process does it. Every method may
    raise `StoreUnavailable`."""

    def __init__(
        self, store: ObjectStore, clock_now: Clock, *, through_service: bool, sweep_when_declaring: bool = False
    ) -> None:
        self._store = store
        self._clock = clock_now
        self._through_service = through_service
        self._next_sweep_at = datetime.min.replace(tzinfo=UTC) if sweep_when_declaring else None

    async def declare(self, tenant: str, declaration: UploadDeclaration) -> UploadTicket:
        """A new upload, known to every process from now on."""
        now = self._clock()
        if self._next_sweep_at is not None and now >= self._next_sweep_at:
            self._next_sweep_at = now + timedelta(seconds=limits.UPLOAD_SWEEP_SECONDS)
            await self.sweep(tenant)
            await self._store.abort_unfinished(layout.TENANTS_PREFIX, before=now - WRITES_END_WITHIN)
        upload_id = new_upload_id(clock.milliseconds(now))
        body = orjson.dumps(declaration.model_dump())
        await self._store.put(layout.upload_declaration_key(tenant, upload_id), body)
        size = declaration.size_bytes
        direct = None
        if not self._through_service:
            key = layout.upload_content_key(tenant, upload_id)
            direct = self._store.presigned_put(key, size=size, expires_seconds=limits.UPLOAD_SECONDS)
        return UploadTicket(
            upload_id,
            url=f"{UPLOADS_PATH}/{upload_id}/content" if direct is None else direct.url,
            headers={"Content-Length": str(size)} if direct is None else direct.headers,
            expires_at=clock.stored(now + timedelta(seconds=limits.UPLOAD_SECONDS)),
        )

    async def find(self, tenant: str, upload_id: UploadId) -> Upload:
        """Raises `NOT_FOUND` for an upload that was never declared by this tenant, or has expired."""
        check_open(upload_id, self._clock)
        try:
            found = await self._store.get(layout.upload_declaration_key(tenant, upload_id))
        except ObjectMissing:
            unknown(upload_id)
        assert found is not None, "a GET without a condition always has a body"
        return read_declaration(upload_id, found.body)

    async def sent(self, tenant: str, upload: Upload) -> ObjectInfo:
        """The bytes as the store has them now. Raises `INVALID_REQUEST` when they were not sent, or are of another
        length than was declared."""
        try:
            info = await self._store.head(layout.upload_content_key(tenant, upload.upload_id))
        except ObjectMissing:
            raise not_sent(upload.upload_id) from None
        if info.size != upload.size:
            raise not_as_declared(upload, f"it has {info.size} bytes", reason="size_mismatch")
        return info

    async def receive(self, tenant: str, upload: Upload, chunks: AsyncIterator[bytes]) -> None:
        """Store the bytes; a repeat replaces them. What `chunks` raises leaves nothing behind."""
        key = layout.upload_content_key(tenant, upload.upload_id)
        await self._store.put_stream(key, chunks, size=upload.size)

    async def remove_content(self, tenant: str, upload_id: UploadId) -> None:
        """Once they are a blob, the bytes are not needed here; the declaration stays, for others that name it."""
        await self._store.delete(layout.upload_content_key(tenant, upload_id))

    async def sweep(self, tenant: str) -> int:
        """Remove what no command can name any more; how many objects that was."""
        oldest_ms = clock.milliseconds(self._clock()) - limits.UPLOAD_REMOVAL_SECONDS * 1000
        prefix = layout.uploads_prefix(tenant)
        removed = 0
        async for key in self._store.children(prefix):
            upload_id = key.removeprefix(prefix).partition(".")[0]
            if is_upload_id(upload_id) and upload_time_ms(UploadId(upload_id)) < oldest_ms:
                await self._store.delete(key)
                removed += 1
        return removed


def group_of(upload_id: UploadId) -> str:
    """The queue's group in which a command waits for its upload to be verified (`memoree.writer.uploads`)."""
    return f"{PATIENT_GROUPS}{upload_id}"


def read_declaration(upload_id: UploadId, body: bytes) -> Upload:
    declared = UploadDeclaration.model_validate(orjson.loads(body))
    return Upload(upload_id, bytes.fromhex(declared.blob_hash), declared.size_bytes)


def check_open(upload_id: UploadId, clock_now: Clock) -> None:
    """Raises `NOT_FOUND` for an upload that has expired."""
    age_ms = clock.milliseconds(clock_now()) - upload_time_ms(upload_id)
    if age_ms > limits.UPLOAD_SECONDS * 1000:
        unknown(upload_id)


def unknown(upload_id: UploadId) -> NoReturn:
    """One that expired, one of another tenant and one that never was look the same."""
    not_found("upload", upload_id)


def not_sent(upload_id: UploadId) -> MemoreeError:
    return MemoreeError(
        Code.INVALID_REQUEST,
        f"upload {upload_id} has no content: PUT it first, then name it",
        details={"upload_id": upload_id, "reason": "not_sent"},
    )


def not_as_declared(upload: Upload, what: str, *, reason: str) -> MemoreeError:
    return MemoreeError(
        Code.INVALID_REQUEST,
        f"upload {upload.upload_id} is not what was declared, {upload.size} bytes that hash to {upload.digest.hex()}: "
        f"{what}; nothing was stored",
        details={"upload_id": upload.upload_id, "reason": reason},
    )

"""Turning uploads into blobs, before the commands that name them reach their tenant's line.

While any message of a group is in flight, no later one of that group is delivered. Hashing 5 GiB takes half a minute;
in the tenant's own group it would hold up everything the tenant writes. So a command that names an upload waits in a
group of the upload, is taken from there to be verified, and goes on to its tenant's group with a blob that is there,
or with what was wrong. Neither lease nor database is involved, and a crash anywhere repeats what leads to the same.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime
from weakref import WeakValueDictionary

from blake3 import blake3

from memoree import limits
from memoree.command import Command, refused
from memoree.crashpoints import reach
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId, UploadId
from memoree.objects import ObjectInfo, ObjectMissing, ObjectStore, ObjectStoreError, OutOfRange, PreconditionFailed
from memoree.objects.blobs import BlobStore, blob_key
from memoree.objects.streaming import windows
from memoree.queue import CommandQueue, Message, OutgoingMessage, QueueError
from memoree.replication import layout
from memoree.uploads import WRITES_END_WITHIN, Upload, Uploads, not_as_declared
from memoree.writer.staging import ParkedCommandLost, UnknownCommand, mark_try, read_command

GIVE_BACK_SECONDS = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What goes on to the tenant's group. `refusal` says what was wrong with the upload."""

    attempt_id: AttemptId
    tenant: str
    upload_id: UploadId | None = None
    refusal: MemoreeError | None = None


class UploadVerifier:
    """Serves the messages of such groups, a bounded number at a time and one of each tenant."""

    def __init__(self, store: ObjectStore, uploads: Uploads, queue: CommandQueue) -> None:
        self._store = store
        self._uploads = uploads
        self._queue = queue
        self._permits = asyncio.Semaphore(limits.UPLOADS_VERIFIED_AT_ONCE_MAX)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def serve(self, message: Message) -> None:
        """Verify, promote, send on, acknowledge, tidy up. A message that could not be judged is given back. Raises
        `QueueError`, which leaves it to return by itself."""
        try:
            verdict = await self._judge(message)
            if verdict is not None:
                await self._send_on(message, verdict)
        except (ObjectStoreError, UnknownCommand) as error:
            log.warning("an upload could not be verified and will be tried again: %s", error)
            await self._queue.set_visibility([message], GIVE_BACK_SECONDS)
            return
        except asyncio.CancelledError:
            with suppress(QueueError):
                await self._queue.set_visibility([message], 0.0)
            raise
        await self._queue.ack([message])
        if verdict is not None and verdict.upload_id is not None and verdict.refusal is None:
            await self._tidy(verdict.tenant, verdict.upload_id)

    async def _judge(self, message: Message) -> _Verdict | None:
        """`None`, logged, for a message that no api can have sent."""
        try:
            command = await read_command(self._store, message)
        except ParkedCommandLost as lost:
            return _Verdict(lost.attempt_id, lost.tenant)  # the tenant's writer knows what to say
        if command is None:
            return None
        content = command.call.content
        if content is None or content.upload_id is None:
            return _Verdict(command.attempt_id, command.tenant)
        upload = Upload(content.upload_id, content.digest, content.size)
        async with self._turns.setdefault(command.tenant, asyncio.Lock()), self._permits:
            refusal = await self._tried(message, command, upload)
        return _Verdict(command.attempt_id, command.tenant, upload.upload_id, refusal)

    async def _tried(self, message: Message, command: Command, upload: Upload) -> MemoreeError | None:
        """A redelivery may mean that the last try killed the process: it leaves a mark, and has three of them."""
        if message.receive_count == 1:
            return await self._verify(command.tenant, upload)
        mark = await mark_try(self._store, command.tenant, command.attempt_id, layout.verification_try_key)
        if mark is None:
            return _GIVEN_UP
        try:
            return await self._verify(command.tenant, upload)
        except (ObjectStoreError, asyncio.CancelledError):
            await self._store.delete(mark)  # the upload was not at fault
            raise

    async def _verify(self, tenant: str, upload: Upload) -> MemoreeError | None:
        """See that the blob is there, or make it of the upload; what is wrong with the upload, if anything."""
        try:
            if not await self._is_blob(tenant, upload):
                await self._promote(tenant, upload)
        except MemoreeError as refusal:
            return refusal
        except (ObjectMissing, OutOfRange, PreconditionFailed):
            # Another worker was faster with the same upload, or its sender replaced it.
            if not await self._is_blob(tenant, upload):
                return not_as_declared(upload, "it was replaced while it was read", reason="replaced")
        return None

    async def _is_blob(self, tenant: str, upload: Upload) -> bool:
        """Raises `INVALID_REQUEST` when bytes of that digest are there, and are another number."""
        size = await BlobStore(self._store, tenant).size_of(upload.digest.hex())
        if size is not None and size != upload.size:
            raise not_as_declared(upload, f"what hashes to it has {size} bytes", reason="size_mismatch")
        return size is not None

    async def _promote(self, tenant: str, upload: Upload) -> None:
        """Only the version that was hashed is copied: whoever has the URL may replace the upload at any moment."""
        info = await self._uploads.sent(tenant, upload)
        if (found := await self._hash(info)) != upload.digest:
            raise not_as_declared(upload, f"it hashes to {found.hex()}", reason="digest_mismatch")
        reach("upload_hashed")
        await self._store.copy(info, blob_key(tenant, upload.digest.hex()))
        reach("upload_promoted")

    async def _hash(self, info: ObjectInfo) -> bytes:
        hasher = blake3()
        found = windows(
            self._store, info.key, 0, info.size, window_bytes=limits.VERIFICATION_WINDOW_BYTES, if_match=info.etag
        )
        async with aclosing(found):
            async for window in found:
                await asyncio.to_thread(hasher.update, window.body)
        return hasher.digest()

    async def _send_on(self, message: Message, verdict: _Verdict) -> None:
        body = message.body if verdict.refusal is None else refused(message.body, verdict.refusal)
        await self._queue.send(OutgoingMessage(body, group=verdict.tenant, dedup_id=f"{verdict.attempt_id}/verified"))
        reach("upload_sent_on")

    async def _tidy(self, tenant: str, upload_id: UploadId) -> None:
        try:
            await self._uploads.remove_content(tenant, upload_id)
        except ObjectStoreError as error:
            log.info("tenant %s: upload %s stays until it is swept: %s", tenant, upload_id, error)


_GIVEN_UP = MemoreeError(
    Code.INTERNAL_ERROR, "verifying the upload failed every time it was tried and is given up; nothing was stored"
)


async def sweep_all(store: ObjectStore, uploads: Uploads, now: datetime) -> None:
    """Remove the expired uploads of every tenant, and what broken writes left of large objects."""
    async for name in store.children(layout.TENANTS_PREFIX):
        tenant = name.removeprefix(layout.TENANTS_PREFIX).removesuffix("/")
        if removed := await uploads.sweep(tenant):
            log.info("tenant %s: %d objects of expired uploads were removed", tenant, removed)
    if aborted := await store.abort_unfinished(layout.TENANTS_PREFIX, before=now - WRITES_END_WITHIN):
        log.info("%d unfinished writes of large objects were given up", aborted)

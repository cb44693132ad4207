"""Uploads of the embedded profile: the bytes lie in its own directory, so a blob is made of them by a second name."""

from __future__ import annotations

from memoree import limits
from memoree.clock import Clock
from memoree.ids import UploadId
from memoree.objects import ObjectMissing, PreconditionFailed
from memoree.objects.blobs import LocalBlobStore
from memoree.objects.filesystem import FilesystemStore
from memoree.operations.content import StagedContent
from memoree.replication import layout
from memoree.uploads import Upload, check_open, not_as_declared, not_sent, read_declaration, unknown


class LocalUploads:
    """`memoree.uploads` without an event loop, for one tenant. Every method may raise `StoreUnavailable`."""

    def __init__(self, store: FilesystemStore, tenant: str, clock_now: Clock) -> None:
        self._store = store
        self._blobs = LocalBlobStore(store, tenant)
        self._tenant = tenant
        self._clock = clock_now

    def content_of(self, upload_id: UploadId) -> StagedContent:
        """The content of an upload, proven, and a blob from now on. The bytes leave the upload; its declaration stays,
        for others that name it.

        Raises `NOT_FOUND` for an upload that was never declared or has expired, `INVALID_REQUEST` for one that was not
        sent, or is not what was declared.
        """
        upload = self._find(upload_id)
        digest = upload.digest.hex()
        if self._blobs.size_of(digest) != upload.size:
            self._adopt(upload)
        self._store.delete_sync(layout.upload_content_key(self._tenant, upload_id))
        inline = upload.size <= limits.INLINE_BODY_BYTES_MAX
        data = self._blobs.read(digest, size=upload.size) if inline else None
        return StagedContent(upload.digest, upload.size, data, upload_id)

    def _find(self, upload_id: UploadId) -> Upload:
        check_open(upload_id, self._clock)
        try:
            found = self._store.get_sync(layout.upload_declaration_key(self._tenant, upload_id))
        except ObjectMissing:
            unknown(upload_id)
        assert found is not None, "a GET without a condition always has a body"
        return read_declaration(upload_id, found.body)

    def _adopt(self, upload: Upload) -> None:
        key = layout.upload_content_key(self._tenant, upload.upload_id)
        try:
            if (size := self._store.size_sync(key)) != upload.size:
                raise not_as_declared(upload, f"it has {size} bytes", reason="size_mismatch")
            self._blobs.adopt(key, upload.digest.hex())
        except ObjectMissing:
            raise not_sent(upload.upload_id) from None
        except PreconditionFailed:
            raise not_as_declared(upload, "it hashes to something else", reason="digest_mismatch") from None

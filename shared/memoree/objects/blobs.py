"""Immutable bytes addressed by their BLAKE3, per tenant, over any object store (design §5.1, §7).

Nothing is believed: what is read back is hashed again before anybody sees it. `BlobStore` is async;
`LocalBlobStore` is its synchronous counterpart over a directory, for the embedded profile.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict

from blake3 import blake3

from memoree.errors import Code, MemoreeError, shown
from memoree.objects import ObjectMissing, ObjectStore
from memoree.objects.filesystem import FilesystemStore

CACHE_BYTES_MAX = 32 * 1024 * 1024
CACHE_ENTRY_BYTES_MAX = 4 * 1024 * 1024
"""Larger blobs are not cached: one of them would push out everything else."""

_TENANT = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_tenant(name: str) -> str:
    """The tenant's name, or `CONFIG_ERROR`: `[A-Za-z0-9_.-]{1,128}` and not only dots (design §7)."""
    if _TENANT.fullmatch(name) is None or set(name) == {"."}:
        raise MemoreeError(
            Code.CONFIG_ERROR,
            f"{shown(name)} cannot name a tenant: 1 to 128 letters, digits, '_', '.' or '-', and not only dots",
        )
    return name


def tenant_directory_name(tenant: str) -> str:
    """The tenant's local directory: a hash, since `A` and `a` are one name on a case-insensitive disk."""
    return blake3(check_tenant(tenant).encode()).hexdigest(length=16)


def blob_digest(data: bytes) -> str:
    """64 lower-case hex digits."""
    return blake3(data).hexdigest()


def blob_prefix(tenant: str) -> str:
    return f"tenants/{check_tenant(tenant)}/blobs/b3/"


def blob_key(tenant: str, digest: str) -> str:
    """The key of a blob. Raises `ValueError` unless `digest` is 64 lower-case hex digits."""
    if _DIGEST.fullmatch(digest) is None:
        raise ValueError(f"not a BLAKE3 digest: {digest!r}")
    return f"{blob_prefix(tenant)}{digest[:2]}/{digest}"


def digest_in(tenant: str, key: str) -> str | None:
    """The digest of the blob under a key; `None` for an object that is no blob of the tenant's."""
    digest = key.rpartition("/")[2]
    return digest if _DIGEST.fullmatch(digest) is not None and blob_key(tenant, digest) == key else None


class BlobCache:
    """Least recently used blobs of all tenants, bounded in bytes; safe to share between threads."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._entry_bytes_max = min(CACHE_ENTRY_BYTES_MAX, bytes_max)
        self._blobs: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def bytes_held(self) -> int:
        return self._bytes

    def get(self, tenant: str, digest: str) -> bytes | None:
        with self._lock:
            if (data := self._blobs.get((tenant, digest))) is not None:
                self._blobs.move_to_end((tenant, digest))
            return data

    def put(self, tenant: str, digest: str, data: bytes) -> None:
        if len(data) > self._entry_bytes_max:
            return
        with self._lock:
            self._drop(tenant, digest)
            self._blobs[tenant, digest] = data
            self._bytes += len(data)
            while self._bytes > self._bytes_max:
                _, evicted = self._blobs.popitem(last=False)
                self._bytes -= len(evicted)

    def forget(self, tenant: str, digest: str) -> None:
        """Drop one blob: an erased one must not be served from memory."""
        with self._lock:
            self._drop(tenant, digest)

    def _drop(self, tenant: str, digest: str) -> None:
        if (data := self._blobs.pop((tenant, digest), None)) is not None:
            self._bytes -= len(data)


class BlobStore:
    """The blobs of one tenant. Every method may raise `StoreUnavailable`."""

    def __init__(self, store: ObjectStore, tenant: str, *, cache: BlobCache | None = None) -> None:
        self._store = store
        self._tenant = check_tenant(tenant)
        self._cache = cache

    async def put(self, data: bytes) -> str:
        """Store bytes and return their digest. Always writes, also when the blob is there: a fresh
        `Last-Modified` is what keeps the garbage collector away until a row cites it."""
        digest = blob_digest(data)
        await self._store.put(blob_key(self._tenant, digest), data)
        return digest

    async def exists(self, digest: str) -> bool:
        """Whether the store has the blob right now; never answered from the cache."""
        try:
            await self._store.head(blob_key(self._tenant, digest))
        except ObjectMissing:
            return False
        return True

    async def size_of(self, digest: str) -> int | None:
        """How many bytes the blob has; `None` when there is none. Never answered from the cache."""
        try:
            return (await self._store.head(blob_key(self._tenant, digest))).size
        except ObjectMissing:
            return None

    async def read(self, digest: str, *, size: int | None = None) -> bytes:
        """The bytes, proven to hash to `digest` (and to be `size` bytes). Raises `INTEGRITY_ERROR`."""
        if self._cache and (cached := self._cache.get(self._tenant, digest)) is not None:
            return _of_size(digest, cached, size)
        try:
            stored = await self._store.get(blob_key(self._tenant, digest))
        except ObjectMissing as error:
            raise missing(digest) from error
        assert stored is not None, "a GET without a condition always has a body"
        data = _proven(digest, stored.body, size)
        if self._cache:
            self._cache.put(self._tenant, digest, data)
        return data


class LocalBlobStore:
    """`BlobStore` without an event loop, over a directory; no cache, since the operating system has one."""

    def __init__(self, store: FilesystemStore, tenant: str) -> None:
        self._store = store
        self._tenant = check_tenant(tenant)

    def put(self, data: bytes) -> str:
        """As `BlobStore.put`."""
        digest = blob_digest(data)
        self._store.put_sync(blob_key(self._tenant, digest), data)
        return digest

    def exists(self, digest: str) -> bool:
        """As `BlobStore.exists`."""
        return self._store.exists_sync(blob_key(self._tenant, digest))

    def read(self, digest: str, *, size: int | None = None) -> bytes:
        """As `BlobStore.read`."""
        try:
            stored = self._store.get_sync(blob_key(self._tenant, digest))
        except ObjectMissing as error:
            raise missing(digest) from error
        assert stored is not None, "a GET without a condition always has a body"
        return _proven(digest, stored.body, size)

    def size_of(self, digest: str) -> int | None:
        """As `BlobStore.size_of`."""
        try:
            return self._store.size_sync(blob_key(self._tenant, digest))
        except ObjectMissing:
            return None

    def adopt(self, key: str, digest: str) -> None:
        """Make the object under `key` the blob too, if that is what it hashes to. Raises `ObjectMissing`,
        `PreconditionFailed`."""
        self._store.copy_sync(key, blob_key(self._tenant, digest), if_match=digest)

    def delete(self, digest: str) -> None:
        """Remove the blob; succeeds when there is none. Only the garbage collector may."""
        self._store.delete_sync(blob_key(self._tenant, digest))


def _proven(digest: str, data: bytes, size: int | None) -> bytes:
    check_digest(digest, blob_digest(data), len(data))
    return _of_size(digest, data, size)


def _of_size(digest: str, data: bytes, size: int | None) -> bytes:
    if size is not None:
        check_size(digest, len(data), size)
    return data


def check_digest(digest: str, found: str, size: int) -> None:
    """Raises `INTEGRITY_ERROR` unless the `size` bytes read hash to the blob's name."""
    if found != digest:
        raise MemoreeError(
            Code.INTEGRITY_ERROR,
            f"blob {digest} is damaged: its {size} bytes hash to {found}",
            details={"digest": digest, "reason": "digest_mismatch"},
        )


def check_size(digest: str, found: int, recorded: int) -> None:
    """Raises `INTEGRITY_ERROR` unless the blob has as many bytes as were recorded."""
    if found != recorded:
        raise MemoreeError(
            Code.INTEGRITY_ERROR,
            f"blob {digest} has {found} bytes where {recorded} were recorded",
            details={"digest": digest, "reason": "size_mismatch"},
        )


def missing(digest: str) -> MemoreeError:
    return MemoreeError(
        Code.INTEGRITY_ERROR,
        f"blob {digest} is missing from the object store",
        details={"digest": digest, "reason": "missing"},
    )

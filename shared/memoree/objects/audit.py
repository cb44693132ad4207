"""Reading every blob of a tenant and proving it: what `verify` asks of the store (machine protocol §4.36).

Faults are told, not raised, and nothing is kept: digests come in order, and blobs are hashed piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from memoree.objects import ObjectMissing, ObjectStoreError
from memoree.objects.blobs import blob_key, blob_prefix, digest_in
from memoree.objects.filesystem import FilesystemStore

MISSING = "is missing from the store"


class BlobRef(NamedTuple):
    """A blob that a revision needs."""

    digest: bytes
    size: int


@dataclass(frozen=True, slots=True)
class BlobFault:
    """`name` is the digest in hex, or the key of what is no blob."""

    name: str
    detail: str


class BlobAudit(Protocol):
    """The blobs of one tenant."""

    def faults(self, referenced: Iterator[BlobRef]) -> Iterator[BlobFault]:
        """What is wrong with the referenced blobs, which come in ascending order of digests; in a directory also with
        any other. Raises `StoreUnavailable` when a store beyond a network does not answer."""


class DirectoryAudit:
    """Every file is read once, referenced or not, beside the references in the same order."""

    def __init__(self, store: FilesystemStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    def faults(self, referenced: Iterator[BlobRef]) -> Iterator[BlobFault]:
        """As `BlobAudit.faults`, and raises nothing: whatever cannot be listed or read is a fault. A reference that no
        file was listed for is looked up by its name, which tells what stands there instead."""
        prefix = blob_prefix(self._tenant)
        wanted = next(referenced, None)
        try:
            for key in self._store.keys_sync(prefix):
                digest = digest_in(self._tenant, key)
                if digest is None:
                    yield BlobFault(key, "is not the name of a blob")
                    continue
                while wanted is not None and wanted.digest.hex() < digest:
                    yield from self._faults_of(wanted.digest.hex(), wanted.size)
                    wanted = next(referenced, None)
                if wanted is not None and wanted.digest.hex() == digest:
                    yield from self._faults_of(digest, wanted.size)
                    wanted = next(referenced, None)
                else:
                    yield from self._faults_of(digest, None)
        except ObjectStoreError as error:
            yield BlobFault(prefix, f"cannot be listed to its end: {error}")
        while wanted is not None:
            yield from self._faults_of(wanted.digest.hex(), wanted.size)
            wanted = next(referenced, None)

    def _faults_of(self, digest: str, size: int | None) -> Iterator[BlobFault]:
        """`size` is `None` for a blob that nothing refers to, which may also be gone since the directory was read."""
        try:
            info = self._store.head_sync(blob_key(self._tenant, digest))
        except ObjectMissing:
            if size is not None:
                yield BlobFault(digest, MISSING)
        except ObjectStoreError as error:
            yield BlobFault(digest, f"cannot be read: {error}")
        else:
            fault = difference(digest, info.etag, info.size, info.size if size is None else size)
            if fault is not None:
                yield fault


def difference(digest: str, found: str, size: int, size_wanted: int) -> BlobFault | None:
    """What is wrong with a blob whose bytes were read."""
    if size != size_wanted:
        return BlobFault(digest, f"has {size} bytes where {size_wanted} were recorded")
    if found != digest:
        return BlobFault(digest, f"is damaged, digest mismatch: its {size} bytes hash to {found}")
    return None

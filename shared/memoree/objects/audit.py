"""Reading every blob of a tenant and proving it: what `verify` asks of the store (machine protocol §4.36).

Faults are told, not raised, and nothing is kept: digests come in order, and blobs are hashed piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from memoree.objects import ObjectMissing, ObjectStoreError
from memoree.objects.blobs import blob_key, blob_prefix
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
        any other. Raises `StoreUnavailable` when the store does not answer."""


class DirectoryAudit:
    """Every file is read once, referenced or not, beside the references in the same order."""

    def __init__(self, store: FilesystemStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    def faults(self, referenced: Iterator[BlobRef]) -> Iterator[BlobFault]:
        """As `BlobAudit.faults`; a file that cannot be read is a fault."""
        wanted = next(referenced, None)
        for key in self._store.keys_sync(blob_prefix(self._tenant)):
            digest = key.rpartition("/")[2]
            if not self._is_blob(key, digest):
                yield BlobFault(key, "is not the name of a blob")
                continue
            while wanted is not None and wanted.digest.hex() < digest:
                yield BlobFault(wanted.digest.hex(), MISSING)
                wanted = next(referenced, None)
            ref = wanted if wanted is not None and wanted.digest.hex() == digest else None
            if (fault := self._fault(key, digest, ref)) is not None:
                yield fault
            if ref is not None:
                wanted = next(referenced, None)
        if wanted is not None:
            yield BlobFault(wanted.digest.hex(), MISSING)
        for ref in referenced:
            yield BlobFault(ref.digest.hex(), MISSING)

    def _is_blob(self, key: str, digest: str) -> bool:
        try:
            return blob_key(self._tenant, digest) == key
        except ValueError:
            return False

    def _fault(self, key: str, digest: str, ref: BlobRef | None) -> BlobFault | None:
        try:
            info = self._store.head_sync(key)
        except ObjectMissing:
            return BlobFault(digest, MISSING) if ref is not None else None
        except ObjectStoreError as error:
            return BlobFault(digest, f"cannot be read: {error}")
        return difference(digest, info.etag, info.size, ref.size if ref is not None else info.size)


def difference(digest: str, found: str, size: int, size_wanted: int) -> BlobFault | None:
    """What is wrong with a blob whose bytes were read."""
    if size != size_wanted:
        return BlobFault(digest, f"has {size} bytes where {size_wanted} were recorded")
    if found != digest:
        return BlobFault(digest, f"is damaged, digest mismatch: its {size} bytes hash to {found}")
    return None

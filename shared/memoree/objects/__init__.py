"""The object store as the rest of the program sees it: eight methods, one set of errors.

Adapters: `memoree.objects.filesystem` (a directory) and `memoree.objects.s3` (SeaweedFS, MinIO, S3).
Keys are `/`-separated, never end in `/` and never hold an empty, `.` or `..` segment (`check_key`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

KEY_BYTES_MAX = 1024


class ObjectStoreError(Exception):
    """Any failure of the object store."""


class ObjectMissing(ObjectStoreError):
    """There is no object under that key."""


class PreconditionFailed(ObjectStoreError):
    """`if_match` or `if_absent` did not hold. Also raised for `if_match` on a key that does not exist,
    and for the 409 that S3 answers when two conditional writes race."""


class StoreUnavailable(ObjectStoreError):
    """No answer, a timeout or a 5xx: for a write, whether it took effect is unknown."""


class ClockSkew(StoreUnavailable):
    """The store refused the request because this host's clock is too far from its own."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store says about one object. `etag` is opaque and usable as `if_match`."""

    key: str
    etag: str
    size: int
    last_modified: datetime


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's bytes; `date` is the store's own clock when it answered."""

    info: ObjectInfo
    body: bytes
    date: datetime


class ObjectStore(Protocol):
    """Every method may raise `StoreUnavailable`. Times are timezone-aware UTC by the store's clock."""

    async def get(self, key: str, *, if_none_match: str | None = None) -> StoredObject | None:
        """The object, or `None` when its ETag equals `if_none_match`. Raises `ObjectMissing`."""

    async def head(self, key: str) -> ObjectInfo:
        """Raises `ObjectMissing`."""

    async def put(
        self,
        key: str,
        body: bytes,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        timeout_seconds: float | None = None,
    ) -> str:
        """Store bytes durably and return the new ETag; never retried by the adapter when conditional.

        Raises `PreconditionFailed`. With `timeout_seconds`, gives up with `StoreUnavailable` (outcome unknown).
        """

    async def delete(self, key: str) -> None:
        """Remove the object; succeeds when there is none."""

    def list(self, prefix: str, *, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """Every object whose key starts with `prefix`, in ascending byte order of keys."""

    def presigned_delete(self, key: str, *, expires_seconds: int) -> str | None:
        """A URL that deletes the object until it expires; `None` where the store has no such thing."""

    async def close(self) -> None: ...


def check_key(key: str) -> str:
    """The key, or `ValueError`: stores disagree on empty segments, dots and trailing slashes (field fault 46)."""
    segments = key.split("/")
    if any(segment in ("", ".", "..") for segment in segments) or len(key.encode()) > KEY_BYTES_MAX or "\0" in key:
        raise ValueError(f"not a usable object key: {key!r}")
    return key

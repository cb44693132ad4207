"""The object store as the rest of the program sees it: one protocol, one set of errors.

Adapters: `memoree.objects.filesystem` (a directory) and `memoree.objects.s3` (SeaweedFS, MinIO, S3).
Keys are `/`-separated, never end in `/` and never hold an empty, `.` or `..` segment (`check_key`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from memoree.redaction import redacted

KEY_BYTES_MAX = 1024


class ObjectStoreError(Exception):
    """Any failure of the object store. Its message is told to callers, whatever a library put into it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(redacted(message))


class ObjectMissing(ObjectStoreError):
    """There is no object under that key."""


class PreconditionFailed(ObjectStoreError):
    """`if_match` or `if_absent` did not hold. Also raised for `if_match` on a key that does not exist,
    and for the 409 that S3 answers when two conditional writes race."""


class OutOfRange(ObjectStoreError):
    """The object ends before the range that was asked for begins."""


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


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """Some of an object's bytes, and how many it has in all."""

    body: bytes
    object_size: int


@dataclass(frozen=True, slots=True)
class PresignedPut:
    """A request that anybody may send until it expires: PUT with these headers and a body of the signed length."""

    url: str
    headers: Mapping[str, str]


def _nothing() -> None:
    """No progress is reported."""


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

    async def get_range(self, key: str, start: int, stop: int, *, if_match: str | None = None) -> ObjectRange:
        """Bytes `start` to `stop` (exclusive), fewer where the object ends before. `if_match` costs a directory
        a hash of the whole object. Raises `ObjectMissing`, `OutOfRange`, `PreconditionFailed`."""

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, size: int) -> None:
        """Store `size` bytes as they come, in bounded memory, and show them whole or not at all.

        What `chunks` raises is passed on; then, and with any other number of bytes (`ObjectStoreError`), the key is
        left as it was.
        """

    async def copy(self, source: ObjectInfo, target: str, *, progress: Callable[[], None] = _nothing) -> None:
        """Copy inside the store exactly the version that `source` describes, with a fresh `last_modified`; shown whole
        or not at all. `progress` is called as it gets on. Raises `ObjectMissing`, and `PreconditionFailed` when the
        source was replaced meanwhile."""

    async def delete(self, key: str) -> None:
        """Remove the object; succeeds when there is none."""

    def children(self, prefix: str) -> AsyncIterator[str]:
        """One level below a prefix that is empty or ends in `/`: keys, and prefixes that end in `/`, in any order."""

    async def abort_unfinished(self, prefix: str, *, before: datetime) -> int:
        """Give up writes of parts under `prefix` that began before then and never ended; how many there were."""

    def list(self, prefix: str, *, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """Every object whose key starts with `prefix`, in ascending byte order of keys."""

    def presigned_delete(self, key: str, *, expires_seconds: int) -> str | None:
        """A URL that deletes the object until it expires; `None` where the store has no such thing."""

    def presigned_put(self, key: str, *, size: int, expires_seconds: int) -> PresignedPut | None:
        """A PUT of exactly `size` bytes; `None` where the store has no such thing."""

    async def close(self) -> None: ...


def check_key(key: str) -> str:
    """The key, or `ValueError`: stores disagree on empty segments, dots and trailing slashes (field fault 46)."""
    segments = key.split("/")
    if any(segment in ("", ".", "..") for segment in segments) or len(key.encode()) > KEY_BYTES_MAX or "\0" in key:
        raise ValueError(f"not a usable object key: {key!r}")
    return key

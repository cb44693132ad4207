"""An object store in memory whose faults are scripted: those no real store can be made to show on demand."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import md5

from memoree.objects import (
    ObjectInfo,
    ObjectMissing,
    ObjectStoreError,
    PreconditionFailed,
    StoredObject,
    StoreUnavailable,
    check_key,
)


class Fault(StrEnum):
    """What happens to one request."""

    NONE = "none"
    BEFORE = "fails before it took effect"
    AFTER = "takes effect and its answer is lost"
    LATE = "fails, and takes effect after the next request"
    CONFLICT = "409: another conditional write was under way"
    REFUSED = "403"
    STALE = "answers with the version before the newest"


class MemoryStore:
    """`ObjectStore`; `faults` are used up one per request, `reads` by GET and `writes` by PUT."""

    def __init__(self, *, writes: Iterable[Fault] = (), reads: Iterable[Fault] = ()) -> None:
        self.versions: dict[str, list[bytes]] = {}
        """Every body an object had, oldest first."""
        self.now = datetime(2026, 3, 2, 20, 41, 7, tzinfo=UTC)
        self.writes, self.reads = deque(writes), deque(reads)
        self.requests: list[str] = []
        self.before_request: Callable[[str], None] = lambda _: None
        self._bodies: dict[str, tuple[bytes, datetime]] = {}
        self._late: list[Callable[[], None]] = []

    # --- the protocol -------------------------------------------------------------------------------------------

    async def get(self, key: str, *, if_none_match: str | None = None) -> StoredObject | None:
        self._begin(f"GET {key}")
        fault = self.reads.popleft() if self.reads else Fault.NONE
        if fault in (Fault.BEFORE, Fault.AFTER, Fault.LATE):
            raise StoreUnavailable("scripted: no answer")
        if fault in (Fault.CONFLICT, Fault.REFUSED):
            raise ObjectStoreError("scripted: 403")
        if key not in self._bodies:
            raise ObjectMissing(key)
        body, modified = self._bodies[key]
        if fault is Fault.STALE and len(self.versions[key]) > 1:
            body = self.versions[key][-2]
        if _etag(body) == if_none_match:
            return None
        return StoredObject(ObjectInfo(key, _etag(body), len(body), modified), body, self.now)

    async def head(self, key: str) -> ObjectInfo:
        self._begin(f"HEAD {key}")
        if key not in self._bodies:
            raise ObjectMissing(key)
        body, modified = self._bodies[key]
        return ObjectInfo(key, _etag(body), len(body), modified)

    async def put(
        self,
        key: str,
        body: bytes,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        timeout_seconds: float | None = None,
    ) -> str:
        self._begin(f"PUT {key}")
        fault = self.writes.popleft() if self.writes else Fault.NONE
        if fault is Fault.BEFORE:
            raise StoreUnavailable("scripted: no answer")
        if fault is Fault.CONFLICT:
            raise PreconditionFailed("scripted: 409")
        if fault is Fault.REFUSED:
            raise ObjectStoreError("scripted: 403")
        if fault is Fault.LATE:
            self._late.append(lambda: self._write_if_it_may(key, body, if_match, if_absent))
            raise StoreUnavailable("scripted: no answer")
        self._write(key, body, if_match, if_absent)
        if fault is Fault.AFTER:
            raise StoreUnavailable("scripted: no answer")
        return _etag(body)

    async def delete(self, key: str) -> None:
        self._begin(f"DELETE {key}")
        self._bodies.pop(key, None)

    async def list(self, prefix: str, *, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        self._begin(f"LIST {prefix}")
        for key in sorted(self._bodies):
            if key.startswith(prefix) and key > (start_after or ""):
                body, modified = self._bodies[key]
                yield ObjectInfo(key, _etag(body), len(body), modified)

    async def children(self, prefix: str) -> AsyncIterator[str]:
        self._begin(f"CHILDREN {prefix}")
        below = {key.removeprefix(prefix).partition("/") for key in self._bodies if key.startswith(prefix)}
        for name in {f"{prefix}{first}{slash}" for first, slash, _ in below}:
            yield name

    async def abort_unfinished(self, prefix: str, *, before: datetime) -> int:
        return 0

    def presigned_delete(self, key: str, *, expires_seconds: int) -> str | None:
        return None

    async def close(self) -> None: ...

    # --- for tests ----------------------------------------------------------------------------------------------

    def place(self, key: str, body: bytes) -> None:
        """As a write by somebody else."""
        self._write(key, body, None, False)

    def body(self, key: str) -> bytes:
        return self._bodies[key][0]

    def remove(self, key: str) -> None:
        del self._bodies[key]

    def keys(self, prefix: str = "") -> list[str]:
        return [key for key in sorted(self._bodies) if key.startswith(prefix)]

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _begin(self, request: str) -> None:
        self.requests.append(request)
        self.before_request(request)
        late, self._late = self._late, []
        for effect in late:
            effect()

    def _write_if_it_may(self, key: str, body: bytes, if_match: str | None, if_absent: bool) -> None:
        try:
            self._write(key, body, if_match, if_absent)
        except PreconditionFailed:
            return

    def _write(self, key: str, body: bytes, if_match: str | None, if_absent: bool) -> None:
        present = self._bodies.get(check_key(key))
        if (if_absent and present is not None) or (
            if_match is not None and (present is None or _etag(present[0]) != if_match)
        ):
            raise PreconditionFailed(f"scripted: 412 for {key}")
        self._bodies[key] = (body, self.now)
        self.versions.setdefault(key, []).append(body)


def _etag(body: bytes) -> str:
    return md5(body, usedforsecurity=False).hexdigest()

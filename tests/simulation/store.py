"""A simulated object store: strongly consistent, as S3 is, and as unreliable as a network makes it.

A request takes effect at one moment and is answered at a later one. It may be lost, its answer may be lost, and a
request whose client gave up may take effect long after. Lists come in pages, each of its own moment.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple, TypeVar

from blake3 import blake3

from memoree.objects import (
    ObjectInfo,
    ObjectMissing,
    ObjectRange,
    ObjectStoreError,
    PreconditionFailed,
    StoredObject,
    StoreUnavailable,
    check_key,
)
from simulation.loop import Process, SimulatedLoop
from simulation.trace import Trace
from simulation.virtual_time import store_time

Result = TypeVar("Result")

REQUEST_SECONDS_MAX = 2.5
UNTROUBLED = "selftest/"
"""What the proof of the store makes of trouble is told by its own tests."""
LATE_SECONDS_MAX = 8.0
"""After its client gave up, a request may still take effect for so long."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How likely one request meets which trouble; `slow` is for answers that take up to a second."""

    lost: float = 0.0
    answer_lost: float = 0.0
    late: float = 0.0
    refused: float = 0.0
    """503, and 409 for conditional writes."""
    slow: float = 0.02

    @property
    def trouble(self) -> float:
        return self.lost + self.answer_lost + self.late + self.refused


class Version(NamedTuple):
    body: bytes
    etag: str
    modified: datetime


class Bucket:
    """What the store holds."""

    def __init__(self, loop: SimulatedLoop, random: Random, trace: Trace) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.weather = Weather()
        self.on_write: list[Callable[[str, bytes | None, bytes, Process], None]] = []
        """Told the key, the body before and after, and who wrote it, at the moment of the effect."""
        self.page_keys_max = 1000
        self.objects: dict[str, Version] = {}
        self._keys: list[str] = []

    def body(self, key: str) -> bytes | None:
        found = self.objects.get(key)
        return found.body if found is not None else None

    def keys(self, prefix: str, start_after: str = "") -> list[str]:
        found = []
        for position in range(bisect_right(self._keys, max(start_after, prefix[:-1])), len(self._keys)):
            key = self._keys[position]
            if key.startswith(prefix):
                found.append(key)
            elif key > prefix:
                break
        return found

    def leave(self, key: str, body: bytes, *, age: timedelta) -> None:
        """Something that has been lying there for so long."""
        self.put(key, body, None, False, self.loop.world)
        self.objects[key] = self.objects[key]._replace(modified=store_time(self.loop) - age)

    def put(self, key: str, body: bytes, if_match: str | None, if_absent: bool, by: Process) -> str:
        present = self.objects.get(check_key(key))
        if (if_absent and present is not None) or (
            if_match is not None and (present is None or present.etag != if_match)
        ):
            raise PreconditionFailed(f"412 for {key}")
        version = Version(body, blake3(body).hexdigest(16), store_time(self.loop))
        if present is None:
            insort(self._keys, key)
        self.objects[key] = version
        for watcher in self.on_write:
            watcher(key, present.body if present is not None else None, body, by)
        return version.etag

    def delete(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            self._keys.remove(key)

    def get(self, key: str) -> Version:
        try:
            return self.objects[key]
        except KeyError:
            raise ObjectMissing(key) from None

    def client(self, process: Process) -> StoreClient:
        return StoreClient(self, process)

    def presigning_client(self, process: Process) -> PresigningClient:
        return PresigningClient(self, process)


class StoreClient:
    """`ObjectStore`, for one process."""

    def __init__(self, bucket: Bucket, process: Process) -> None:
        self._bucket = bucket
        self._process = process

    async def get(self, key: str, *, if_none_match: str | None = None) -> StoredObject | None:
        def effect() -> StoredObject | None:
            found = self._bucket.get(key)
            if found.etag == if_none_match:
                return None
            info = ObjectInfo(key, found.etag, len(found.body), found.modified)
            return StoredObject(info, found.body, store_time(self._bucket.loop))

        return await self._request("GET", key, effect)

    async def get_range(self, key: str, start: int, stop: int, *, if_match: str | None = None) -> ObjectRange:
        def effect() -> ObjectRange:
            found = self._bucket.get(key)
            if if_match is not None and found.etag != if_match:
                raise PreconditionFailed(f"412 for {key}")
            return ObjectRange(found.body[start:stop], len(found.body))

        return await self._request("GET", key, effect)

    async def head(self, key: str) -> ObjectInfo:
        def effect() -> ObjectInfo:
            found = self._bucket.get(key)
            return ObjectInfo(key, found.etag, len(found.body), found.modified)

        return await self._request("HEAD", key, effect)

    async def put(
        self,
        key: str,
        body: bytes,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        timeout_seconds: float | None = None,
    ) -> str:
        return await self._request(
            "PUT",
            key,
            lambda: self._bucket.put(key, body, if_match, if_absent, self._process),
            seconds=timeout_seconds or REQUEST_SECONDS_MAX,
            is_conditional=if_absent or if_match is not None,
        )

    async def delete(self, key: str) -> None:
        await self._request("DELETE", key, lambda: self._bucket.delete(key))

    async def list(self, prefix: str, *, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        after = start_after or ""
        while True:
            page = await self._request("LIST", prefix, lambda after=after: self._page(prefix, after))
            for info in page:
                yield info
            if len(page) < self._bucket.page_keys_max:
                return
            after = page[-1].key

    def _page(self, prefix: str, after: str) -> list[ObjectInfo]:
        found = []
        for key in self._bucket.keys(prefix, after)[: self._bucket.page_keys_max]:
            version = self._bucket.objects[key]
            found.append(ObjectInfo(key, version.etag, len(version.body), version.modified))
        return found

    async def children(self, prefix: str) -> AsyncIterator[str]:
        def effect() -> list[str]:
            parts = (key.removeprefix(prefix).partition("/") for key in self._bucket.keys(prefix))
            return list(dict.fromkeys(f"{prefix}{first}{slash}" for first, slash, _ in parts))

        for name in await self._request("LIST", prefix, effect):
            yield name

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, size: int) -> None:
        body = b"".join([chunk async for chunk in chunks])
        if len(body) != size:
            raise ObjectStoreError(f"{len(body)} bytes instead of {size}")
        await self.put(key, body)

    async def copy(self, source: ObjectInfo, target: str, *, progress: Callable[[], None] = lambda: None) -> None:
        def effect() -> None:
            found = self._bucket.get(source.key)
            if found.etag != source.etag:
                raise PreconditionFailed(f"412 for {source.key}")
            self._bucket.put(target, found.body, None, False, self._process)

        await self._request("COPY", target, effect)

    async def abort_unfinished(self, prefix: str, *, before: datetime) -> int:
        return 0

    def presigned_delete(self, key: str, *, expires_seconds: int) -> str | None:
        return None

    def presigned_put(self, key: str, *, size: int, expires_seconds: int) -> None:
        return None

    async def close(self) -> None:
        return None

    async def _request(
        self,
        verb: str,
        key: str,
        effect: Callable[[], Result],
        *,
        seconds: float = REQUEST_SECONDS_MAX,
        is_conditional: bool = False,
    ) -> Result:
        """Waits for the answer, or until the client gives up."""
        loop, random, weather = self._bucket.loop, self._bucket.random, self._bucket.weather
        if self._process.before_request is not None and self._process.before_request(verb, key):
            await asyncio.sleep(0)
        if loop.is_ending:
            raise StoreUnavailable("the run is over")
        request = _Request(self._bucket, self._process, f"{verb} {key}", effect, loop.create_future())
        there, back = 0.001 + random.random() * 0.004, 0.001 + random.random() * 0.004
        luck = random.random()
        if key.startswith(UNTROUBLED):
            pass
        elif luck < weather.slow:
            there, back = random.random(), random.random()
        elif (luck := luck - weather.slow) < weather.trouble:
            return await request.troubled(weather, luck, there, seconds, is_conditional=is_conditional)
        loop.in_world(there, request.take_effect, back)
        return await request.answered(seconds if there + back > seconds else None)


class PresigningClient(StoreClient):
    """For whoever sends deletes that expire."""

    def presigned_delete(self, key: str, *, expires_seconds: int) -> str:
        return f"{self._bucket.loop.now + expires_seconds} {key}"

    async def send_presigned(self, url: str) -> None:
        """Obeyed until it expires, and refused from then on, whenever the store gets to it."""
        expires_at, key = url.split(" ", 1)

        def effect() -> None:
            if self._bucket.loop.now > float(expires_at):
                raise ObjectStoreError(f"403 for {key}")
            self._bucket.delete(key)

        await self._request("DELETE", key, effect)


class _Request:
    """One request on its way."""

    __slots__ = ("_answer", "_bucket", "_effect", "_process", "_what")

    def __init__(
        self,
        bucket: Bucket,
        process: Process,
        what: str,
        effect: Callable[[], Any],
        answer: asyncio.Future[Any],
    ) -> None:
        self._bucket, self._process, self._what, self._effect, self._answer = bucket, process, what, effect, answer

    def take_effect(self, back: float | None) -> None:
        """`back` is how long the answer takes, if there is to be one."""
        result, error = None, None
        try:
            result = self._effect()
        except ObjectStoreError as raised:
            error = raised
        self._bucket.trace.note(self._process, self._what, error, back is None)
        if back is not None:
            self._bucket.loop.in_world(back, self._arrive, result, error)

    def _arrive(self, result: Any, error: Exception | None) -> None:
        if self._answer.done():
            return
        if error is not None:
            self._answer.set_exception(error)
        else:
            self._answer.set_result(result)

    def _give_up(self) -> None:
        self._arrive(None, StoreUnavailable(f"no answer to {self._what}"))

    async def answered(self, seconds: float | None) -> Any:
        if seconds is not None:
            self._bucket.loop.in_world(seconds, self._give_up)
        return await self._answer

    async def troubled(
        self, weather: Weather, luck: float, there: float, seconds: float, *, is_conditional: bool
    ) -> Any:
        loop, random = self._bucket.loop, self._bucket.random
        if luck < weather.refused:
            refusal = PreconditionFailed("409") if is_conditional and random.random() < 0.5 else StoreUnavailable("503")
            self._bucket.trace.note(self._process, self._what, refusal, False)
            loop.in_world(there, self._arrive, None, refusal)
            return await self._answer
        if (luck := luck - weather.refused) < weather.answer_lost:
            loop.in_world(there, self.take_effect, None)
        elif (luck := luck - weather.answer_lost) < weather.late:
            loop.in_world(seconds + random.random() * LATE_SECONDS_MAX, self.take_effect, None)
        else:
            self._bucket.trace.note(self._process, f"{self._what} is lost", None, False)
        # A connection that breaks is noticed at once, a host that is gone only when patience ends.
        return await self.answered(seconds if random.random() < 0.5 else min(seconds, random.random()))

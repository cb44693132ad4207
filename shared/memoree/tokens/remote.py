"""A tokens file that is kept by another service: asked for now and then, never by a request that needs it."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from memoree.errors import Code, MemoreeError, invalid
from memoree.objects import ObjectMissing, ObjectStoreError, StoreUnavailable
from memoree.tokens.source import TokensSource

ANSWER_SECONDS_MAX = 3.0
"""For one look at the service; who waits for it is not kept longer."""
RETRY_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A document and its version, opaque."""

    version: str
    raw: bytes


class RemoteSource(TokensSource):
    """What the service said last counts until it says something else, at most `stale_seconds_max` after it was asked:
    later nobody knows which tokens were withdrawn. That it has no such document counts at once."""

    every_seconds: float
    stale_seconds_max: float

    def __init__(
        self, *, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._clocks = (wall, monotonic)
        self._asking = asyncio.Lock()
        self._version: str | None = None
        """Of the document that counts; `None` while there is none."""
        self._untold: bytes | None = None
        """That document until it is looked at: it may hold tokens."""
        self._fault = "it was not read yet"
        self._asked_at: tuple[float, ...] | None = None
        """By both clocks: one may be set back, the other need not count the time a host was frozen."""
        self._answered_at: tuple[float, ...] | None = None

    @abstractmethod
    async def fetch(self, version: str | None) -> Fetched | None:
        """The document, or `None` while it has that version. Raises `ObjectStoreError`: `StoreUnavailable` for no
        answer, any other for an answer that there is none to be had."""

    @property
    def answered(self) -> bool:
        return self._answered_at is not None

    def look(self) -> bytes | None:
        if self._age(self._answered_at) > self.stale_seconds_max:
            self._version = None
        if self._version is None:
            invalid(self._fault or "it was not read lately")
        untold, self._untold = self._untold, None
        return untold

    async def refresh(self, *, if_due: bool = False) -> None:
        async with self._asking:
            if if_due and self._age(self._asked_at) < self._interval:
                return
            self._asked_at = asked_at = self._now()
            try:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    found = await self.fetch(self._version)
            except (StoreUnavailable, TimeoutError) as error:
                self._failed("it cannot be read: no answer", error)
                return
            except ObjectMissing as error:
                self._version = None
                self._failed("there is none", error)
            except ObjectStoreError as error:
                self._version = None
                self._failed("it cannot be read: refused", error)
            except Exception as error:
                log.exception("the tokens file cannot be read")
                self._failed("it cannot be read", error)
                return
            else:
                self._fault = ""
                if found is not None:
                    self._version, self._untold = found.version, found.raw
            self._answered_at = asked_at

    def _failed(self, fault: str, error: Exception) -> None:
        """Told in full to the log alone, once; everybody may ask for readiness."""
        if fault != self._fault:
            log.warning("the tokens file: %s (%s)", fault, error or type(error).__name__)
        self._fault = fault

    @property
    def _interval(self) -> float:
        return min(self.every_seconds, RETRY_SECONDS) if self._fault else self.every_seconds

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        async with self.opened():
            following = asyncio.create_task(self._follow(), name="tokens")
            try:
                yield
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self.refresh()

    def _now(self) -> tuple[float, ...]:
        return tuple(clock() for clock in self._clocks)

    def _age(self, then: tuple[float, ...] | None) -> float:
        """Seconds since then, by whichever clock counts more of them."""
        return float("inf") if then is None else max(now - at for now, at in zip(self._now(), then, strict=True))


def unusable(error: ObjectStoreError) -> MemoreeError:
    """For who administers it."""
    code = Code.TRANSPORT_ERROR if isinstance(error, StoreUnavailable) else Code.CONFIG_ERROR
    return MemoreeError(code, f"the tokens file cannot be used: {error}")

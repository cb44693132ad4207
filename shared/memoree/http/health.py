"""`/livez`, `/readyz` and `/healthz`: three questions, none of which needs a token.

Is the process alive; would a write work right now; is this the service and which version. Only `/readyz` touches
the store, through checks that really write, read and delete, run at most every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from memoree import __version__
from memoree.http.answers import json_answer
from memoree.http.auth import Tokens
from memoree.http.observation import CODE_OK, observation
from memoree.http.services import ServiceHolder
from memoree.service import Check

READINESS_CACHE_SECONDS = 3.0
READINESS_TIMEOUT_SECONDS = 2.0
DETAIL_CHARS_MAX = 300
CODE_NOT_READY = "not_ready"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    checks: tuple[Check, ...] = ()

    @property
    def ready(self) -> bool:
        return all(check.ok for check in self.checks)

    def to_wire(self) -> dict[str, Any]:
        checks = {
            check.name: {"ok": check.ok, "detail": check.detail[:DETAIL_CHARS_MAX], "measures": check.measures}
            for check in self.checks
        }
        return {"ready": self.ready, "version": __version__, "checks": checks}


class Readiness:
    """The service's checks, asked by one task at a time however many probes wait for it.

    A check that hangs makes the report red after the timeout and is waited for again by the next probe, so that a
    stuck store never gathers stuck threads.
    """

    def __init__(
        self,
        services: ServiceHolder,
        tokens: Tokens | None,
        *,
        cache_seconds: float = READINESS_CACHE_SECONDS,
        timeout_seconds: float = READINESS_TIMEOUT_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._services = services
        self._tokens = tokens
        self._cache_seconds = cache_seconds
        self._timeout_seconds = timeout_seconds
        self._monotonic = monotonic
        self._running: asyncio.Task[tuple[Check, ...]] | None = None
        self._checks: tuple[Check, ...] = ()
        self._fresh_until = 0.0

    @property
    def last_checks(self) -> tuple[Check, ...]:
        return self._checks

    async def report(self) -> Report:
        """Never raises; the tokens file is looked at every time, the store's checks are cached."""
        if self._monotonic() >= self._fresh_until:
            await self._ask()
        own = () if self._tokens is None else (self._tokens.check(),)
        return Report(self._checks + own)

    async def _ask(self) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._service_checks())
        asked = self._running
        await asyncio.wait({asked}, timeout=self._timeout_seconds)
        if asked.done():
            if asked is self._running:
                self._running = None
                self._checks = asked.result()
                self._fresh_until = self._monotonic() + self._cache_seconds
        else:
            self._checks = (Check("service", ok=False, detail=f"no answer within {self._timeout_seconds:g} s"),)

    async def _service_checks(self) -> tuple[Check, ...]:
        if not self._services.open:
            return (Check("service", ok=False, detail="it is starting or stopping"),)
        try:
            return tuple(await self._services.service.readiness())
        except Exception as error:
            log.exception("the readiness checks failed")
            return (Check("service", ok=False, detail=f"the checks failed: {type(error).__name__}"),)

    async def close(self) -> None:
        """Stop waiting for a check that still runs."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running


class ReadyEndpoint:
    """200 or 503 with `{"ready", "version", "checks": {name: {"ok", "detail", "measures"}}}`."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        report = await self._readiness.report()
        observation(scope).code = CODE_OK if report.ready else CODE_NOT_READY
        await json_answer(report.to_wire(), 200 if report.ready else 503).send(send)


class FixedEndpoint:
    """One and the same JSON document, as long as the process lives."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._answer = json_answer(document)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        observation(scope).code = CODE_OK
        await self._answer.send(send)


def livez() -> FixedEndpoint:
    return FixedEndpoint({"ok": True})


def healthz() -> FixedEndpoint:
    return FixedEndpoint({"ok": True, "version": __version__})

"""The gate before every authenticated route: bearer token first, then the tenant's rate."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Scope

from memoree.errors import Code, MemoreeError
from memoree.http.answers import HeaderList, HttpRefusal
from memoree.http.auth import SCOPES_ALL, Principal, Tokens
from memoree.http.metrics import Metrics
from memoree.http.observation import observation
from memoree.http.ratelimit import Limiter
from memoree.http.settings import HttpSettings


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that may go on, and the headers every answer to it carries."""

    principal: Principal
    headers: HeaderList = ()


class Gate:
    """Without a tokens file everyone who reaches the door is the local user, and nothing is limited."""

    def __init__(self, settings: HttpSettings, metrics: Metrics) -> None:
        self._metrics = metrics
        self._local = Principal(settings.tenant_without_tokens, SCOPES_ALL)
        self.tokens: Tokens | None = None
        self._limiter: Limiter | None = None
        if settings.tokens_file is not None:
            self.tokens = Tokens(settings.tokens_file, only_tenant=settings.only_tenant)
            self._limiter = Limiter(settings.rate_per_second, settings.rate_burst, processes=settings.processes)

    def admit(self, scope: Scope, *, needs: str | None = None) -> Admission:
        """Raises `HttpRefusal`: `UNAUTHENTICATED`, which spends nothing, or `RATE_LIMITED`. A token scope that is
        known to be needed before the body is read is judged before the rate: `FORBIDDEN`, as a `MemoreeError`."""
        if self.tokens is None or self._limiter is None:
            return Admission(self._local)
        principal = self.tokens.authenticate(scope)
        observation(scope).tenant = principal.tenant
        if needs is not None:
            principal.require(needs)
        decision = self._limiter.take(principal.tenant)
        if not decision.allowed:
            self._metrics.rate_limited.labels(principal.tenant).inc()
            error = MemoreeError(
                Code.RATE_LIMITED,
                "too many requests of this tenant; wait and send it again",
                retry_after_seconds=decision.retry_after_seconds,
            )
            raise HttpRefusal(error, headers=decision.headers())
        return Admission(principal, decision.headers())

    def require(self, admission: Admission, scope_name: str) -> None:
        """Raises `FORBIDDEN` and gives the spent token back."""
        try:
            admission.principal.require(scope_name)
        except MemoreeError:
            if self._limiter is not None:
                self._limiter.give_back(admission.principal.tenant)
            raise

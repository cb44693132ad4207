"""The gate before every authenticated route: bearer token first, then the tenant's rate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass

from starlette.types import Scope

from memoree.errors import Code, MemoreeError
from memoree.http.answers import ADMIN_PATH, HeaderList, HttpRefusal
from memoree.http.auth import SCOPES_ALL, Principal, Tokens
from memoree.http.metrics import Metrics
from memoree.http.observation import observation
from memoree.http.ratelimit import Granted, Limiter
from memoree.http.settings import HttpSettings
from memoree.tokens.document import OPERATOR_TENANT


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that may go on, and the headers every answer to it carries."""

    principal: Principal
    headers: HeaderList = ()


class Gate:
    """Without a tokens file everyone who reaches the door is the local user, and nothing is limited."""

    def __init__(self, settings: HttpSettings, metrics: Metrics, granted: Granted = lambda _tenant: None) -> None:
        self._metrics = metrics
        self._local = Principal(settings.tenant_without_tokens, SCOPES_ALL)
        self.tokens: Tokens | None = None
        self._limiter: Limiter | None = None
        if settings.tokens_file is not None:
            self.tokens = Tokens(settings.tokens_file, only_tenant=settings.only_tenant)
            self._limiter = Limiter(
                settings.rate_per_second,
                settings.rate_burst,
                processes=settings.processes,
                granted=lambda tenant: None if tenant == OPERATOR_TENANT else granted(tenant),
            )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """While it is open, the tokens follow their file wherever it is."""
        async with self.tokens.opened(followed=True) if self.tokens is not None else nullcontext():
            yield

    def admit(self, scope: Scope, *, needs: str | None = None) -> Admission:
        """Raises `HttpRefusal`: `UNAUTHENTICATED`, which spends nothing, `FORBIDDEN` for an operator, who reaches no
        tenant's data, or `RATE_LIMITED`. A token scope that is known to be needed before the body is read is judged
        before the rate: `FORBIDDEN`, as a `MemoreeError`."""
        principal = self._principal(scope)
        if principal.operator:
            raise HttpRefusal(MemoreeError(Code.FORBIDDEN, f"an operator token opens nothing but {ADMIN_PATH}/"))
        if needs is not None:
            principal.require(needs)
        return self._limited(principal)

    def admit_administrator(self, scope: Scope) -> Admission:
        """The one door that operators pass. Raises `HttpRefusal`: `UNAUTHENTICATED` and `FORBIDDEN`, which spend
        nothing, or `RATE_LIMITED`."""
        principal = self._principal(scope)
        try:
            principal.require("admin")
        except MemoreeError as error:
            raise HttpRefusal(error) from error
        return self._limited(principal)

    def _principal(self, scope: Scope) -> Principal:
        if self.tokens is None:
            return self._local
        principal = self.tokens.authenticate(scope)
        observation(scope).tenant = principal.tenant
        return principal

    def _limited(self, principal: Principal) -> Admission:
        if self._limiter is None:
            return Admission(principal)
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

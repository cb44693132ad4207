"""Who is asking: bearer tokens, and the tokens file that knows them (MemoryProtocol §2).

Only digests are kept. While the file cannot be had, or is none, no token is accepted.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import get_args

from starlette.types import Scope

from memoree import clock
from memoree.clock import Clock
from memoree.envelope import AmbientContext
from memoree.errors import Code, MemoreeError
from memoree.http.answers import HttpRefusal, header_values
from memoree.operations import registry
from memoree.service import Check
from memoree.tokens.document import OPERATOR_TENANT, TOKEN_BYTES_MAX, TokenEntry, decode, tokens_of
from memoree.tokens.places import TokensPlace
from memoree.tokens.sources import source_of

LOOK_SECONDS = 1.0
SCOPES_ALL: frozenset[str] = frozenset(get_args(registry.Scope))
CONTEXT_DEFAULT = AmbientContext(workspace_id="wsp_default", project_id="prj_default")
_LOOKUP_BYTES = 16
_CHALLENGE = ((b"www-authenticate", b"Bearer"),)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking. `context` is the ambient context of doors whose requests carry none; `/v1/call` does not use
    it, because a machine-protocol envelope brings its own."""

    tenant: str
    scopes: frozenset[str]
    context: AmbientContext = CONTEXT_DEFAULT
    agent: str | None = None
    expires_at: str | None = None
    """In stored form."""

    @property
    def operator(self) -> bool:
        """Whether it administers every tenant, and reads none."""
        return self.tenant == OPERATOR_TENANT

    @property
    def context_given(self) -> AmbientContext | None:
        """The context the tokens file names for it; unlike `context` it has no default."""
        return None if self.context is CONTEXT_DEFAULT else self.context

    def require(self, scope: str) -> None:
        """Raises `FORBIDDEN`, naming the scope the token lacks."""
        if scope not in self.scopes:
            raise MemoreeError(
                Code.FORBIDDEN, f"the token lacks the scope `{scope}`", details={"required_scope": scope}
            )


_NOBODY: tuple[bytes, Principal | None] = (bytes(32), None)


@dataclass(frozen=True, slots=True)
class _Table:
    """The file as last read. `fault` says why it opens no door."""

    principals: dict[bytes, tuple[bytes, Principal]] = field(default_factory=dict)
    """By the first half of the token's digest, with the whole digest to compare in constant time."""
    ignored: int = 0
    fault: str = ""


class Tokens:
    """A tokens file, looked at again at most once a second. `only_tenant` is the one there is."""

    def __init__(
        self,
        place: TokensPlace,
        *,
        only_tenant: str | None = None,
        clock_now: Clock = clock.utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source_of(place)
        self.only_tenant = only_tenant
        self._clock = clock_now
        self._monotonic = monotonic
        self._table = _Table(fault="it was not read yet")
        self._looked_at = monotonic()
        self._look()

    def authenticate(self, scope: Scope) -> Principal:
        """The principal of the request's bearer token. Raises an `UNAUTHENTICATED` refusal."""
        self._look_again_if_due()
        digest = _bearer_digest(scope)
        stored_digest, principal = self._table.principals.get(digest[:_LOOKUP_BYTES], _NOBODY)
        if not hmac.compare_digest(digest, stored_digest) or principal is None:
            raise _unauthenticated("the bearer token is not valid")
        if principal.expires_at is not None and principal.expires_at <= clock.stored(self._clock()):
            raise _unauthenticated("the bearer token has expired")
        return principal

    def names(self, tenant: str) -> bool:
        """Whether some token is of this tenant, and not of all."""
        self._look_again_if_due()
        found = (principal for _, principal in self._table.principals.values() if not principal.operator)
        return any(principal.tenant == tenant for principal in found)

    def check(self) -> Check:
        """Red while no token can be accepted because of the file."""
        self._look_again_if_due()
        table = self._table
        if table.fault:
            return Check("tokens", ok=False, detail=table.fault)
        if not table.principals:
            return Check("tokens", ok=False, detail="the tokens file holds no token that can be accepted")
        detail = f"{len(table.principals)} tokens"
        return Check("tokens", ok=True, detail=f"{detail}, {table.ignored} ignored" if table.ignored else detail)

    @asynccontextmanager
    async def opened(self, *, followed: bool) -> AsyncIterator[None]:
        """Around everything that asks for tokens. `followed`: what changes elsewhere is seen without `refresh`."""
        async with self.source.followed() if followed else self.source.opened():
            self._look()
            yield

    def require_an_answer(self) -> None:
        """Raises `CONFIG_ERROR` as long as nobody said yet what the tokens are: to close the doors by that would tell
        clients that theirs are withdrawn."""
        if not self.source.answered:
            raise MemoreeError(Code.CONFIG_ERROR, f"the tokens file: {self._table.fault}")

    async def refresh(self, *, if_due: bool = False) -> None:
        """See now what changed elsewhere; `if_due`: unless that was done lately."""
        await self.source.refresh(if_due=if_due)
        self._look()

    def _look_again_if_due(self) -> None:
        if self._monotonic() - self._looked_at >= LOOK_SECONDS:
            self._look()

    def _look(self) -> None:
        self._looked_at = self._monotonic()
        try:
            if (raw := self.source.look()) is not None:
                self._table = self._read(raw)
        except (OSError, MemoreeError, ValueError) as error:
            known, self._table = self._table.fault, _Table(fault=_fault(error))
            if self._table.fault != known:
                log.error("the tokens file opens no door: %s", self._table.fault)

    def _read(self, raw: bytes) -> _Table:
        principals: dict[bytes, tuple[bytes, Principal]] = {}
        document = decode(raw)
        for position, found in enumerate(tokens_of(document, only_tenant=self.only_tenant), start=1):
            if isinstance(found, MemoreeError):
                log.error("entry %d of the tokens file is ignored: %s", position, found.message)
            else:
                principals[found.digest[:_LOOKUP_BYTES]] = (found.digest, _principal(found.entry))
        return _Table(principals, ignored=len(document) - len(principals))


def _principal(entry: TokenEntry) -> Principal:
    context = CONTEXT_DEFAULT if entry.context is None else AmbientContext(**entry.context.model_dump())
    return Principal(
        tenant=entry.tenant,
        scopes=frozenset(entry.scopes),
        context=context,
        agent=entry.agent,
        expires_at=entry.expires_at,
    )


def _bearer_digest(scope: Scope) -> bytes:
    """SHA-256 of the one bearer token in `Authorization`."""
    values = header_values(scope, b"authorization")
    if not values:
        raise _unauthenticated("there is no bearer token: `Authorization: Bearer <token>` is missing")
    scheme, _, token = values[0].partition(b" ")
    if len(values) > 1 or scheme.lower() != b"bearer" or not 0 < len(token) <= TOKEN_BYTES_MAX:
        raise _unauthenticated("the Authorization header is malformed; send `Bearer <token>`")
    return hashlib.sha256(token).digest()


def _fault(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror or type(error).__name__}"
    return str(error)


def _unauthenticated(message: str) -> HttpRefusal:
    return HttpRefusal(MemoreeError(Code.UNAUTHENTICATED, message), headers=_CHALLENGE)

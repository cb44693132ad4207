"""Who is asking: the tokens file, bearer tokens and scopes (MemoryProtocol §2).

The file is one JSON object, token → `{tenant, scopes, context?, agent?, expires_at?}`; a key may be
`sha256:<64 hex digits>` instead of the token itself. Only digests are kept. Replace the file by renaming a new one
over it: a half-written file closes every route until it is whole again.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import orjson
from pydantic import Field
from starlette.types import Scope

from memoree import clock, limits
from memoree.clock import Clock
from memoree.envelope import AmbientContext, WireModel, parse
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.http.answers import HttpRefusal, header_values
from memoree.objects.blobs import check_tenant
from memoree.operations import registry
from memoree.service import Check

TOKENS_FILE_BYTES_MAX = 4 * limits.MIB
TOKEN_BYTES_MAX = 4096
RELOAD_SECONDS = 1.0
SCOPES_ALL: frozenset[str] = frozenset(get_args(registry.Scope))
CONTEXT_DEFAULT = AmbientContext(workspace_id="wsp_default", project_id="prj_default")
_DIGEST_KEY = re.compile(r"sha256:([0-9a-f]{64})")
_LOOKUP_BYTES = 16
_CHALLENGE = ((b"www-authenticate", b"Bearer"),)

log = logging.getLogger(__name__)


class TokenContext(WireModel):
    workspace_id: str
    project_id: str
    task_id: str | None = None


class TokenEntry(WireModel):
    """One value of the tokens file."""

    tenant: str
    scopes: list[registry.Scope]
    context: TokenContext | None = None
    agent: str | None = Field(default=None, min_length=1, max_length=limits.ACTOR_BYTES_MAX)
    expires_at: str | None = None


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
    """The tokens file, read again when it changed; asked at most once a second whether it did."""

    def __init__(
        self,
        path: Path,
        *,
        only_tenant: str | None = None,
        clock_now: Clock = clock.utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._only_tenant = only_tenant
        self._clock = clock_now
        self._monotonic = monotonic
        self._version: tuple[int, ...] | None = None
        self._table = _Table(fault="not read yet")
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
        """Whether some token is of this tenant."""
        self._look_again_if_due()
        return any(principal.tenant == tenant for _, principal in self._table.principals.values())

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

    def _look_again_if_due(self) -> None:
        now = self._monotonic()
        if now - self._looked_at >= RELOAD_SECONDS:
            self._looked_at = now
            self._look()

    def _look(self) -> None:
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
            if version == self._version:
                return
            self._table, self._version = self._read(), version
        except (OSError, MemoreeError, ValueError) as error:
            known, self._table, self._version = self._table.fault, _Table(fault=_fault(error)), None
            if self._table.fault != known:
                log.error("the tokens file opens no door: %s", self._table.fault)

    def _read(self) -> _Table:
        with self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                log.warning("the tokens file can be read by others than its owner; give it mode 0600")
            raw = file.read(TOKENS_FILE_BYTES_MAX + 1)
        if len(raw) > TOKENS_FILE_BYTES_MAX:
            invalid(f"it has more than {TOKENS_FILE_BYTES_MAX} bytes")
        try:
            document = orjson.loads(raw)
        except orjson.JSONDecodeError:
            invalid("it is not valid JSON")  # the parser's message could quote a token
        if not isinstance(document, dict):
            invalid("it must be a JSON object")
        principals: dict[bytes, tuple[bytes, Principal]] = {}
        for position, (token, entry) in enumerate(document.items(), start=1):
            try:
                digest = _token_digest(token)
                principals[digest[:_LOOKUP_BYTES]] = (digest, self._principal(entry))
            except MemoreeError as error:
                log.error("entry %d of the tokens file is ignored: %s", position, error.message)
        return _Table(principals, ignored=len(document) - len(principals))

    def _principal(self, document: Any) -> Principal:
        entry = parse(TokenEntry, document)
        check_tenant(entry.tenant)
        if self._only_tenant is not None and entry.tenant != self._only_tenant:
            invalid(f"tenant: this service has the single tenant {self._only_tenant}, not {shown(entry.tenant)}")
        return Principal(
            tenant=entry.tenant,
            scopes=frozenset(entry.scopes),
            context=CONTEXT_DEFAULT if entry.context is None else parse(AmbientContext, entry.context.model_dump()),
            agent=entry.agent,
            expires_at=None if entry.expires_at is None else _instant(entry.expires_at),
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


def _token_digest(token: str) -> bytes:
    if match := _DIGEST_KEY.fullmatch(token):
        return bytes.fromhex(match[1])
    if token.startswith("sha256:"):
        invalid("the digest must have 64 lower-case hex digits")
    if not 0 < len(token.encode()) <= TOKEN_BYTES_MAX:
        invalid(f"a token has 1 to {TOKEN_BYTES_MAX} bytes")
    return hashlib.sha256(token.encode()).digest()


def _instant(text: str) -> str:
    try:
        return clock.parse_timestamp(text)
    except ValueError as error:
        invalid(f"expires_at: {error}")


def _fault(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror or type(error).__name__}"
    return str(error)


def _unauthenticated(message: str) -> HttpRefusal:
    return HttpRefusal(MemoreeError(Code.UNAUTHENTICATED, message), headers=_CHALLENGE)

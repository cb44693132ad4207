"""What stands in a tokens file (MemoryProtocol §2): one JSON object, token → `{tenant, scopes, context?, agent?,
name?, expires_at?}`; a key may be `sha256:<64 hex digits>` instead of the token itself."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, Field

from memoree import clock, limits
from memoree.envelope import ContextId, WireModel, bounded, length, parse
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.objects.blobs import check_tenant
from memoree.operations import registry

TOKENS_FILE_BYTES_MAX = 4 * limits.MIB
TOKEN_BYTES_MAX = 4096
TOKEN_RANDOM_BYTES = 32
NAME_BYTES_MAX = 200
ID_DIGITS = 12
DIGEST_PREFIX = "sha256:"
OPERATOR_TENANT = "*"
"""No tenant's name: of tokens that administer all tenants and reach the data of none."""
OPERATOR_SCOPES = frozenset({"admin"})
_DIGEST_KEY = re.compile(f"{DIGEST_PREFIX}([0-9a-f]{{64}})")

Document = Mapping[str, Any]


class TokenContext(WireModel):
    workspace_id: ContextId
    project_id: ContextId
    task_id: ContextId | None = None


class TokenRights(WireModel):
    """What a token may do, whoever's it is. `expires_at` is kept in stored form."""

    scopes: list[registry.Scope]
    context: TokenContext | None = None
    agent: str | None = Field(default=None, min_length=1, max_length=limits.ACTOR_BYTES_MAX)
    name: Annotated[str, bounded(NAME_BYTES_MAX), length(NAME_BYTES_MAX)] | None = None
    """For people, who cannot tell one digest from another."""
    expires_at: Annotated[str, AfterValidator(clock.parse_timestamp)] | None = None


class TokenEntry(TokenRights):
    """One value of the tokens file."""

    tenant: str

    def to_wire(self) -> dict[str, Any]:
        """What was said of it, the tenant first."""
        told = self.model_dump(exclude_none=True)
        if self.expires_at is not None:
            told["expires_at"] = clock.wire(self.expires_at)
        return {"tenant": told.pop("tenant"), **told}


@dataclass(frozen=True, slots=True)
class Token:
    """A token that can be accepted, by its digest."""

    digest: bytes
    entry: TokenEntry

    @property
    def id(self) -> str:
        """What people call it by; it is no secret."""
        return self.digest.hex()[:ID_DIGITS]

    def to_wire(self) -> dict[str, Any]:
        return {"id": self.id, **self.entry.to_wire()}


def decode(raw: bytes) -> Document:
    """Raises `INVALID_REQUEST` for what is no such document; never with a part of it."""
    if len(raw) > TOKENS_FILE_BYTES_MAX:
        invalid(f"it has more than {TOKENS_FILE_BYTES_MAX} bytes")
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        invalid("it is not valid JSON")  # the parser's message could quote a token
    if not isinstance(document, dict):
        invalid("it must be a JSON object")
    return document


def encode(document: Document) -> bytes:
    """Raises `CONTENT_TOO_LARGE` for one that nobody would read."""
    raw = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if len(raw) > TOKENS_FILE_BYTES_MAX:
        raise MemoreeError(
            Code.CONTENT_TOO_LARGE, f"the tokens file would have more than {TOKENS_FILE_BYTES_MAX} bytes"
        )
    return raw


def tokens_of(document: Document, *, only_tenant: str | None = None) -> Iterator[Token | MemoreeError]:
    """Its entries in order, each as the token it is or as why it is ignored."""
    for token, entry in document.items():
        try:
            yield Token(token_digest(token), checked_entry(entry, only_tenant=only_tenant))
        except MemoreeError as error:
            yield error


def checked_entry(document: Any, *, only_tenant: str | None = None) -> TokenEntry:
    """An entry that is understood. Raises `INVALID_REQUEST` and `CONFIG_ERROR`. `only_tenant` is the one there is."""
    entry = parse(TokenEntry, document)
    if entry.tenant == OPERATOR_TENANT:
        if set(entry.scopes) != OPERATOR_SCOPES:
            invalid("scopes: a token of all tenants (`*`) has the scope `admin` and no other")
        return entry
    check_tenant(entry.tenant)
    if only_tenant is not None and entry.tenant != only_tenant:
        invalid(f"tenant: this service has the single tenant {only_tenant}, not {shown(entry.tenant)}")
    return entry


def token_digest(token: str) -> bytes:
    """Of a key of the document. Raises `INVALID_REQUEST`."""
    if match := _DIGEST_KEY.fullmatch(token):
        return bytes.fromhex(match[1])
    if token.startswith(DIGEST_PREFIX):
        invalid("the digest must have 64 lower-case hex digits")
    if not 0 < len(token.encode()) <= TOKEN_BYTES_MAX:
        invalid(f"a token has 1 to {TOKEN_BYTES_MAX} bytes")
    return hashlib.sha256(token.encode()).digest()


def new_secret() -> str:
    return secrets.token_hex(TOKEN_RANDOM_BYTES)


def with_token(document: Document, token: Token) -> Document:
    """The document with this token too, by its digest alone."""
    return {**document, f"{DIGEST_PREFIX}{token.digest.hex()}": token.entry.to_wire()}


def without(document: Document, digest: bytes) -> Document:
    """The document without this token, also where it stands there twice."""
    return {key: entry for key, entry in document.items() if not _is(key, digest)}


def _is(key: str, digest: bytes) -> bool:
    try:
        return token_digest(key) == digest
    except MemoreeError:
        return False

"""Who may make, list and revoke which tokens is for the doors to judge; how it is done is here."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from memoree import clock
from memoree.clock import Clock
from memoree.errors import MemoreeError, invalid, not_found, shown
from memoree.tokens.document import (
    ID_DIGITS,
    Document,
    Token,
    TokenEntry,
    checked_entry,
    new_secret,
    tokens_of,
    with_token,
    without,
)
from memoree.tokens.source import TokensSource

ID_DIGITS_MIN = 4
ID_PATTERN = f"^[0-9a-f]{{{ID_DIGITS_MIN},64}}$"
_ID = re.compile(ID_PATTERN)

Choice = Callable[[TokenEntry], bool]


@dataclass(frozen=True, slots=True)
class Listed:
    """Tokens, and how many entries of the whole file are none."""

    tokens: Sequence[Token]
    ignored: int


class TokensAdministration:
    """Of one tokens file. `only_tenant` is the one there is."""

    def __init__(
        self, source: TokensSource, *, only_tenant: str | None = None, clock_now: Clock = clock.utc_now
    ) -> None:
        self.source = source
        self._only_tenant = only_tenant
        self._clock = clock_now

    async def create(self, entry: TokenEntry) -> tuple[str, Token]:
        """A new token, which nobody is told again, and what it may do. Raises `INVALID_REQUEST` for an entry that would
        open nothing, and what changing the file raises."""
        scopes = list(dict.fromkeys(entry.scopes))
        entry = checked_entry({**entry.model_dump(), "scopes": scopes}, only_tenant=self._only_tenant)
        if not entry.scopes:
            invalid("scopes: a token without a scope opens nothing; name at least one")
        if entry.expires_at is not None and entry.expires_at <= clock.stored(self._clock()):
            invalid(f"expires_at: {clock.wire(entry.expires_at)} is over")
        secret = new_secret()
        made = Token(hashlib.sha256(secret.encode()).digest(), entry)
        await self.source.update(lambda document: with_token(document, made))
        return secret, made

    async def listed(self, chosen: Choice = lambda _entry: True) -> Listed:
        """The tokens that can be accepted, in the order of the file; those that have expired too."""
        document = await self.source.read()
        found = await asyncio.to_thread(_tokens, document)
        return Listed([token for token in found if chosen(token.entry)], ignored=len(document) - len(found))

    async def revoke(self, id_: str, chosen: Choice = lambda _entry: True) -> Token:
        """Take away the token whose digest begins with `id_`. Raises `NOT_FOUND`, `INVALID_REQUEST` for no id or one
        that begins several, and what changing the file raises."""
        if _ID.fullmatch(id_) is None:
            invalid(f"{shown(id_)} is no token's id, such as the first {ID_DIGITS} hex digits of its SHA-256")
        revoked: list[Token] = []

        def change(document: Document) -> Document:
            if not revoked:  # made again, it is about the same token, which may be gone by now
                revoked.append(_only(id_, (token for token in _tokens(document) if chosen(token.entry))))
            return without(document, revoked[0].digest)

        await self.source.update(change)
        return revoked[0]


def _tokens(document: Document) -> Sequence[Token]:
    """Each digest once: the last entry counts, as it does for who asks."""
    return list({each.digest: each for each in tokens_of(document) if not isinstance(each, MemoreeError)}.values())


def _only(id_: str, tokens: Iterable[Token]) -> Token:
    found = [token for token in tokens if token.digest.hex().startswith(id_)]
    if not found:
        not_found("token", id_)
    if len(found) > 1:
        invalid(f"{len(found)} tokens have ids that begin with {id_}; give more of its digits")
    return found[0]

"""Cursors of lists: where a walk goes on, sealed so that nobody else's walk, and no other one, can be continued.

A cursor is a place and a seal over it, the tenant, the list, the scope and the filters. It is opaque but no secret,
and never expires: a place is a commit number, which stays what it is. The key of the seal is made once per
deployment (`memoree.objects.secret`), so any api process continues what another began, also after a restart.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from memoree.errors import invalid

_FORMAT = b"\x01"
_PLACE_BYTES = 8
_SEAL_BYTES = 24
_CURSOR_BYTES = len(_FORMAT) + _PLACE_BYTES + _SEAL_BYTES
assert _CURSOR_BYTES % 3 == 0, "base64 without spare bits: no two spellings of one cursor"


@dataclass(frozen=True, slots=True)
class Walk:
    """One walk through one list, as one tenant sees it with these filters."""

    key: bytes
    tenant: str
    listing: str
    scope: Mapping[str, Any]
    filters: Mapping[str, Any]

    def cursor(self, before: int) -> str:
        """The cursor of the page that begins below a commit number."""
        place = before.to_bytes(_PLACE_BYTES)
        return base64.urlsafe_b64encode(_FORMAT + place + self._seal(place)).decode()

    def place(self, cursor: str) -> int:
        """Where a cursor of this walk goes on. Raises `INVALID_REQUEST` for any other text."""
        raw = _decoded(cursor)
        place, seal = raw[1 : 1 + _PLACE_BYTES], raw[1 + _PLACE_BYTES :]
        if raw[:1] != _FORMAT or not hmac.compare_digest(seal, self._seal(place)):
            invalid("cursor: it was altered, or belongs to other filters or another list; begin a new walk without it")
        return int.from_bytes(place)

    def _seal(self, place: bytes) -> bytes:
        sealed = [self.tenant, self.listing, self.scope, self.filters, int.from_bytes(place)]
        message = orjson.dumps(sealed, option=orjson.OPT_SORT_KEYS)
        return hmac.digest(self.key, _FORMAT + message, hashlib.sha256)[:_SEAL_BYTES]


def _decoded(cursor: str) -> bytes:
    try:
        raw = base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    # The decoder also takes the other alphabet: only the one spelling that was handed out is a cursor.
    if len(raw) != _CURSOR_BYTES or base64.urlsafe_b64encode(raw).decode() != cursor:
        invalid("cursor: it is not a cursor of this service")
    return raw

"""Idempotency keys that derive from what a call says: a model that repeats its call repeats its write, and makes no
second one (field fault 12)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

KEY_PREFIX = "mcp/"
"""Before the keys of this door: those of a context share a name space with the other doors'."""


def content_key(
    tool: str, context: Mapping[str, Any], arguments: Mapping[str, Any], written: Mapping[str, Any], *more: str
) -> str:
    """The key of one write of a call: `written` is what it sends to the store, which a later version may word
    otherwise. `more` tells apart the writes of one call, and calls that are meant to count each time."""
    told = orjson.dumps([tool, context, arguments, written, *more], option=orjson.OPT_SORT_KEYS)
    return KEY_PREFIX + hashlib.sha256(told).hexdigest()


def minute_of(moment: datetime) -> str:
    """The minute that tells apart two writes of the same content (OKF contract §8.5): best effort, since a repeat may
    fall into the next one."""
    return moment.strftime("%Y-%m-%dT%H:%MZ")

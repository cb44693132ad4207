"""JSON objects that vouch for themselves: small records in the object store that nothing else could prove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from blake3 import blake3


def sealed(document: Mapping[str, Any]) -> bytes:
    """The document with one more member, `digest`: the BLAKE3 of all others, sorted and encoded."""
    return orjson.dumps({**document, "digest": _digest(document)}, option=orjson.OPT_SORT_KEYS)


def opened(body: bytes, *, seal_required: bool = True) -> dict[str, Any]:
    """The document without its digest. Raises `ValueError` for one that is damaged, or has no digest and must."""
    document = orjson.loads(body)
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    digest = document.pop("digest", None)
    if digest != _digest(document) and (seal_required or digest is not None):
        raise ValueError("its members do not add up to its digest")
    return document


def _digest(document: Mapping[str, Any]) -> str:
    return blake3(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()

"""The ledger file of a bundle as commands for the store: what it has more than at the last time (OKF contract §8.4)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from memoree.okf import dates
from memoree.okf.bundle import LEDGER_PATH
from memoree.okf.ledger import LEDGER_BYTES_MAX
from memoree.okf.plan import DIGEST_HEX_CHARS, Cursor

CONTENT_REF_PREFIX = "sha256:"


@dataclass(frozen=True, slots=True)
class Unread:
    """Inputs of `ledger.append`, in the order of the file, and how far it is read then: bytes, and their digest."""

    events: Sequence[dict[str, Any]]
    reached: tuple[int, str]


def unread(root: Path, cursor: Cursor | None) -> Unread:
    """None where there is no ledger, or one outside the bundle. A line that is no event is passed over, one that is not
    ended yet is left for the next time."""
    data = _ledger(root)
    end = data.rfind(b"\n") + 1
    known = 0 if cursor is None else cursor.ledger_bytes
    if cursor is None or not 0 < known <= end or _digest(data[:known]) != cursor.ledger_digest:
        known = 0
    events = [event for line in data[known:end].splitlines() if (event := _event(line)) is not None]
    return Unread(events, (end, _digest(data[:end])) if end else (0, ""))


def _ledger(root: Path) -> bytes:
    path = root / LEDGER_PATH
    try:
        if not path.resolve().is_relative_to(root.resolve()):
            return b""
        with path.open("rb") as file:
            return file.read(LEDGER_BYTES_MAX)
    except (OSError, RuntimeError):
        return b""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGEST_HEX_CHARS]


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("topic"), str):
        return None
    written = event.get("ts")
    instant = dates.milliseconds(written) if isinstance(written, str) else None
    if instant is None:
        return None
    ref = event.get("ref")
    if not isinstance(ref, str) or not ref:
        ref = f"{CONTENT_REF_PREFIX}{hashlib.sha256(line.strip()).hexdigest()}"
    named = ("topic", "phase", "action", "status", "artifact", "actor")
    told = {name: event[name] for name in named if isinstance(event.get(name), str)}
    return {**told, "ref": ref, "occurred_at": dates.iso(instant)}

"""The line of JSON that commands over a bundle print (OKF contract §2.3)."""

from __future__ import annotations

from typing import Any

import orjson

from memoree.okf import dates

CONTRACT = 1


def line(kind: str, data: Any, *, at_ms: int) -> bytes:
    """Without a line end. `at_ms` is when the answer was made."""
    envelope = {"contract": CONTRACT, "kind": kind, "generatedAt": dates.iso(at_ms), "data": data}
    return orjson.dumps(envelope)

"""Identifiers: a typed prefix and a ULID (machine protocol §5.1). Consumers treat every id as opaque."""

from __future__ import annotations

import re
import time
from typing import NewType

from ulid import ULID

ArtifactId = NewType("ArtifactId", str)
ArtifactRevisionId = NewType("ArtifactRevisionId", str)
ClaimId = NewType("ClaimId", str)
ClaimRevisionId = NewType("ClaimRevisionId", str)
EventId = NewType("EventId", str)
AttemptId = NewType("AttemptId", str)

_ATTEMPT = re.compile(r"att_[0-7][0-9A-HJKMNP-TV-Z]{25}")


def new_ulid(at_ms: int | None = None) -> str:
    """26 characters of Crockford base 32; `at_ms` is milliseconds since the epoch, the host's clock if absent."""
    return str(ULID.from_timestamp(at_ms if at_ms is not None else time.time()))


def new_id(prefix: str, at_ms: int | None = None) -> str:
    return f"{prefix}_{new_ulid(at_ms)}"


def new_attempt_id() -> AttemptId:
    return AttemptId(new_id("att"))


def is_attempt_id(text: str) -> bool:
    return _ATTEMPT.fullmatch(text) is not None


def attempt_time_ms(attempt_id: AttemptId) -> int:
    """When the attempt was made, in milliseconds since the epoch, by the clock of the api that made it."""
    return ULID.from_str(attempt_id.removeprefix("att_")).milliseconds

"""The projection channel: derived text that leads to its artifact and never counts as an answer (contract §2.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ProjectionStatus:
    """What became of the channel in one run; `reason` only for `error`."""

    state: Literal["no_candidates", "ready", "not_applicable", "error"]
    candidate_count: int = 0
    reason: str | None = None

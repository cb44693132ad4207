"""How much a node still counts: superseded, expired, old, and lately worked on (OKF contract §2.7)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memoree.okf import dates
from memoree.okf.ids import path_of
from memoree.okf.node import TIMELESS

PENALTY = 0.35
MULTIPLIER_MIN, MULTIPLIER_MAX = 0.75, 1.0
"""Of importance, age and activity together: they order what is alive, and lift nothing above its score."""
IMPORTANCE_DEFAULT, IMPORTANCE_MAX = 3, 5
FRESH_DAYS, OLD_DAYS, DECAY_MIN = 180, 720, 0.6
HEAT_DAYS, HEAT_EVENTS, HEAT_BOOST, HOT_MIN = 30, 5, 0.5, 0.5
AUTHORITIES = {"canon": 3.0, "derived": 2.0, "observed": 1.0}
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")

Tier = Literal["hot", "warm", "cold"]


@dataclass(frozen=True, slots=True)
class Activity:
    """Of a topic in the ledger: its events, and when the last one was."""

    count: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Dates:
    """What a node says of its time, in milliseconds; `None` where it says nothing that can be read."""

    timestamp: int | None
    valid_from: int | None
    invalid_at: int | None


@dataclass(frozen=True, slots=True)
class State:
    """A node as it stands at one instant. `superseders` are ids of nodes that say they replace it, `superseded_by` the
    paths it names itself, `superseder_exists` whether one of these is a node."""

    type: str
    importance: float
    dates: Dates
    deprecated_on: str | None
    superseders: Sequence[str]
    superseded_by: Sequence[str]
    superseder_exists: bool
    activity: Activity | None
    at_ms: int

    @property
    def is_stale(self) -> bool:
        """Ordinary searches leave it out. What is deprecated is none of this."""
        return bool(self.superseders) or self.superseder_exists or self._has_ended or self._is_to_come

    @property
    def multiplier(self) -> float:
        declined = (
            self.deprecated_on is not None
            or bool(self.superseders)
            or bool(self.superseded_by)
            or self._has_ended
            or self._is_to_come
        )
        aged = self.importance * decay(self.type, self.dates.timestamp, self.at_ms)
        alive = aged * (1 + HEAT_BOOST * heat(self.activity, self.at_ms))
        return (PENALTY if declined else 1.0) * min(max(alive, MULTIPLIER_MIN), MULTIPLIER_MAX)

    @property
    def label(self) -> str:
        """Why it counts less, in the words that answers show."""
        if self.superseders:
            return f"[superseded by {', '.join(path_of(each) for each in self.superseders)}]"
        if self.deprecated_on is not None:
            return f"[deprecated {self.deprecated_on}]" if self.deprecated_on else "[deprecated]"
        if self.superseded_by:
            return f"⤳ superseded by {', '.join(self.superseded_by)}"
        if self._has_ended:
            assert self.dates.invalid_at is not None
            return f"⤳ superseded (invalid_at {dates.date(self.dates.invalid_at)})"
        if self._is_to_come:
            assert self.dates.valid_from is not None
            return f"⤳ not yet valid (valid_from {dates.date(self.dates.valid_from)})"
        return ""

    @property
    def _has_ended(self) -> bool:
        return self.dates.invalid_at is not None and self.dates.invalid_at <= self.at_ms

    @property
    def _is_to_come(self) -> bool:
        return self.dates.valid_from is not None and self.dates.valid_from > self.at_ms


def importance(written: str) -> float:
    """1 to 5 over the default of 3; 1.0 for what is no number."""
    number = _number(written)
    return 1.0 if number is None else min(max(number, 1), IMPORTANCE_MAX) / IMPORTANCE_DEFAULT


def authority(written: str) -> float | None:
    known = AUTHORITIES.get(written.strip().lower())
    return known if known is not None else _number(written)


def decay(node_type: str, timestamp_ms: int | None, at_ms: int) -> float:
    """1.0 while it is fresh, then falling to the least there is."""
    if node_type in TIMELESS or timestamp_ms is None:
        return 1.0
    days = (at_ms - timestamp_ms) / dates.DAY_MS
    if days <= FRESH_DAYS:
        return 1.0
    return max(1 - (1 - DECAY_MIN) * (days - FRESH_DAYS) / (OLD_DAYS - FRESH_DAYS), DECAY_MIN)


def heat(activity: Activity | None, at_ms: int) -> float:
    """0.0 to 1.0: how lately and how often a topic was worked on."""
    if activity is None:
        return 0.0
    days = (at_ms - activity.last_ms) / dates.DAY_MS
    if not 0 <= days < HEAT_DAYS:
        return 0.0
    return (1 - days / HEAT_DAYS) * min(1.0, activity.count / HEAT_EVENTS)


def tier(heat_now: float) -> Tier:
    return "hot" if heat_now >= HOT_MIN else "warm" if heat_now > 0 else "cold"


def _number(written: str) -> float | None:
    text = written.strip()
    return float(text) if _NUMBER.fullmatch(text) else None

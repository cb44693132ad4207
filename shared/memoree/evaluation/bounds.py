"""Numbers that must be reached, and numbers to aim for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["aim reached", "ok", "MISSED"]


@dataclass(frozen=True, slots=True)
class Bound:
    """`at_least` says whether a number has to reach its bounds or to stay below them; both ends count as reached."""

    name: str
    must: float
    aim: float
    at_least: bool

    def reaches(self, value: float, bound: float) -> bool:
        return value >= bound if self.at_least else value <= bound


@dataclass(frozen=True, slots=True)
class Held:
    """A bound and what was measured."""

    bound: Bound
    value: float

    @property
    def verdict(self) -> Verdict:
        if self.bound.reaches(self.value, self.bound.aim):
            return "aim reached"
        return "ok" if self.bound.reaches(self.value, self.bound.must) else "MISSED"

"""Numbers: samples and their percentiles, a measured figure, and the bounds it is held against."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .site import Site

Verdict = Literal["aim reached", "ok", "MISSED"]


def percentile(samples: Sequence[float], share: float) -> float:
    """The sample below or at which this share of them lies (nearest rank)."""
    assert samples, "a percentile needs samples"
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def p50(samples: Sequence[float]) -> float:
    return percentile(samples, 0.50)


def latencies_ms(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """p50 and p99 in milliseconds, ready for the report."""
    return {
        f"{name}_p50_ms": percentile(seconds, 0.50) * 1000,
        f"{name}_p99_ms": percentile(seconds, 0.99) * 1000,
    }


class NotMeasured(Exception):
    """A ratio needs something that this run was not given; the text says what."""


@dataclass(frozen=True, slots=True)
class Figure:
    """`measured` and `floor` share a unit; without a floor the measured number is held against the bounds itself.
    `absolute` are the numbers worth keeping, named with their units."""

    measured: float
    floor: float | None = None
    absolute: Mapping[str, float] = field(default_factory=dict)

    @property
    def value(self) -> float:
        return self.measured if self.floor is None else self.measured / self.floor


@dataclass(frozen=True, slots=True)
class Ratio:
    """One row of the benchmark. `must` is the bound that fails `--check`, `aim` the one to work towards."""

    name: str
    measured_is: str
    floor_is: str
    must: float
    aim: float
    measure: Callable[[Site], Awaitable[Figure]]
    higher_is_better: bool = False

    def verdict(self, value: float) -> Verdict:
        if self._within(value, self.aim):
            return "aim reached"
        return "ok" if self._within(value, self.must) else "MISSED"

    def _within(self, value: float, bound: float) -> bool:
        return value >= bound if self.higher_is_better else value <= bound

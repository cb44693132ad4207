"""Explores programs with hypothesis until every reachable outcome has occurred often enough."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, given, seed, settings

from .doors import OpenDoor
from .outcomes import OCCURRENCES_MIN
from .programs import INTENTIONS, Intention, Program, programs
from .run import Run, Tally

ROUNDS_MAX = 20
"""Of programs about the operations that are still short of an outcome."""
PROGRAMS_PER_ROUND = 5


class Exploration:
    """Programs over fresh stores, and the tally of them all. The same seed runs the same programs."""

    def __init__(self, open_door: OpenDoor, first_seed: int, program_steps: int, *, shrink: bool = True) -> None:
        self._open_door = open_door
        self._seed = first_seed
        self._program_steps = program_steps
        self._phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
        self.tally = Tally()

    def run(self, requests_min: int) -> None:
        """Programs about everything, until that many requests were sent. Raises `Disagreement`, shrunk."""
        while self.tally.requests < requests_min:
            self._explore(INTENTIONS)

    def complete(self, occurrences_min: int = OCCURRENCES_MIN) -> None:
        """Programs about what occurred too seldom so far, until nothing did. Raises `AssertionError` when an outcome
        stays out of reach, and when one occurred that the contract does not know."""
        for _ in range(ROUNDS_MAX):
            if not (short := self.tally.seldom(occurrences_min)):
                break
            leading = set().union(*(self.tally.leading[outcome] for outcome in short))
            led_to_by_none = {op for op, outcome in short if not self.tally.leading[op, outcome]}
            self._explore([each for each in INTENTIONS if each in leading or each[0] in led_to_by_none])
        assert not self.tally.unforeseen(), f"outcomes the contract does not know: {self.tally.unforeseen()}"
        assert not self.tally.seldom(occurrences_min), f"not often enough:\n{self.tally}"

    def _explore(self, intentions: Sequence[Intention]) -> None:
        self._seed += 1

        @seed(self._seed)
        @settings(
            max_examples=PROGRAMS_PER_ROUND,
            deadline=None,
            database=None,
            phases=self._phases,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        @given(programs(self._program_steps, intentions))
        def agrees(program: Program) -> None:
            with self._open_door() as (door, clock):
                Run(door, self.tally, clock).program(program)

        agrees()
